#!/usr/bin/env bash
# Fuzzes one parser: tests/fuzz/run.sh TARGET SECONDS [LIBFUZZER OPTION ...]
#
# TARGET is the name of a fuzz_target() in tests/fuzz/BUILD. The script needs the Debian package libclang-rt-dev. If an
# input fails, the script's last line is the path of the file with this input. Move the file into
# tests/fuzz/corpus/TARGET when the bug is fixed. If no input fails, the script adds to tests/fuzz/corpus/TARGET a small
# set of inputs that reach the same code as all inputs that were tried. The tests replay the files of that folder.
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
