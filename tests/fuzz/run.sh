#!/usr/bin/env bash
# Fuzzes one parser: tests/fuzz/run.sh TARGET SECONDS [LIBFUZZER OPTION ...]
#
# TARGET is a fuzz_target of tests/fuzz/BUILD. Needs libclang-rt-dev (Debian). If an input fails, the last line is its
# path; the input belongs into tests/fuzz/corpus/TARGET once the bug is fixed. Otherwise the script adds to that folder
# a minimal set of inputs that reach all the code that was reached. The tests replay the folder.
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
