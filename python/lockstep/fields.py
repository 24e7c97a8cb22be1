"""Converts the fields of a config: Python values to command-line arguments, and the program's printed config to a dict.

Only the program knows the schema of a config. So this package passes each value as `--set FIELD=VALUE`, and a mistake
gives the program's own error message. Repeated messages and maps cannot be given by --set, so they go into a file.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

# The names of the fields in the schema that are maps from strings to strings.
_MAPS = {"option"}


class Fields:
    """The fields of a config: `words` are command-line arguments, and `text` is the content of a config file."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self._blocks: dict[str, Any] = {}  # by name: a dict of a message's blocks, or the texts of a repeated block

    @property
    def text(self) -> str:
        return _text_of(self._blocks)

    def add(self, fields: Mapping[str, Any], message: Sequence[str] = ()) -> None:
        """Adds the fields of a dict, which may be nested. A name may also be a path, such as "optimizer.lr" or
        "optimizer__lr". Throws TypeError for a value that no field can have.

        >>> fields = Fields()
        >>> fields.add({"epochs": 3, "data": {"csv": {"header": True}, "train": "a b.csv"}, "model__mlp__hidden": [8, 8]})
        >>> fields.words[1::2]
        ['epochs=3', 'data.csv.header=true', 'data.train=a b.csv', 'model.mlp.hidden=[8, 8]']
        >>> fields.add({"loss": {"class_weight": numpy.array([1, 2.5])}, "seed": numpy.int64(7)})
        >>> fields.words[9::2]
        ['loss.class_weight=[1.0, 2.5]', 'seed=7']
        >>> fields.add({"model": {"option": {"width": 32}}})
        >>> fields.text
        'model { option { key: "width" value: "32" } }'
        """
        for name, value in fields.items():
            value = _plain(value)
            path = [*message, *name.replace("__", ".").split(".")]
            if path[-1] in _MAPS and isinstance(value, Mapping):
                for key, text in value.items():
                    self._add_block(path, f"key: {_quoted(str(key))} value: {_quoted(str(text))}")
            elif isinstance(value, Mapping):
                self.add(value, path)
            elif isinstance(value, list) and value and all(isinstance(block, Mapping) for block in value):
                for block in value:
                    inner = (f"{field}: {_item(field, content)}" for field, content in block.items())
                    self._add_block(path, " ".join(inner))
            else:
                self.words += ["--set", f"{'.'.join(path)}={_value('.'.join(path), value)}"]

    def _add_block(self, path: Sequence[str], text: str) -> None:
        inside = self._blocks
        for name in path[:-1]:
            inside = inside.setdefault(name, {})
        inside.setdefault(path[-1], []).append(text)


def read_printed(text: str) -> dict[str, Any]:
    """Returns the fields of a config that the program has printed. A field that occurs several times becomes a list.

    >>> read_printed('epochs: 3\\ndata {\\n  train: "\\\\303\\\\251.csv"\\n  format: CSV\\n}\\n')
    {'epochs': 3, 'data': {'train': 'é.csv', 'format': 'CSV'}}
    """
    config: dict[str, Any] = {}
    messages = [config]
    for line in text.split("\n"):
        line = line.strip()
        if line == "}":
            messages.pop()
        elif line.endswith("{") and not line.endswith('"'):
            message: dict[str, Any] = {}
            _put(messages[-1], line[:-1].strip(), message)
            messages.append(message)
        elif line:
            name, _, value = line.partition(": ")
            _put(messages[-1], name, _parsed(value))
    return config


def _text_of(blocks: Mapping[str, Any]) -> str:
    """Returns the config text of the blocks. A message occurs once in the text; a repeated block occurs once for each
    of its texts."""
    texts = []
    for name, content in blocks.items():
        inner = [_text_of(content)] if isinstance(content, dict) else content
        texts += [f"{name} {{ {text} }}" for text in inner]
    return " ".join(texts)


def _put(message: dict[str, Any], name: str, value: Any) -> None:
    if name not in message:
        message[name] = value
    elif isinstance(message[name], list):
        message[name].append(value)
    else:
        message[name] = [message[name], value]


def _parsed(value: str) -> Any:
    if value.startswith(('"', "'")):
        return ast.literal_eval("b" + value).decode(errors="surrogateescape")
    if value in ("true", "false"):
        return value == "true"
    for number in (int, float):
        try:
            return number(value)
        except ValueError:
            pass
    return value


def _quoted(text: str) -> str:
    def code(match: re.Match[str]) -> str:
        return f"\\{ord(match[0]):03o}"

    return '"' + re.sub(r'[\x00-\x1f"\\]', code, text) + '"'


def _plain(value: Any) -> Any:
    """Returns a value of Python's own types in place of a scalar or an array of NumPy, PyTorch or pandas, and a list in
    place of another sequence. Other values stay."""
    if isinstance(value, (str, bytes, os.PathLike, Mapping)):
        return value
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return [_plain(item) for item in value]
    return value


def _scalar(name: str, value: Any) -> str | None:
    """Returns the text of a number or bool; None if the value is a string or a path."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, (str, os.PathLike)):
        return None
    raise TypeError(f"{name}: {value!r} is no number, text, truth value, list or dict")


def _item(name: str, value: Any) -> str:
    """Returns the text of a value in a list or a block, where strings need quotes."""
    value = _plain(value)
    if isinstance(value, list):
        return "[" + ", ".join(_item(name, item) for item in value) + "]"
    scalar = _scalar(name, value)
    return _quoted(os.fspath(value)) if scalar is None else scalar


def _value(name: str, value: Any) -> str:
    """Returns the text of a value after --set FIELD=. In such a text a string has no quotes, because the program knows
    whether the field is a string or an enum. Only strings that would be read as something else get quotes."""
    if isinstance(value, list):
        return _item(name, value)
    scalar = _scalar(name, value)
    if scalar is not None:
        return scalar
    text = os.fspath(value)
    return _quoted(text) if text.startswith(('"', "'", "[")) or re.search(r"[\x00-\x1f]", text) else text
