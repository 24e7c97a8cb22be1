#!/usr/bin/env bash
# Checks that a dependency of a room (a folder with a BUILD file) on an upper room (one that rules/rooms.bzl lists
# later) does not build, and that a CUDA source can include only headers of its target and of the target's declared
# dependencies. The test adds forbidden dependencies, one at a time, to a copy of the sources with its own Bazel server,
# and checks that Bazel's error message names the mistake.
set -euo pipefail

root=$(cd "$(dirname -- "$(readlink -f -- "$0")")/../.." && pwd)
scratch=$(mktemp -d)
copy=$scratch/lockstep
# These variables, which Bazel sets for its tests, would confuse the Bazel that this test starts.
unset TEST_TMPDIR RUNFILES_DIR TEST_SRCDIR
bazel=(bazel --max_idle_secs=60 --output_user_root="$scratch/bazel")
failures=0

finish() {
  (cd "$copy" && "${bazel[@]}" shutdown) || true
  chmod -R u+w "$scratch"
  rm -rf "$scratch"
}
trap finish EXIT

# lower is a library of base/ with one source file, upper is a target in a room above base/, and kernel is a
# cuda_library with one source file.
lower=//base:clock lower_source=base/clock.cc
upper=//trainer/step upper_folder=trainer/step
kernel=//ops/token:embedding_kernel kernel_source=ops/token/embedding.cu
kernel_folder=${kernel_source%/*}

mkdir "$copy"
(cd "$root" && find . -name '.?*' ! -name '.bazel*' -prune -o -path ./runs -prune -o -name 'bazel-*' -prune -o \
  -type f -print0 | tar --null -T - -cf -) | tar -xf - -C "$copy"
ln -s "$root/.venv" "$copy/.venv"
cd "$copy"

build() { "${bazel[@]}" build --symlink_prefix=/ "$@" >"$scratch/log" 2>&1; }

# refused WHAT TEXT BAZEL_ARGUMENT ...: checks that the build with these arguments fails and that its output contains
# TEXT. WHAT describes the mistake in messages.
refused() {
  local what=$1 text=$2
  shift 2
  if build "$@"; then
    echo "$what: was built"
  elif ! grep -qF -- "$text" "$scratch/log"; then
    echo "$what: failed without a word of '$text':"
    cat "$scratch/log"
  else
    echo "$what: refused"
    return
  fi
  failures=$((failures + 1))
}

# The kernel's source is replaced by one line that includes the target's header, so that the kernel compiles in seconds.
header=${kernel_source%.cu}_kernel.h
echo "#include \"$header\"" >"$kernel_source"
echo '#pragma once' >"$upper_folder/planted.h"
echo '#pragma once' >"$kernel_folder/planted.cuh"
echo '#pragma once' >ops/update/planted.cuh
build "$lower" "$kernel" || { cat "$scratch/log" && echo "the copy does not build before anything is wrong" && exit 1; }

cp "$lower_source" "$scratch/source"
sed -i "1i #include \"$upper_folder/planted.h\"" "$lower_source"
# The kernel is built as well, because only then does Bazel make the upper folder visible to the compiler.
refused "an include from base to $upper_folder in a .cc" "$upper_folder/planted.h" "$lower" "$kernel"
cp "$scratch/source" "$lower_source"

sed -i '1i #include "trainer/step/step.h"' "$lower_source"
refused "an include of trainer/step/step.h in base" trainer/step/step.h "$lower" "$kernel"
cp "$scratch/source" "$lower_source"

echo "#include \"$upper_folder/planted.h\"" >>"$kernel_source"
refused "an include from ops to $upper_folder in a .cu" "$upper_folder/planted.h" "$kernel"
echo "#include \"$header\"" >"$kernel_source"

# Bazel makes the folder ops/update visible to the compiler, so only the check of the target's declared dependencies can
# refuse this include.
echo "#include \"ops/update/planted.cuh\"" >>"$kernel_source"
refused "an include from ops/token to ops/update in a .cu" "includes ops/update/planted.cuh, which $kernel" "$kernel"
echo "#include \"$header\"" >"$kernel_source"

echo "#include \"$kernel_folder/planted.cuh\"" >>"$kernel_source"
refused "a header that the .cu's target does not have" "includes $kernel_folder/planted.cuh, which $kernel" "$kernel"
echo "#include \"$header\"" >"$kernel_source"

cp "${lower_source%/*}/BUILD" "$scratch/BUILD"
printf 'cc_library(\n    name = "planted",\n    deps = ["%s"],\n)\n' "$upper" >>"${lower_source%/*}/BUILD"
refused "a dependency of base on $upper" "is not visible from" --nobuild "//${lower_source%/*}:planted"
cp "$scratch/BUILD" "${lower_source%/*}/BUILD"

build "$lower" "$kernel" || { cat "$scratch/log" && echo "the copy no longer builds" && exit 1; }
((failures == 0))
