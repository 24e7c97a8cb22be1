"""lockstep.export: traces a module in training mode and in evaluation mode, and writes the file.

Promise: the file holds all that training needs, and its only code is calls of the operations in operations.txt. The
module stays as it was: its weights, buffers and modes do not change. The file is written completely or not at all.

what can fail -> what the caller sees
  trace.py, graph.py or tensor_file.py fails -> ExportError, one line
  no parameter requires a gradient, or none reaches the output -> ExportError
  a parameter that requires a gradient has 16 bits -> ExportError
"""

import inspect
import json
import math
import os
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind
from torch.utils import _pytree

from lockstep.export import tensor_file
from lockstep.export.check import require_same, require_same_loss
from lockstep.export.errors import ExportError
from lockstep.export.graph import Converter, Graph, Node, State, Value, drop_unused, to_json, values_in
from lockstep.export.trace import trace, trace_loss

VERSION = 1
_BATCHES_TRIED = 64
_RECURRENT = {"lstm", "gru", "rnn_tanh", "rnn_relu"}
_LAST_LAYERS = {"linear", "addmm", "mm", "matmul", "conv1d", "conv2d", "conv3d", "conv_transpose2d", "convolution"}


def export(
    model: nn.Module,
    inputs: torch.Tensor | tuple | dict[str, Any],
    path: str | os.PathLike,
    *,
    name: str | None = None,
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
    target: torch.Tensor | None = None,
) -> None:
    """Writes `model` to the file `path` (FORMAT.md).

    `inputs` are an example of forward's arguments: one tensor, a tuple of positional arguments, or a dict of named
    arguments. Dimension 0 of the tensors is the batch, whose size is free in the file's graph; the other sizes and the
    dtypes of the inputs that the graph takes are those of the example. Other values (numbers, None) become constants.
    `name` is the name of the model in the file; by default it is the name of the module's class.

    The model's output is the tensor that forward returns, or else the attribute .logits of the returned object, the
    entry "logits" or "out" of a dict, or the first tensor of a tuple. Parameters that do not require a gradient stay
    frozen.

    `loss(output, target)` replaces the default loss of the config's data.task, in training and in validation. It
    returns one loss for each sample, [batch], or the mean of these losses. `target` is an example of the loss's
    targets, with as many samples as the inputs, or with one sample: int64 [batch] for classes, int64 [batch, height,
    width] for masks, float32 [batch, numbers] for regression. By default the targets are classes, int64, with the shape
    of the output without its class dimension, which is the last dimension if the output has three dimensions, and
    otherwise dimension 1.

    Throws ExportError.
    """
    path = os.fspath(path)
    tensor_file.require_replaceable(path)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ExportError("no parameter of the module requires a gradient")
    _require_float32(model)
    args, kwargs = _arguments(model, inputs)
    args, kwargs, batch = _with_batch(args, kwargs)

    state = _State(model)
    graphs, batches = {}, {}
    for mode, training in (("training", True), ("evaluation", False)):
        program = trace(model, args, kwargs, batch, training)
        graphs[mode] = _graph(program, state)
        batches[mode] = _batch_range(program)
        output = _require_floating_output(program)
    _require_gradient(graphs["training"], state)
    if loss is not None:
        pair = _loss_arguments(output, target, batch, next(model.parameters()).device)
        losses = trace_loss(loss, *pair, batch)
        graphs["loss"], batches["loss"] = _graph(losses, state), _batch_range(losses)
        if _require_floating_output(losses, "the loss").dim() > 1:
            raise ExportError("the loss returns neither one number for each sample nor their mean")

    description = {
        "version": VERSION,
        "name": name or type(model).__name__,
        "made_by": f"lockstep.export with torch {torch.__version__.partition('+')[0]}",
        "batch": batches["training"],
        "inputs": _describe_inputs(model, args, kwargs, batch),
        "parameters": state.describe_parameters(),
        "buffers": state.describe_buffers(),
        "constants": len(state.constants),
        "head": _head(graphs["training"], state),
        **{mode: {"batch": batches[mode]} | to_json(graph) for mode, graph in graphs.items()},
    }
    if loss is not None:
        description["target"] = _describe(pair[1], batch)
    require_same(model, args, kwargs, batch, description, state.tensors())
    if loss is not None:
        trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
        require_same_loss(loss, pair, batch, description["loss"], trainable, state.tensors())
    text = json.dumps(description, separators=(",", ":"), allow_nan=False)
    tensor_file.write(path, state.tensors(), {"format": "pt", "lockstep.model": text})


