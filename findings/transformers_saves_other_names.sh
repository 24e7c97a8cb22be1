#!/usr/bin/env bash
# Guess: save_pretrained writes each tensor of state_dict() under the tensor's name, so code that reads the file, or
# compares the file with the model, can rely on these names.
# Fact: in transformers 5 a model's tensors may have other names and shapes than the tensors of the model's checkpoint.
# Mixtral keeps the weights of all experts of a layer in one tensor; save_pretrained splits it into tensors with the
# names and shapes of version 4, and from_pretrained joins these tensors again. So load_state_dict() refuses the file
# that the same model has just written.
# Seen with transformers 5.24.0 and torch 2.11.0 (one layer, two experts):
#   as found: 3 names are state_dict()'s alone, such as mlp.experts.down_proj (2, 16, 8), and 7 are the file's, such as
#   block_sparse_moe.experts.0.w2.weight (16, 8); load_state_dict() refuses it
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install -q --no-compile torch==2.11.0 transformers==5.24.0 numpy==2.4.6
export TRANSFORMERS_VERBOSITY=error HF_HUB_DISABLE_PROGRESS_BARS=1
venv/bin/python - <<'EOF'
import sys
from safetensors.torch import load_file
from transformers import MixtralConfig, MixtralForCausalLM

sizes = dict(vocab_size=32, hidden_size=16, intermediate_size=8, num_hidden_layers=1, num_local_experts=2)
model = MixtralForCausalLM(MixtralConfig(num_attention_heads=2, num_key_value_heads=2, **sizes))
model.save_pretrained("saved")
state, saved = model.state_dict(), load_file("saved/model.safetensors")
layer, own, written = "model.layers.0.", "mlp.experts.down_proj", "block_sparse_moe.experts.0.w2.weight"
try:
    model.load_state_dict(saved)
    loads = "takes it"
except RuntimeError:
    loads = "refuses it"
seen = (
    f"{len(set(state) - set(saved))} names are state_dict()'s alone, such as {own} {tuple(state[layer + own].shape)}, "
    f"and {len(set(saved) - set(state))} are the file's, such as {written} {tuple(saved[layer + written].shape)}; "
    f"load_state_dict() {loads}"
)
found = seen == (
    "3 names are state_dict()'s alone, such as mlp.experts.down_proj (2, 16, 8), and 7 are the file's, such as "
    "block_sparse_moe.experts.0.w2.weight (16, 8); load_state_dict() refuses it"
)
print("as found:" if found else "CHANGED:", seen)
sys.exit(not found)
EOF
