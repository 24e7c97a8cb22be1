#!/usr/bin/env bash
# Every C++, CUDA and JavaScript file looks as .clang-format says. To make it so:
#   git ls-files '*.h' '*.cc' '*.cu' '*.cuh' '*.c' '*.js' | xargs .venv/bin/clang-format -i
set -euo pipefail

root=$(cd "$(dirname -- "$(readlink -f -- "$0")")/../.." && pwd)
cd "$root"
# All below the folders that git knows, new ones too; a clone without git has the same.
mapfile -t files < <(find . -name '.?*' -prune -o -path ./runs -prune -o -name 'bazel-*' -prune -o \
  -type f \( -name '*.h' -o -name '*.cc' -o -name '*.cu' -o -name '*.cuh' -o -name '*.c' -o -name '*.js' \) \
  -print | sort)
((${#files[@]} > 100)) || { echo "found ${#files[@]} files in $root: where are they?" && exit 1; }
.venv/bin/clang-format --dry-run -Werror "${files[@]}"
echo "${#files[@]} files are formatted"
