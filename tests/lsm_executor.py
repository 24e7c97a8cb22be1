"""Runs a .lsm file (python/FORMAT.md) with torch alone. Tests use this module instead of Lockstep's reader. It was
written from the description in FORMAT.md, not from the exporter's code.

    model = LsmModel("net.lsm")
    model.train()
    model(x).sum().backward()

Anything in the file that contradicts FORMAT.md fails an assertion.
"""

import json
import math
import operator
import struct
from pathlib import Path

import torch
from torch import nn

_DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64,
    "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool,
}  # fmt: skip

_SYMBOLIC = {
    "size": lambda x, dim: x.size(dim),
    "stride": lambda x, dim: x.stride(dim),
    "numel": lambda x: x.numel(),
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
    "sqrt": math.sqrt,
    "float": float,
    "min": min,
    "max": max,
    "not": operator.not_,
    "ite": lambda condition, yes, no: yes if condition else no,
} | {name: getattr(operator, name) for name in "add sub mul floordiv truediv mod pow neg eq ne lt le gt ge".split()}

ALLOWED = set((Path(__file__).parent.parent / "python/lockstep/operations.txt").read_text().split())


def read_lsm(path):
    """Returns (the description, the tensors by name) of a .lsm file."""
    data = bytearray(Path(path).read_bytes())
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    description = json.loads(header.pop("__metadata__")["lockstep.model"])
    tensors, expected = {}, 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, end = entry["data_offsets"]
        assert begin == expected, name
        expected = end
        dtype = _DTYPES[entry["dtype"]]
        if begin == end:
            tensors[name] = torch.empty(entry["shape"], dtype=dtype)
            continue
        flat = torch.frombuffer(data, dtype=torch.uint8, offset=8 + length + begin, count=end - begin)
        tensors[name] = flat.clone().view(dtype).reshape(entry["shape"])
    assert 8 + length + expected == len(data)
    return description, tensors


class LsmModel(nn.Module):
    """Computes the model that a .lsm file describes. `parameters_` and `buffers_` map names to tensors; tied tensors
    have one entry."""

    def __init__(self, path, device="cpu"):
        super().__init__()
        self.description, tensors = read_lsm(path)
        assert self.description["version"] == 1
        self.device = device
        self.parameters_, self.buffers_ = {}, {}
        for entry in self.description["parameters"]:
            if "same_as" not in entry:
                tensor = tensors.pop("state." + entry["name"]).to(device)
                self.parameters_[entry["name"]] = tensor.requires_grad_(entry["trainable"])
        for entry in self.description["buffers"]:
            if "same_as" not in entry:
                self.buffers_[entry["name"]] = tensors.pop("state." + entry["name"]).to(device)
        self.constants = {
            str(index): tensors.pop(f"constant.{index}").to(device) for index in range(self.description["constants"])
        }
        assert not tensors, sorted(tensors)

    def trainable(self):
        return {name: tensor for name, tensor in self.parameters_.items() if tensor.requires_grad}

    def forward(self, *inputs):
        graph = self.description["training" if self.training else "evaluation"]
        expected = self.description["inputs"]
        assert len(inputs) == len(expected) == len(graph["inputs"])
        batch = None
        for tensor, entry in zip(inputs, expected):
            assert str(tensor.dtype) == "torch." + entry["dtype"], entry
            shape = list(entry["shape"])
            if shape[0] == "batch":
                batch = batch or tensor.shape[0]
                shape[0] = batch
            assert list(tensor.shape) == shape, (entry, tensor.shape)
        low, high = graph["batch"]
        assert batch is None or low <= batch <= high
        return self._compute(graph, inputs)

    def loss(self, output, target):
        """Returns the loss that the file defines, for `output` and `target`."""
        entry = self.description["target"]
        assert str(target.dtype) == "torch." + entry["dtype"]
        assert [*target.shape] == [target.shape[0], *entry["shape"][1:]] and entry["shape"][0] == "batch"
        return self._compute(self.description["loss"], (output, target))

    def _compute(self, graph, inputs):
        values = {}

        def put(number, value):
            if number is not None:
                assert 0 <= number < graph["values"] and number not in values
                values[number] = value

        for number, tensor in zip(graph["inputs"], inputs):
            put(number, tensor)
        for kind, tensors in (("parameters", self.parameters_), ("buffers", self.buffers_), ("constants", self.constants)):
            for name, number in graph[kind].items():
                put(number, tensors[name])
        for node in graph["nodes"]:
            self._run(node, values, put)
        assert len(values) == graph["values"]
        return values[graph["output"]]

    def _run(self, node, values, put):
        if "sym" in node:
            args = [self._decode(arg, values) for arg in node["args"]]
            (out,) = node["out"]
            put(out, _SYMBOLIC[node["sym"]](*args))
            return
        name = node["op"] + (f".{node['overload']}" if node["overload"] else "")
        assert name in ALLOWED, name
        namespace, base = node["op"].split("::")
        op = getattr(getattr(getattr(torch.ops, namespace), base), node["overload"] or "default")
        schema = op._schema.arguments
        assert len(node["args"]) <= len(schema)
        args, kwargs = [], {}
        for argument, encoded in zip(schema, node["args"]):
            value = self._decode(encoded, values)
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        grad = torch.is_grad_enabled() and node.get("grad", True)
        with torch.set_grad_enabled(grad):
            if node.get("autocast", True):
                result = op(*args, **kwargs)
            else:
                with torch.autocast(torch.device(self.device).type, enabled=False):
                    result = op(*args, **kwargs)
        results = [] if not op._schema.returns else [result] if len(op._schema.returns) == 1 else list(result)
        assert len(results) == len(node["out"]), node
        for out, value in zip(node["out"], results):
            if isinstance(out, list):
                assert len(out) == len(value), node
                for inner, tensor in zip(out, value):
                    put(inner, tensor)
            else:
                put(out, value)

    def _decode(self, arg, values):
        if isinstance(arg, list):
            return [self._decode(element, values) for element in arg]
        if not isinstance(arg, dict):
            return arg
        ((kind, value),) = arg.items()
        if kind == "v":
            return values[value]
        if kind == "f":
            return float(value)
        if kind == "device":
            assert value == "input"
            return torch.device(self.device)
        assert kind in ("dtype", "layout", "memory_format"), arg
        return getattr(torch, value)
