#!/usr/bin/env bash
# Builds examples/outside_workspace as the Bazel workspace of its own that it is, with a Bazel server of its
# own, and trains its model. The build is kept in .lockstep/outside_workspace for the next time.
set -euo pipefail

here=$(dirname -- "$(readlink -f -- "$PWD/examples/outside_workspace/two_layers.cc")")
root=$(cd "$here/../.." && pwd)
bazel=(bazel --max_idle_secs=5 --output_user_root="$root/.lockstep/outside_workspace")
# A Bazel started by a Bazel test would take these for its own.
unset TEST_TMPDIR RUNFILES_DIR TEST_SRCDIR

cd "$here"
"${bazel[@]}" build --symlink_prefix=/ --noshow_progress //:two_layers
program=$("${bazel[@]}" info --noshow_progress bazel-bin 2>/dev/null)/two_layers

run_dir=$(mktemp -d)/run
"$program" train "$here/train.pbtxt" --set run_dir="$run_dir"
grep '"event":"done"' "$run_dir/log.jsonl"
