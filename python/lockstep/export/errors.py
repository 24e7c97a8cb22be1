"""The error of an export, and functions that find the line of the user's code that caused an error."""

import os
import sysconfig
import traceback
from types import TracebackType

import torch

_LIBRARY = os.path.dirname(torch.__file__) + os.sep
_STANDARD = sysconfig.get_path("stdlib") + os.sep
_OURS = os.path.dirname(os.path.dirname(__file__)) + os.sep


class ExportError(Exception):
    """Says in one line why a module cannot be exported."""

    def __init__(self, text: str):
        super().__init__(" ".join(str(text).split()))


def is_users_file(path: str) -> bool:
    """Returns whether this file belongs to the user or to a library of models, and not to Python, torch or Lockstep."""
    if path.startswith(_STANDARD) and "-packages" not in path:
        return False
    return not path.startswith((_LIBRARY, _OURS, "<"))


def users_line(trace: TracebackType | None = None) -> str:
    """Returns the place of the innermost frame of the user's code, such as "net.py:12", in the traceback `trace`, or in
    the current call stack if `trace` is None; "" if there is no such frame."""
    place = ""
    for frame in traceback.extract_stack() if trace is None else traceback.extract_tb(trace):
        if is_users_file(frame.filename):
            place = f"{os.path.basename(frame.filename)}:{frame.lineno}"
    return place


def first_line(error: BaseException) -> str:
    """Returns the first nonempty line of an exception's text, cut to 300 characters, or the exception's class if there
    is no such line."""
    lines = (line.strip() for line in str(error).split("\n"))
    text = next((line for line in lines if line), "") or type(error).__name__
    return text if len(text) <= 300 else text[:297] + "..."
