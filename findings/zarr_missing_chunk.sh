#!/usr/bin/env bash
# Guess: reading an array raises an error if one of the array's files is missing, for example because a copy was
# interrupted.
# Fact: by the rules of the Zarr format, a missing chunk stands for the fill value, so it is read as zeros, without a
# warning. zarr itself writes no file for a chunk of zeros, so the number of files does not show the loss either.
# Seen with zarr 3.1.6:
#   as found: without its second file [1 2 3 4] reads as [1 2 0 0]; zeros are written to 0 files
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-deps zarr==3.1.6 numcodecs==0.16.6 numpy==2.4.6 donfig==0.8.1.post1 google-crc32c==1.9.0 \
  packaging==26.4 typing-extensions==4.16.0 pyyaml==6.0.4
venv/bin/python - <<'EOF'
import os
import sys
import numpy
import zarr


def files_of(folder):
    return sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names if name != "zarr.json")


array = zarr.create_array("samples.zarr", shape=(4,), chunks=(2,), dtype="i4")
array[:] = [1, 2, 3, 4]
os.remove(files_of("samples.zarr")[1])
read = zarr.open_array("samples.zarr", mode="r")[:]
zarr.create_array("zeros.zarr", shape=(4,), chunks=(2,), dtype="i4")[:] = numpy.zeros(4, "i4")
zeros = len(files_of("zeros.zarr"))
seen = f"without its second file [1 2 3 4] reads as {read}; zeros are written to {zeros} files"
found = seen == "without its second file [1 2 3 4] reads as [1 2 0 0]; zeros are written to 0 files"
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
