"""Converts the weights of a run to a PyTorch state dict, which torch.load() reads and load_state_dict() takes.

A run stores a tied tensor once, under its first name, and stores no tensors that the module's state dict leaves out.
If the .lsm file that the run trained is given, the state dict has all names of the module's state dict.

what can fail -> what the caller sees (ExportError, one line)
  the run has no final weights, or the file is damaged -> the path, and what to do
  a tensor of the .lsm file is missing in the weights, or has another shape there -> the names
  the output is no regular file, or cannot be written -> the path and the reason; an existing file stays as it was
"""

import io
import json
import os

import torch

from lockstep.export import weights
from lockstep.export.errors import ExportError
from lockstep.export.tensor_file import replace

_DESCRIPTION = "lockstep.model"


def to_torch(run: str, output: str, lsm: str | None = None) -> int:
    """Writes the state dict of `run`, a run folder or a safetensors file, to the file `output`. `lsm` is the .lsm file
    that the run trained; without it, a tied tensor has only its first name. Returns the number of tensors. Throws
    ExportError."""
    path = os.path.join(run, "weights.safetensors") if os.path.isdir(run) else run
    if not os.path.isfile(path):
        raise ExportError(
            f"{path} does not exist: name a run that is done, or a file that `lockstep export RUN@STEP` wrote"
        )
    state = weights.read(path)
    if lsm is not None:
        state = _with_all_names(state, path, lsm)
    content = io.BytesIO()
    torch.save(state, content)
    replace(output, [content.getbuffer()])
    return len(state)


def _with_all_names(state: dict[str, torch.Tensor], path: str, lsm: str) -> dict[str, torch.Tensor]:
    """Returns the tensors of the module's state dict, in the order of that dict, with a tied tensor under all its
    names."""
    try:
        description = json.loads(weights.read_metadata(lsm)[_DESCRIPTION])
        entries = description["parameters"] + [entry for entry in description["buffers"] if entry["persistent"]]
        sources = {entry["name"]: entry.get("same_as", entry["name"]) for entry in entries}
    except (KeyError, TypeError, ValueError) as error:
        raise ExportError(f"{lsm} is no file that lockstep.export wrote") from error
    missing = sorted({source for source in sources.values() if source not in state})
    if missing:
        raise ExportError(f"{path} lacks {', '.join(missing[:3])}, which the module of {lsm} has")
    return {name: state[source] for name, source in sources.items()}
