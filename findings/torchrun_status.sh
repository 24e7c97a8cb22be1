#!/usr/bin/env bash
# Guess: torchrun ends with the exit status of the worker that failed, as mpirun and srun do.
# Fact: torchrun ends with exit status 1 whenever a worker fails, whatever the worker's exit status is. So a scheduler
# cannot see in the exit status why a training script failed, for example whether the script asks to be started again
# (75), has run out of memory, or has a wrong config. The worker's exit status is only in torchrun's log.
# Seen with torch 2.11.0:
#   as found: a worker's status 75 is torchrun's status 1, in its log as exitcode: 75
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile torch==2.11.0 numpy==2.4.6
echo 'raise SystemExit(75)' > worker.py
status=0
venv/bin/torchrun --standalone --nproc-per-node=1 worker.py > log 2>&1 || status=$?
logged=$(grep -oE 'exitcode *: 75' log | tr -d ' ' | sort -u | sed 's/:/: /')
seen="a worker's status 75 is torchrun's status $status, in its log as $logged"
if [ "$seen" = "a worker's status 75 is torchrun's status 1, in its log as exitcode: 75" ]; then
  echo "as found: $seen"
else
  echo "CHANGED: $seen"
  exit 1
fi
