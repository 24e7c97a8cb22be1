#!/usr/bin/env bash
# Guess: numpy uses pairwise summation for float32, so a mean has several correct digits, whatever axis it is taken
# over.
# Fact: numpy sums pairwise only along the contiguous axis. For the mean of each channel of an array (pixels, channels),
# numpy adds row by row into one float32 for each channel. If all values are 1, this sum stops growing at 2^24 =
# 16,777,216, the number of pixels in 335 images of 224 x 224. The mean over all axes is correct, and so is the mean of
# each channel if the array is in Fortran order.
# Seen with numpy 2.4.6 (2^25 pixels of 2 channels, 256 MiB):
#   as found: of ones mean() is 1.0, mean(axis=0) is [0.5 0.5], and [1. 1.] in Fortran order
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q numpy==2.4.6
venv/bin/python - <<'EOF'
import sys
import numpy

ones = numpy.ones((2**25, 2), numpy.float32)
seen = (
    f"of ones mean() is {ones.mean()}, mean(axis=0) is {ones.mean(axis=0)}, "
    f"and {numpy.asfortranarray(ones).mean(axis=0)} in Fortran order"
)
found = seen == "of ones mean() is 1.0, mean(axis=0) is [0.5 0.5], and [1. 1.] in Fortran order"
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
