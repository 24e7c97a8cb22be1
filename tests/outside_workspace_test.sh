#!/usr/bin/env bash
# outside_workspace_test.sh analysis|all
#
# Loads and analyses examples/outside_workspace as a separate Bazel workspace, with its own Bazel server: all rules and
# packages that its program takes from Lockstep must be visible to other workspaces. With `all` the script also builds
# the program, trains its model on its data set, and evaluates it. The build is kept in .lockstep/outside_workspace for
# the next run.
set -euo pipefail

what=$1

here=$(dirname -- "$(readlink -f -- "$PWD/examples/outside_workspace/two_layers.cc")")
root=$(cd "$here/../.." && pwd)
bazel=(bazel --max_idle_secs=5 --output_user_root="$root/.lockstep/outside_workspace")
# Bazel sets these variables for this test. The Bazel that this script starts must not use the same folders.
unset TEST_TMPDIR RUNFILES_DIR TEST_SRCDIR

cd "$here"
if [[ $what == analysis ]]; then
  "${bazel[@]}" build --nobuild --symlink_prefix=/ --noshow_progress //:two_layers
  exit
fi
# Without optimization the compilation takes half the time, and the speed of the program does not matter here.
"${bazel[@]}" build --copt=-O0 --symlink_prefix=/ --noshow_progress //:two_layers
program=$("${bazel[@]}" info --noshow_progress bazel-bin 2>/dev/null)/two_layers

run_dir=$(mktemp -d)/run
"$program" -n 2 train "$here/train.pbtxt" --set run_dir="$run_dir"
"$program" evaluate "$run_dir" --input "$here/points.txt" | tee "$run_dir/evaluation"
grep '"event":"done"' "$run_dir/log.jsonl"
# The samples form two moons. A straight line can classify at most a share of 0.88 of them correctly.
grep -E 'accuracy (0\.9[5-9]|1\.0).*\(400 samples\)' "$run_dir/evaluation"
