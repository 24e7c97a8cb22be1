#!/usr/bin/env bash
# Checks that the sources of base/ define exactly one version, that the newest release in CHANGELOG.md has this version,
# and that README.md and docs/ name no other version of lockstep.
set -euo pipefail

root=$(cd "$(dirname -- "$(readlink -f -- "$0")")/../.." && pwd)
cd "$root"
said=$(grep -rhoE --include='*.h' --include='*.cc' 'kVersion\[\] = "[^"]+"' base | sort -u)
version=$(sed -n 's/.*"\(.*\)"/\1/p' <<<"$said")
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]] || { echo "base/ says no version, or more than one: $said" && exit 1; }
newest=$(grep -oE -m 1 '^## [0-9]+\.[0-9]+\.[0-9]+' CHANGELOG.md | cut -c4-)
[[ $newest == "$version" ]] || { echo "the program is $version, and CHANGELOG.md's newest release $newest" && exit 1; }
if others=$(grep -noE 'lockstep [0-9]+\.[0-9]+\.[0-9]+' README.md docs/*.md | grep -v " $version\$"); then
  echo "another version than $version: $others" && exit 1
fi
echo "version $version"
