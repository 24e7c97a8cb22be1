#!/usr/bin/env bash
# Guess: with the same seed, the result of a longer torch.randn begins with the numbers of a shorter torch.randn, as is
# the case for torch.rand.
# Fact: on the CPU, randn draws fewer than 16 numbers one after another, but 16 or more numbers in blocks, for which it
# uses the generator's output differently. randn(15) and randn(16) have no number in common. So a test that compares a
# small model's initial weights with a part of a larger model's, or that draws the same noise in pieces of another size,
# fails at some sizes and passes at others.
# Seen with torch 2.11.0:
#   as found: of the first 15 numbers of 15 and of 16 rand has 15 the same, randn 0
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile torch==2.11.0 numpy==2.4.6
venv/bin/python - <<'EOF'
import sys
import torch


def same(draw):
    drawn = [draw(size, generator=torch.Generator().manual_seed(0)) for size in (15, 16)]
    return int((drawn[0] == drawn[1][:15]).sum())


seen = f"of the first 15 numbers of 15 and of 16 rand has {same(torch.rand)} the same, randn {same(torch.randn)}"
found = seen == "of the first 15 numbers of 15 and of 16 rand has 15 the same, randn 0"
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
