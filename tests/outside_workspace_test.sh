#!/usr/bin/env bash
# outside_workspace_test.sh analysis|all
#
# Loads and analyses examples/outside_workspace as the Bazel workspace of its own that it is, with a Bazel server of its
# own: all rules and packages that its program takes from Lockstep are there for others. With `all` it is built besides,
# and trains its model on its data set. The build is kept in .lockstep/outside_workspace for the next time.
set -euo pipefail

what=$1

here=$(dirname -- "$(readlink -f -- "$PWD/examples/outside_workspace/two_layers.cc")")
root=$(cd "$here/../.." && pwd)
bazel=(bazel --max_idle_secs=5 --output_user_root="$root/.lockstep/outside_workspace")
# A Bazel started by a Bazel test would take these for its own.
unset TEST_TMPDIR RUNFILES_DIR TEST_SRCDIR

cd "$here"
if [[ $what == analysis ]]; then
  "${bazel[@]}" build --nobuild --symlink_prefix=/ --noshow_progress //:two_layers
  exit
fi
# Whether it builds and works is the question, not how fast it is: without the optimizer that takes half the time.
"${bazel[@]}" build --copt=-O0 --symlink_prefix=/ --noshow_progress //:two_layers
program=$("${bazel[@]}" info --noshow_progress bazel-bin 2>/dev/null)/two_layers

run_dir=$(mktemp -d)/run
"$program" -n 2 train "$here/train.pbtxt" --set run_dir="$run_dir"
"$program" evaluate "$run_dir" --input "$here/points.txt" | tee "$run_dir/evaluation"
grep '"event":"done"' "$run_dir/log.jsonl"
# Two moons: what a line can tell apart is 0.88 of them.
grep -E 'accuracy (0\.9[5-9]|1\.0).*\(400 samples\)' "$run_dir/evaluation"