def _require_float32(model: nn.Module) -> None:
    """Throws ExportError if a weight that trains has 16 bits. An update smaller than half of a weight's last bit is lost,
    and with usual learning rates most updates are."""
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and parameter.dtype in (torch.bfloat16, torch.float16):
            raise ExportError(
                f"{name} has {str(parameter.dtype).removeprefix('torch.')}, in which most updates are lost: export "
                "model.float(); the config's precision still makes the operations compute in 16 bits"
            )


def _arguments(model: nn.Module, inputs: torch.Tensor | tuple | dict[str, Any]) -> tuple[tuple, dict[str, Any]]:
    """Returns the positional arguments, and the named arguments in the order of forward's signature."""
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    if isinstance(inputs, dict):
        names = [name for name in inspect.signature(model.forward).parameters if name in inputs]
        return (), {name: inputs[name] for name in [*names, *(name for name in inputs if name not in names)]}
    raise ExportError(f"inputs is a {type(inputs).__name__}: pass a tensor, a tuple or a dict of arguments by name")


def _with_batch(args: tuple, kwargs: dict[str, Any]) -> tuple[tuple, dict[str, Any], int]:
    """Returns the arguments, and their number of samples. An example of one sample is repeated, because torch.export
    treats a size of 1 as fixed. If other tensors hold several samples, a tensor whose dimension 0 has size 1 is shared
    by all samples."""
    tensors = [leaf for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    if not tensors:
        raise ExportError("inputs holds no tensor")
    if any(tensor.dim() == 0 or tensor.shape[0] == 0 for tensor in tensors):
        raise ExportError("inputs: each tensor has the samples in dimension 0, and at least one sample")
    batch = max(tensor.shape[0] for tensor in tensors)
    if any(tensor.shape[0] not in (batch, 1) for tensor in tensors):
        counts = ", ".join(str(tensor.shape[0]) for tensor in tensors)
        raise ExportError(f"inputs: the tensors hold different numbers of samples: {counts}")
    copies = 3 if batch == 1 else 1

    # Each tensor is copied, because torch.export treats a tensor that is passed twice as one input.
    def copied(value: Any) -> Any:
        return torch.cat([value] * copies) if isinstance(value, torch.Tensor) else value

    return _pytree.tree_map(copied, args), _pytree.tree_map(copied, kwargs), copies * batch


class _State:
    """The tensors that a file holds: parameters, buffers and constants."""

    def __init__(self, model: nn.Module):
        self.parameters = dict(model.named_parameters(remove_duplicate=False))
        self.buffers = dict(model.named_buffers(remove_duplicate=False))
        transient = {
            f"{prefix}.{name}" if prefix else name
            for prefix, module in model.named_modules(remove_duplicate=False)
            for name in module._non_persistent_buffers_set
        }
        self.persistent = {name: name not in transient for name in self.buffers}
        self.constants: list[torch.Tensor] = []
        self._first: dict[int, str] = {}
        for name, tensor in (self.parameters | self.buffers).items():
            self._first.setdefault(id(tensor), name)

    def first_name(self, name: str) -> str:
        """Returns the first of the names that the tensor `name` has. Only a tied tensor has several."""
        return self._first[id(self.parameters[name] if name in self.parameters else self.buffers[name])]

    def constant(self, tensor: torch.Tensor) -> int:
        """Returns the number of the constant with the values of `tensor`. Adds the constant if there is none yet."""
        for index, known in enumerate(self.constants):
            if known.dtype == tensor.dtype and known.shape == tensor.shape and torch.equal(known, tensor):
                return index
        self.constants.append(tensor)
        return len(self.constants) - 1

    def tensors(self) -> dict[str, torch.Tensor]:
        named = self.parameters | self.buffers
        state = {f"state.{name}": tensor for name, tensor in named.items() if self.first_name(name) == name}
        return state | {f"constant.{index}": tensor for index, tensor in enumerate(self.constants)}

    def describe_parameters(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "trainable": parameter.requires_grad} | self._tie(name)
            for name, parameter in self.parameters.items()
        ]

    def describe_buffers(self) -> list[dict[str, Any]]:
        return [{"name": name, "persistent": self.persistent[name]} | self._tie(name) for name in self.buffers]

    def _tie(self, name: str) -> dict[str, str]:
        first = self.first_name(name)
        return {} if first == name else {"same_as": first}


