#!/usr/bin/env bash
# Makes random calls until they are enough: tests/fuzz/resume.sh PROGRAM [OPTION ...]
#
# PROGRAM is operation_calls or model_files, built with AddressSanitizer; its options are those of resumable_calls.h. Its
# state is kept for the commit, so that calls that were stopped go on. The script needs the Debian package
# libclang-rt-dev. The calls that failed stay in ~/.cache/lockstep/fuzz/PROGRAM-COMMIT.failed.
set -euo pipefail
program=${1:?PROGRAM}
shift
cd -- "$(dirname -- "$(readlink -f -- "$0")")/../.."
bazel build --config=asan "//tests/fuzz:$program"
built=$(bazel info --config=asan bazel-bin 2>/dev/null)
state=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep/fuzz/$program-$(git rev-parse HEAD)
mkdir -p "$(dirname -- "$state")"
# A run of --seconds ends with status 75 if all was well until then.
status=0
ASAN_OPTIONS=detect_leaks=0 "$built/tests/fuzz/$program" --state "$state" "$@" || status=$?
[ "$status" -eq 75 ] && status=0
exit "$status"
