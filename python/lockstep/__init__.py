"""Lockstep's Python package: writes PyTorch modules to files that `lockstep train` trains without Python.

    import lockstep
    lockstep.export(model, torch.randn(3, 3, 224, 224), "net.lsm")

It needs nothing but torch. ../FORMAT.md describes the file.
"""

from lockstep.export.api import export
from lockstep.export.errors import ExportError

__all__ = ["ExportError", "export"]
