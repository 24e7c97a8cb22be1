#!/usr/bin/env bash
# Guess: a pass over a validation DataLoader that neither shuffles nor has workers draws no random numbers.
# Fact: each iter() of a DataLoader draws a base seed for its workers from torch's default generator, even if it has no
# workers. So the frequency of validation changes a run's dropout and the order of its samples in the next epoch. A
# DataLoader with a generator of its own (argument `generator`) does not use the default generator.
# Seen with torch 2.11.0:
#   as found: the next torch.rand is another one after a validation, the same one with a generator of its own
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile torch==2.11.0 numpy==2.4.6
venv/bin/python - <<'EOF'
import sys
import torch
from torch.utils.data import DataLoader


def next_number(**options):
    torch.manual_seed(0)
    for _ in DataLoader([1, 2, 3], **options) if options else ():
        pass
    return torch.rand(()).item()


plain = "the same one" if next_number(shuffle=False, num_workers=0) == next_number() else "another one"
own = "the same one" if next_number(generator=torch.Generator()) == next_number() else "another one"
seen = f"the next torch.rand is {plain} after a validation, {own} with a generator of its own"
found = seen == "the next torch.rand is another one after a validation, the same one with a generator of its own"
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
