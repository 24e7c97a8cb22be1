#!/bin/sh
# pytest.sh PYTHON ARG ...: runs pytest on tests/ files with the wheels' Python; the report goes where
# Bazel wants it.
set -eu
python=$1
shift
export PYTHONDONTWRITEBYTECODE=1
[ "$(id -u)" != 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
exec "$python" -m pytest -q -p no:cacheprovider ${XML_OUTPUT_FILE:+--junitxml="$XML_OUTPUT_FILE"} "$@"
