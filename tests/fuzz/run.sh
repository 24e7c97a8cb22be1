#!/usr/bin/env bash
# Fuzzes one parser: tests/fuzz/run.sh TARGET SECONDS [LIBFUZZER OPTION ...]
#
# TARGET is a fuzz_target of tests/fuzz/BUILD. Needs libclang-rt-dev (Debian). Ends with the path of an
# input that fails, which belongs into tests/fuzz/corpus/TARGET once it is mended; or adds to that folder the few
# inputs that between them reach all code that was reached. The tests replay the folder.
set -euo pipefail
target=${1:?TARGET} seconds=${2:?SECONDS}
shift 2
cd -- "$(dirname -- "$(readlink -f -- "$0")")/../.."
work=${XDG_CACHE_HOME:-$HOME/.cache}/lockstep
bazel build --config=fuzz "//tests/fuzz:${target}_fuzz"
program=$(bazel info --config=fuzz bazel-bin 2>/dev/null)/tests/fuzz/${target}_fuzz
kept=$PWD/tests/fuzz/corpus/$target found=$work/fuzz-corpus/$target
mkdir -p "$kept" "$found"
"$program" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -artifact_prefix="$found-" "$@" "$found" "$kept"
"$program" -set_cover_merge=1 -use_counters=0 -artifact_prefix="$found-" "$kept" "$found"
