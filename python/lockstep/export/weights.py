"""Reads a state dict from a local file and loads it into a module.

The file is a safetensors file, or a state dict that torch.save wrote. A state dict is read with weights_only=True, so
no code in it runs.

what can fail -> what the caller sees (ExportError, one line)
  the file is missing, damaged, or does not hold a dict of tensors -> the path and the reason
  names or shapes differ from the module's -> the first names that differ
"""

import json
import os
import struct
from typing import Any, BinaryIO

import torch
from torch import nn

from lockstep.export.errors import ExportError, first_line
from lockstep.export.tensor_file import DTYPES

_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
_LARGEST_HEADER_BYTES = 100_000_000


def load_pretrained(model: nn.Module, path: str, replace_head: bool = False) -> list[str]:
    """Loads all parameters and persistent buffers of `model` from the file `path`. The file needs to hold a tied tensor
    only under one of its names.

    With `replace_head`, tensors that the file lacks or has in another shape (such as the last layer for another task)
    keep their initial values, and tensors that the module lacks are ignored. Returns the names of the tensors that keep
    their initial values. Throws ExportError.
    """
    weights = read(path)
    own = model.state_dict(keep_vars=True)
    for name, tensor in own.items():
        if name not in weights:
            other = next((tied for tied, t in own.items() if t is tensor and tied in weights), None)
            if other is not None:
                weights[name] = weights[other]
    # Files of old PyTorch versions lack this counter of BatchNorm.
    weights |= {name: tensor.detach() for name, tensor in own.items()
                if name not in weights and name.endswith(".num_batches_tracked")}  # fmt: skip
    lacking = sorted(own.keys() - weights.keys())
    others = [name for name in own if name in weights and own[name].shape != weights[name].shape]
    kept: list[str] = []
    if replace_head:
        kept = lacking + others
        loaded = sum(own[name].numel() for name in own.keys() - set(kept))
        if 2 * loaded < sum(tensor.numel() for tensor in own.values()):
            raise ExportError(f"{path} has less than half of the module's weights: it belongs to another module")
        weights = {name: own[name].detach() if name in kept else weights[name] for name in own}
        lacking = others = []
    for text, names in (
        ("lacks", lacking),
        ("has, and the module does not,", sorted(weights.keys() - own.keys())),
        ("has other shapes of", others),
    ):
        if names:
            raise ExportError(f"{path} {text} {some(names)}")
    model.load_state_dict(weights)
    return kept


def some(names: list[str]) -> str:
    """Returns the first names of a list as text, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def read(path: str) -> dict[str, torch.Tensor]:
    """Returns the tensors of a file by name, on the CPU."""
    try:
        with open(path, "rb") as file:
            start = file.read(9)
        if start[8:] == b"{":
            return _read_safetensors(path)
        weights = torch.load(path, map_location="cpu", weights_only=True)
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(f"{path}: no weights can be read: {first_line(error)}") from error
    for key in ("state_dict", "model"):
        if isinstance(weights, dict) and isinstance(weights.get(key), dict):
            weights = weights[key]
    if not isinstance(weights, dict) or not all(isinstance(value, torch.Tensor) for value in weights.values()):
        raise ExportError(f"{path} is no state dict: it holds something else than tensors by name")
    return dict(weights)


def read_metadata(path: str) -> dict[str, str]:
    """Returns the metadata in the header of a safetensors file: texts by name."""
    try:
        with open(path, "rb") as file:
            metadata = _read_header(file, path).get("__metadata__")
    except (OSError, ValueError, struct.error, RecursionError) as error:
        raise ExportError(f"{path}: no safetensors file: {first_line(error)}") from error
    return metadata if isinstance(metadata, dict) else {}


def _read_header(file: BinaryIO, path: str) -> dict[str, Any]:
    (length,) = struct.unpack("<Q", file.read(8))
    if length > min(_LARGEST_HEADER_BYTES, os.path.getsize(path) - 8):
        raise ExportError(f"{path}: damaged: its header is longer than the file")
    header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is no object")
    return header


def _read_safetensors(path: str) -> dict[str, torch.Tensor]:
    with open(path, "rb") as file:
        header = _read_header(file, path)
        header.pop("__metadata__", None)
        data = bytearray(file.read())
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        dtype, shape = _DTYPES[entry["dtype"]], entry["shape"]
        if not 0 <= begin <= end <= len(data):
            raise ExportError(f"{path}: damaged: {name} lies outside the file")
        if begin == end:
            tensors[name] = torch.empty(shape, dtype=dtype)
            continue
        flat = torch.frombuffer(data, dtype=torch.uint8, offset=begin, count=end - begin)
        # clone() is needed because the bytes may not be aligned to the dtype.
        tensors[name] = flat.clone().view(dtype).reshape(shape)
    return tensors
