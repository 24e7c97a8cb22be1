"""Writes tensors to a file in the safetensors format (https://github.com/huggingface/safetensors, 'Format').

Promise: the path holds either the whole new file or what it held before. The new content is written to a temporary file
in the same folder. This file is synced and then renamed to the path. Anything but a regular file (a folder, a device, a
pipe) is never replaced; a symbolic link is followed. An input, and what a run keeps in its folder, are not replaced
either, as in base/files/kept_files.h.

what can fail -> what the caller sees
  the path is no regular file, its folder is missing or not writable, the disk is full -> ExportError, no temporary file
  a tensor's dtype has no name in the format (complex numbers) -> ExportError that names the tensor
"""

import ctypes
import json
import os
import stat
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping

import torch

from lockstep.export.errors import ExportError

Buffer = bytes | memoryview
DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


# The names of the files and folders that a run keeps in its folder, as base/files/run_files.cc has them.
NAMES_OF_RUNS = (
    "STOP", "anomaly.json", "checkpoint.request", "checkpoints", "config.pbtxt", "crew.json", "crew.lock", "flight",
    "lock", "log.jsonl", "memory", "profile.request", "profiles", "tensorboard", "weights.safetensors",
)  # fmt: skip


def _require_no_file_of_run(path: str) -> None:
    """Checks that the path, without its symbolic links, is none of the files that a run keeps in its folder. Throws
    ExportError if it is."""
    below = os.path.realpath(path)
    while (folder := os.path.dirname(below)) != below:
        is_run = any(os.path.lexists(os.path.join(folder, name)) for name in ("log.jsonl", "lock", "crew.json"))
        if is_run and os.path.basename(below) in NAMES_OF_RUNS:
            raise ExportError(f"{path} is a file that the run {folder} keeps for itself: name another file")
        below = folder


def require_replaceable(path: str, inputs: Iterable[str] = ()) -> None:
    """Checks that the folder of this path exists, that the path is free or a regular file, and that it is none of the
    files `inputs` and of the files that a run keeps in its folder. Throws ExportError if not."""
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise ExportError(f"{path}: the folder {folder} does not exist")
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        raise ExportError(f"{path} is not a plain file: it is not replaced")
    for name in inputs:
        if os.path.exists(path) and os.path.exists(name) and os.path.samefile(path, name):
            raise ExportError(f"{path} is what is exported, {name}: name another file")
    _require_no_file_of_run(path)


def write(path: str, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]) -> None:
    """Writes tensors to a safetensors file. The tensors may have any shape, any dtype in DTYPES, and be on any device.
    Throws ExportError."""
    require_replaceable(path)
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES:
            raise ExportError(f"the tensor {name} has the type {tensor.dtype}, which the file cannot hold")
    # The dtypes with the largest elements come first, so that each tensor is aligned to the size of its elements.
    order = sorted(tensors, key=lambda name: -tensors[name].element_size())
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    offset = 0
    for name in order:
        tensor = tensors[name]
        end = offset + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)

    def content() -> Iterator[Buffer]:
        yield struct.pack("<Q", len(text))
        yield text
        for name in order:
            flat = tensors[name].detach().cpu().contiguous().reshape(-1)
            if flat.numel():
                yield memoryview((ctypes.c_char * (flat.numel() * flat.element_size())).from_address(flat.data_ptr()))

    replace(path, content())


def replace(path: str, content: Iterable[Buffer]) -> None:
    """Replaces the file at `path` by a new one with this content, by a rename. Throws ExportError."""
    path = os.path.realpath(path)
    require_replaceable(path)
    temporary = None
    try:
        descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=os.path.basename(path) + ".tmp")
        with os.fdopen(descriptor, "wb") as file:
            for part in content:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.rename(temporary, path)
        temporary = None
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror or error}") from error
    finally:
        if temporary is not None:
            os.unlink(temporary)
