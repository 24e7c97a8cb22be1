#!/usr/bin/env bash
# Guess: an operation on meta tensors gives the sizes and dtypes that the real call on the CPU gives, so a model can be
# checked with meta tensors before it gets memory.
# Fact: three valid calls differ. Under torch.autocast a linear layer rounds its result on the CPU, but not on meta,
# which no autocast device serves. pixel_unshuffle returns a batch of no samples as it is, and divides its sizes on meta.
# huber_loss of a float32 input and a float64 target is float32 on the CPU and float64 on meta; mse_loss is float64 on
# both.
# Seen with torch 2.11.0:
#   as found: linear bfloat16/float32, pixel_unshuffle [0, 4, 6]/[0, 2, 3], huber_loss float32/float64, mse_loss float64/float64
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q torch==2.11.0 numpy==2.3.5
cat > meta.py <<'EOP'
import torch
from torch.nn import functional


def short(dtype):
    return str(dtype).removeprefix("torch.")


def linear(device):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return short(functional.linear(torch.ones(2, 4, device=device), torch.ones(3, 4, device=device)).dtype)


def unshuffled(device):
    return list(torch.pixel_unshuffle(torch.ones(0, 4, 6, device=device), 2).shape)


def loss(function):
    return lambda device: short(
        function(torch.ones(3, device=device), torch.zeros(3, dtype=torch.float64, device=device)).dtype
    )


calls = {"linear": linear, "pixel_unshuffle": unshuffled}
calls |= {"huber_loss": loss(functional.huber_loss), "mse_loss": loss(functional.mse_loss)}
print(", ".join(f"{name} {call('cpu')}/{call('meta')}" for name, call in calls.items()))
EOP
expected="linear bfloat16/float32, pixel_unshuffle [0, 4, 6]/[0, 2, 3], huber_loss float32/float64, mse_loss float64/float64"
seen=$(venv/bin/python meta.py)
if [ "$seen" = "$expected" ]; then
  echo "as found: $seen"
else
  echo "CHANGED: $seen"
  exit 1
fi
