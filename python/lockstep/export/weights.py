"""Reads a state dict from local files and loads it into a module.

A state dict is a safetensors file, what torch.save wrote, the index of several such files (NAME.index.json), or a
folder with one of these under the names that the library transformers gives them. What torch.save wrote is read with
weights_only=True, so no code in it runs.

what can fail -> what the caller sees (ExportError, one line)
  the file is missing, damaged, or does not hold a dict of tensors -> the path and the reason
  names or shapes differ from the module's -> the first names that differ
"""

import json
import os
import struct
import sys
from dataclasses import dataclass
from typing import Any, BinaryIO

import torch
from torch import nn

from lockstep.export.errors import ExportError, first_line
from lockstep.export.tensor_file import DTYPES

_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
_LARGEST_HEADER_BYTES = 100_000_000
# The files of weights that a folder of the library transformers may have; the first that is there is read.
_WEIGHTS_OF_FOLDER = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)


@dataclass(frozen=True)
class Loaded:
    """The names of the tensors that load_pretrained() did not load."""

    kept: list[str]  # the module's tensors that keep their initial values
    unused: list[str]  # the file's tensors that the module does not have


def load_pretrained(model: nn.Module, path: str, replace_head: bool = False) -> Loaded:
    """Loads all parameters and persistent buffers of `model` from `path` (read()). A tied tensor needs to be there only
    under one of its names. If the names in `path` are not those of the module and the module is a model of the library
    transformers, the library says which tensor belongs to which name, and joins or splits tensors as it does itself.

    With `replace_head`, tensors that the file lacks or has in another shape (such as the last layer for another task)
    keep their initial values, and tensors that the module lacks are not used. Throws ExportError.
    """
    weights = read(path)
    own = model.state_dict(keep_vars=True)
    for name, tensor in own.items():
        if name not in weights:
            other = next((tied for tied, t in own.items() if t is tensor and tied in weights), None)
            if other is not None:
                weights[name] = weights[other]
    if weights.keys() != own.keys():
        weights = _with_names_of_transformers(model, weights, path)
    # Files of old PyTorch versions lack this counter of BatchNorm.
    weights |= {name: tensor.detach() for name, tensor in own.items()
                if name not in weights and name.endswith(".num_batches_tracked")}  # fmt: skip
    lacking = sorted(own.keys() - weights.keys())
    others = [name for name in own if name in weights and own[name].shape != weights[name].shape]
    unused = sorted(weights.keys() - own.keys())
    kept: list[str] = []
    if replace_head:
        kept = lacking + others
        loaded = sum(own[name].numel() for name in own.keys() - set(kept))
        if 2 * loaded < sum(tensor.numel() for tensor in own.values()):
            raise ExportError(f"{path} has less than half of the module's weights: it belongs to another module")
        weights = {name: own[name].detach() if name in kept else weights[name] for name in own}
    else:
        for text, names in (
            ("lacks", lacking),
            ("has, and the module does not,", unused),
            ("has other shapes of", others),
        ):
            if names:
                raise ExportError(f"{path} {text} {some(names)}")
    model.load_state_dict(weights)
    return Loaded(kept, unused)


def _with_names_of_transformers(
    model: nn.Module, weights: dict[str, torch.Tensor], path: str
) -> dict[str, torch.Tensor]:
    """Returns `weights` as the library transformers gives them to `model`, which may be a model of that library: the
    library writes files with other names than its modules have. Returns `weights` if the module is none of it."""
    transformers = sys.modules.get("transformers")
    if transformers is None or not isinstance(model, transformers.PreTrainedModel):
        return weights
    transformers.utils.logging.disable_progress_bar()
    try:
        # Tensors that the file lacks are drawn, which must not change what is drawn after this call.
        with torch.random.fork_rng(devices=[]):
            filled, loading = type(model).from_pretrained(
                None,
                config=model.config,
                state_dict=dict(weights),
                dtype=torch.float32,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except Exception as error:
        raise ExportError(f"{path}: transformers cannot load it: {first_line(error)}") from error
    absent = set(loading["missing_keys"]) | {name for name, *_ in loading["mismatched_keys"]}
    named = {name: tensor.detach() for name, tensor in filled.state_dict().items() if name not in absent}
    # A tensor of another shape keeps that shape, and one that the module does not have its name, so that
    # load_pretrained() names both.
    named |= {name: torch.empty(shape, device="meta") for name, shape, _ in loading["mismatched_keys"]}
    return named | {name: torch.empty(0, device="meta") for name in loading["unexpected_keys"]}


def some(names: list[str]) -> str:
    """Returns the first names of a list as text, and how many more there are."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def read(path: str) -> dict[str, torch.Tensor]:
    """Returns the tensors of a file, of an index's files, or of a folder's weights, by name, on the CPU."""
    if os.path.isdir(path):
        found = [name for name in _WEIGHTS_OF_FOLDER if os.path.exists(os.path.join(path, name))]
        if not found:
            raise ExportError(f"{path}: the folder has no {', '.join(_WEIGHTS_OF_FOLDER[:-1])} or {_WEIGHTS_OF_FOLDER[-1]}")
        path = os.path.join(path, found[0])
    return _read_index(path) if path.endswith(".index.json") else _read_file(path)


def _read_index(path: str) -> dict[str, torch.Tensor]:
    """Returns the tensors of the files that an index names. Each of the index's tensors must be in its file."""
    try:
        with open(path, "rb") as file:
            index = json.load(file)
        file_of = index.get("weight_map") if isinstance(index, dict) else None
        if not isinstance(file_of, dict) or not all(isinstance(name, str) for name in file_of.values()):
            raise ValueError("it has no weight_map, which names the file of each tensor")
        files = sorted(set(file_of.values()))
        # An index must not lead out of its folder.
        if any(os.path.basename(name) != name for name in files):
            raise ValueError("it names a file of another folder")
    except (OSError, ValueError, RecursionError) as error:
        raise ExportError(f"{path}: no index of weights: {first_line(error)}") from error
    weights: dict[str, torch.Tensor] = {}
    for name in files:
        part = os.path.join(os.path.dirname(path), name)
        tensors = _read_file(part)
        lacking = sorted(tensor for tensor, of in file_of.items() if of == name and tensor not in tensors)
        if lacking:
            raise ExportError(f"{part} lacks {some(lacking)}, which {path} says are there")
        weights |= tensors
    return weights


def _read_file(path: str) -> dict[str, torch.Tensor]:
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
