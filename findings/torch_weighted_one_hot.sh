#!/usr/bin/env bash
# Guess: torch.nn.functional.cross_entropy gives the same loss for targets that are class numbers and for the same
# targets as one-hot probabilities, also with class weights. So mixup, which needs probabilities, leaves the loss of an
# unmixed batch as it was.
# Fact: with class weights the sum of the weighted losses is divided by the sum of the targets' weights if targets are
# class numbers, and by the number of samples if they are probabilities. With weights that are far from 1 the loss, and
# with it the gradient, changes by that factor as soon as targets become probabilities. Without weights both agree.
# Seen with torch 2.11.0:
#   as found: without weights 0.6931 and 0.6931, with weights 1 and 5 0.6931 and 2.0794
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q torch==2.11.0
cat > losses.py <<'EOP'
import torch
from torch.nn.functional import cross_entropy, one_hot

logits = torch.zeros(2, 2)
numbers = torch.tensor([0, 1])
probabilities = one_hot(numbers, 2).float()
weights = torch.tensor([1.0, 5.0])
plain = [cross_entropy(logits, target).item() for target in (numbers, probabilities)]
weighted = [cross_entropy(logits, target, weights).item() for target in (numbers, probabilities)]
texts = [" and ".join(f"{loss:.4f}" for loss in losses) for losses in (plain, weighted)]
print(f"without weights {texts[0]}, with weights 1 and 5 {texts[1]}")
EOP
seen=$(venv/bin/python losses.py)
if [ "$seen" = "without weights 0.6931 and 0.6931, with weights 1 and 5 0.6931 and 2.0794" ]; then
  echo "as found: $seen"
else
  echo "CHANGED: $seen"
  exit 1
fi
