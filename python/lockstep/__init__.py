"""Lockstep from Python: trains a config with the lockstep program, reads the results of runs, and exports PyTorch
modules to files that the program trains without Python.

    import lockstep
    config = lockstep.new("titanic")
    run = lockstep.train(config, optimizer__lr=0.01)
    run.evaluate()
    run.predict(frame)
    lockstep.export(model, torch.randn(3, 3, 224, 224), "net.lsm")

run.py      new(), train() and Run
fields.py   converts the fields of a config from Python values, and from the text that the program prints
program.py  finds the program and runs its commands
child.py    starts the program as a child process that is stopped when this process ends
export/     export(), and `python -m lockstep.export`

Everything but export() needs only the lockstep program, and no other Python package. If pandas is installed, tables
are returned as data frames. Importing this package does not import torch.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

# This import must come before the definition of the function export(). The first import of the subpackage
# lockstep.export sets this package's attribute `export` to the subpackage; later imports do not change the attribute.
import lockstep.export as _export_package  # noqa: F401
from lockstep.program import LockstepError
from lockstep.run import Run, new, train

if TYPE_CHECKING:
    import torch

    from lockstep.export.errors import ExportError

__all__ = ["ExportError", "LockstepError", "Run", "export", "new", "train"]


def export(
    model: torch.nn.Module,
    inputs: torch.Tensor | tuple | dict[str, Any],
    path: str | os.PathLike,
    *,
    name: str | None = None,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    target: torch.Tensor | None = None,
) -> None:
    """Writes a PyTorch module to the file `path`, as lockstep.export.api.export() describes. Throws ExportError."""
    from lockstep.export import api  # imports torch

    api.export(model, inputs, path, name=name, loss=loss, target=target)


def __getattr__(name: str) -> Any:
    if name == "ExportError":
        from lockstep.export.errors import ExportError  # imports torch

        return ExportError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
