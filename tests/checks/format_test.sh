#!/usr/bin/env bash
# Checks that every C, C++, CUDA and JavaScript file is formatted as .clang-format says. To format all files:
#   git ls-files '*.h' '*.cc' '*.cu' '*.cuh' '*.c' '*.js' | xargs .venv/bin/clang-format -i
set -euo pipefail

root=$(cd "$(dirname -- "$(readlink -f -- "$0")")/../.." && pwd)
cd "$root"
# Finds all files of the workspace except hidden files, Bazel's folders and the folder runs. Git is not needed.
mapfile -t files < <(find . -name '.?*' -prune -o -path ./runs -prune -o -name 'bazel-*' -prune -o \
  -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.c' -o -name '*.js' \) \
  -print | sort)
((${#files[@]} > 100)) || { echo "found ${#files[@]} files in $root: where are they?" && exit 1; }
.venv/bin/clang-format --dry-run -Werror "${files[@]}"
echo "${#files[@]} files are formatted"