def _graph(program: ExportedProgram, state: _State) -> Graph:
    """Returns the graph of a traced module. Adds the graph's constants to `state`."""
    graph, values = Graph(), {}
    placeholders = [node for node in program.graph.nodes if node.op == "placeholder"]
    buffers: dict[str, Value] = {}
    for node, spec in zip(placeholders, program.graph_signature.input_specs, strict=True):
        if spec.kind is InputKind.USER_INPUT:
            if isinstance(node.meta.get("val"), torch.Tensor):
                values[node] = graph.new_value()
                graph.inputs.append(values[node])
            else:
                values[node] = node.meta.get("val")
        elif spec.kind is InputKind.PARAMETER:
            values[node] = graph.parameters.setdefault(state.first_name(spec.target), graph.new_value())
        elif spec.kind is InputKind.BUFFER and spec.target not in state.buffers:  # a loss's buffer, such as its weights
            known = program.state_dict if spec.target in program.state_dict else program.constants
            index = str(state.constant(known[spec.target]))
            values[node] = graph.constants.setdefault(index, graph.new_value())
        elif spec.kind is InputKind.BUFFER:
            values[node] = graph.buffers.setdefault(state.first_name(spec.target), graph.new_value())
        elif spec.kind is InputKind.CONSTANT_TENSOR:
            index = str(state.constant(program.constants[spec.target]))
            values[node] = graph.constants.setdefault(index, graph.new_value())
        else:
            raise ExportError(f"{spec.target or node.name} is an object of Python, which cannot be exported")
    outputs = Converter(graph).run(program.graph_module, values, State())
    for value, spec in zip(outputs, program.graph_signature.output_specs, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            graph.output = value
        elif spec.kind is OutputKind.BUFFER_MUTATION and spec.target in state.buffers:
            buffer = graph.buffers[state.first_name(spec.target)]
            out = graph.new_value()
            graph.nodes.append(
                Node("aten::copy_", [buffer, value, False], [out], True, State(grad=False), changed=[buffer])
            )
        else:
            raise ExportError(f"the module changes {spec.target or 'an input'} in a way that cannot be exported")
    if not isinstance(graph.output, Value):
        raise ExportError("the module's output does not depend on what it computes")
    drop_unused(graph)
    _require_constants_kept(graph)
    return graph


def _require_constants_kept(graph: Graph) -> None:
    constants = set(graph.constants.values())
    for node in graph.nodes:
        if constants.intersection(node.changed):
            raise ExportError(f"{node.line}: {node.name} changes a tensor of the module that is no buffer of it")


def _batch_range(program: ExportedProgram) -> list[int]:
    """Returns the smallest and the largest batch that the graph takes."""
    low, high = 1, 2**31 - 1
    for limits in program.range_constraints.values():
        low = max(low, int(limits.lower))
        if limits.upper <= high:  # the limit may be infinity, which is not an int
            high = int(limits.upper)
    return [_smallest_batch(program, low, high), high]


def _smallest_batch(program: ExportedProgram, low: int, high: int) -> int:
    """Returns the smallest batch from which on all guards of torch.export hold. A guard is a condition on the batch
    that torch.export has found, such as that the batch is even. The batches from `low` on are tried, at most
    _BATCHES_TRIED of them. Throws ExportError if the guards hold for none of them, or fail for one after the
    smallest."""
    guards = getattr(program, "_guards_code", None) or []
    last = min(high, low + _BATCHES_TRIED - 1)
    accepted = [batch for batch in range(low, last + 1) if all(_holds(guard, batch) for guard in guards)]
    if not accepted or accepted[-1] != last or last - accepted[0] >= len(accepted):
        few = ", ".join(str(batch) for batch in accepted[:4])
        raise ExportError(f"the module does not take any number of samples at a time, but {few or 'none'} ...")
    return accepted[0]


class _Sizes:
    """Stands for all inputs in a guard of torch.export. Guards ask only for the size of the batch."""

    def __init__(self, batch: int):
        self.batch = batch

    def __getitem__(self, _: Any) -> "_Sizes":
        return self

    def size(self) -> list[int]:
        return [self.batch]


def _holds(guard: str, batch: int) -> bool:
    """Returns whether a guard, an expression such as "L['x'].size()[0] <= 8", holds for a batch."""
    try:
        return bool(eval(guard, {"L": _Sizes(batch), "max": max, "min": min, "math": math, "torch": torch}))
    except Exception:
        return False


def _loss_arguments(
    output: torch.Tensor, target: torch.Tensor | None, batch: int, device: torch.device
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns examples of a loss's arguments, output and target. `output` is a fake tensor with a symbolic batch
    size."""
    shape = [batch, *(int(size) for size in output.shape[1:])]
    if target is None:
        if len(shape) < 2:
            raise ExportError("the loss: give an example of its target")
        dropped = 2 if len(shape) == 3 else 1
        target = torch.randint(shape[dropped], [size for d, size in enumerate(shape) if d != dropped])
    if target.dim() == 0 or target.shape[0] not in (1, batch):
        raise ExportError(f"target: it has the samples in dimension 0, {batch} of them or one")
    if target.shape[0] != batch:
        target = torch.cat([target] * batch)
    return torch.rand(shape, dtype=output.dtype, device=device).requires_grad_(), target.clone().to(device)


def _require_floating_output(program: ExportedProgram, what: str = "the module") -> torch.Tensor:
    output = next(node for node in program.graph.nodes if node.op == "output")
    for node, spec in zip(output.args[0], program.graph_signature.output_specs, strict=True):
        if spec.kind is OutputKind.USER_OUTPUT:
            value = node.meta["val"] if isinstance(node, torch.fx.Node) else node
            if not isinstance(value, torch.Tensor) or not value.is_floating_point():
                raise ExportError(f"{what} returns {getattr(value, 'dtype', value)} where floats are expected")
            return value
    raise ExportError(f"{what} returns nothing")


def _require_gradient(graph: Graph, state: _State) -> None:
    """Checks that a gradient flows from the output to a trainable parameter. Throws ExportError if none does."""
    reached = {value for name, value in graph.parameters.items() if state.parameters[name].requires_grad}
    for node in graph.nodes:
        if node.state.grad and not node.name.startswith("aten::detach"):
            if any(value in reached for value in values_in(node.args)):
                reached.update(values_in(node.outs))
                reached.update(node.changed)
    if graph.output not in reached:
        raise ExportError(
            "no gradient reaches the module's parameters: it detaches its output or computes it without them"
        )


def _describe_inputs(model: nn.Module, args: tuple, kwargs: dict[str, Any], batch: int) -> list[dict[str, Any]]:
    """Returns name, dtype and shape of each input tensor, in the order of the graphs' inputs."""
    names = list(inspect.signature(model.forward).parameters)
    described = []
    for keys, value in _pytree.tree_flatten_with_path((args, kwargs))[0]:
        if not isinstance(value, torch.Tensor):
            continue
        kind, first, *rest = (getattr(key, "idx", getattr(key, "key", None)) for key in keys)
        name = (names[first] if first < len(names) else f"input{first}") if kind == 0 else first
        described.append({"name": ".".join(str(part) for part in (name, *rest))} | _describe(value, batch))
    return described


def _describe(value: torch.Tensor, batch: int) -> dict[str, Any]:
    shape: list[int | str] = list(value.shape)
    if shape[0] == batch:
        shape[0] = "batch"
    return {"dtype": str(value.dtype).removeprefix("torch."), "shape": shape}


def _weights_of(graph: Graph) -> dict[Value, list[str]]:
    """Returns, for each value that depends on no input, the names of the parameters that it is computed from."""
    names = {value: [name] for name, value in graph.parameters.items()}
    names |= {value: [] for value in (*graph.buffers.values(), *graph.constants.values())}
    for node in graph.nodes:
        parts = list(values_in(node.args))
        if all(part in names for part in parts):
            made = list(dict.fromkeys(name for part in parts for name in names[part]))
            names |= {out: made for out in values_in(node.outs)}
    return names


def _head(graph: Graph, state: _State) -> list[str]:
    """Returns the name prefixes of the layers that compute the output: the first linear layers or convolutions on the
    way back from the output. Returns an empty list if such a layer shares its weight or is recurrent, or if one of its
    parameters has no module of its own."""
    makers = {out: node for node in graph.nodes for out in values_in(node.outs)}
    weights = _weights_of(graph)
    shared = {state.first_name(name) for name in state.parameters if state.first_name(name) != name}
    prefixes, seen, ahead = [], set(), [graph.output]
    while ahead:
        node = makers.get(ahead.pop(0))
        if node is None or id(node) in seen:
            continue
        seen.add(id(node))
        kind = node.name.removeprefix("aten::").partition(".")[0]
        if kind in _RECURRENT:
            return []
        own = []
        if kind in _LAST_LAYERS:
            # The weight may be computed from parameters, as by weight_norm.
            own = list(dict.fromkeys(name for value in values_in(node.args) for name in weights.get(value, [])))
        if own:
            for name in own:
                prefix = name.rpartition(".")[0]
                if name in shared or not prefix:
                    return []
                if prefix + "." not in prefixes:
                    prefixes.append(prefix + ".")
            continue
        ahead += values_in(node.args)
    return prefixes
