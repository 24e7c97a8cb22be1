#!/bin/sh
# pytest.sh PYTHON FILE [ARG ...]: runs pytest on a file of tests/ with the Python that has the wheels, and writes the
# report to the file that Bazel names. If $DEVICE is CUDA and there is no GPU, each case that $CASES lists is reported
# as skipped.
set -eu
# Bazel sets no HOME, without which a mpirun of Open MPI 5 that a test starts does not run.
export HOME="${HOME-${TEST_TMPDIR-/}}"
python=$1
shift
export PYTHONDONTWRITEBYTECODE=1
[ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if [ "${DEVICE-}" = CUDA ] && [ -n "${CASES-}" ] && "$python" -I -S tests/without_gpu.py "$CASES" "$1"; then exit; fi
exec "$python" -m pytest -q -p no:cacheprovider ${XML_OUTPUT_FILE:+--junitxml="$XML_OUTPUT_FILE"} "$@"
