"""Converts a graph that torch.export traced into the JSON of an .lsm file (../../FORMAT.md, 'A graph').

The graph is torch.export's training IR: the ATen operations that the module called, in the order of the calls,
including in-place operations and composite ones (conv2d, layer_norm, scaled_dot_product_attention). In-place changes
stay in-place changes, so that buffers are updated when the operations run. Regions under torch.no_grad() and
torch.autocast(enabled=False) are written inline, and each of their nodes says in which of these states it runs.

Two kinds of operations are left out: those that only check or mark something, and those whose result is not used,
unless they change a tensor or draw a random number.
"""

import math
import operator
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from lockstep.export import operations
from lockstep.export.errors import ExportError, is_users_file

Json = Any
# Cures for operations that cannot be exported.
_CURES = {
    "aten::histc": ": a mixture of experts of transformers can after model.set_experts_implementation('batched_mm')",
}
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')


@dataclass(frozen=True)
class State:
    """The grad and autocast state of the thread in which a node runs."""

    grad: bool = True
    autocast: bool = True


@dataclass(frozen=True)
class Value:
    """A tensor or symbolic number that a node computes."""

    id: int


@dataclass
class Node:
    """A call of an operation. `outs` has one element for each result: a value, or a list of values for a list of
    tensors."""

    name: str  # "aten::add.Tensor", or "sym.add"
    args: list[Json]  # JSON, with Value where the file has {"v": id}
    outs: list[Value | list[Value]]
    effect: bool  # whether it changes a tensor or draws a random number
    state: State
    module: str = ""
    line: str = ""
    changed: list[Value] = field(default_factory=list)  # the tensors that the operation changes in place


@dataclass
class Graph:
    """A graph before unused nodes are dropped and values are numbered."""

    inputs: list[Value] = field(default_factory=list)
    parameters: dict[str, Value] = field(default_factory=dict)
    buffers: dict[str, Value] = field(default_factory=dict)
    constants: dict[str, Value] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    output: Value | None = None
    made: int = 0

    def new_value(self) -> Value:
        self.made += 1
        return Value(self.made)


def place_of(node: fx.Node) -> str:
    """Returns the line of the user's code that called a node, such as "net.py:12". If no such line is known,
    returns a line of torch's code, or ""."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    of_user = [frame for frame in frames if is_users_file(frame[0])]
    path, line = (of_user or frames or [("", "")])[-1]
    return f"{os.path.basename(path)}:{line}" if path else ""


def _module_of(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack")
    return re.sub(r"@\d+", "", list(stack.values())[-1][0]) if stack else ""


def _at(node: fx.Node) -> str:
    place = place_of(node)
    return f"{place}: " if place else ""


def _tensors_in(value: Any) -> Iterable[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for element in value:
            yield from _tensors_in(element)


def values_in(arg: Json) -> Iterable[Value]:
    """Yields the values in an argument, which may be a list."""
    if isinstance(arg, Value):
        yield arg
    elif isinstance(arg, list):
        for element in arg:
            yield from values_in(element)


class Converter:
    """Appends the nodes of a traced graph, and of the regions in it, to a Graph."""

    def __init__(self, graph: Graph):
        self.graph = graph

    def run(self, module: fx.GraphModule, values: dict[fx.Node, Any], state: State) -> Any:
        """Appends the module's nodes, and returns the module's output. `values` holds the values of the
        placeholders."""
        for node in module.graph.nodes:
            if node.op == "placeholder":
                continue
            if node.op == "output":
                return fx.map_arg(node.args[0], lambda used: values[used])
            if node.op == "get_attr":
                values[node] = operator.attrgetter(node.target)(module)
                if not isinstance(values[node], fx.GraphModule):
                    raise ExportError(f"{_at(node)}the tensor {node.target} is not known to the export")
                continue
            values[node] = self._call(node, values, state)
        raise AssertionError("a graph without an output")

    def _call(self, node: fx.Node, values: dict[fx.Node, Any], state: State) -> Any:
        target = node.target
        if target is operator.getitem:
            return values[node.args[0]][node.args[1]]
        if target in operations.SYMBOLIC:
            return self._symbolic(node, values, state)
        if isinstance(target, torch._ops.HigherOrderOperator):
            return self._region(node, values, state)
        if not isinstance(target, torch._ops.OpOverload):
            if not node.users:
                return None  # a guard of torch.export
            raise ExportError(f"{_at(node)}{getattr(target, '__name__', target)} cannot be exported")
        if operations.full_name(target) in operations.CHECKS:
            return None
        return self._operation(node, values, state)

    def _symbolic(self, node: fx.Node, values: dict[fx.Node, Any], state: State) -> Value:
        args = [self._plain(node, argument, values) for argument in node.args]
        out = self.graph.new_value()
        name = "sym." + operations.SYMBOLIC[node.target]
        self.graph.nodes.append(Node(name, args, [out], False, state, _module_of(node), place_of(node)))
        return out

    def _region(self, node: fx.Node, values: dict[fx.Node, Any], state: State) -> Any:
        name = node.target.name()
        if name == "wrap_with_set_grad_enabled":
            enabled, body, *args = node.args
            state = replace(state, grad=enabled)
        elif name == "wrap_with_autocast":
            _, _, enabled, _, body, *args = node.args
            if enabled:
                inner = next((inner for inner in values[body].graph.nodes if place_of(inner)), node)
                raise ExportError(f"{_at(inner)}the module enables autocast itself: the training config decides that")
            state = replace(state, autocast=False)
        else:
            raise ExportError(f"{_at(node)}{name} cannot be exported")
        module = values[body]
        placeholders = [inner for inner in module.graph.nodes if inner.op == "placeholder"]
        passed = [values[arg] if isinstance(arg, fx.Node) else arg for arg in args]
        return self.run(module, dict(zip(placeholders, passed, strict=True)), state)

    def _operation(self, node: fx.Node, values: dict[fx.Node, Any], state: State) -> Any:
        op, schema = node.target, node.target._schema
        name = operations.full_name(op)
        if any(tensor.is_complex() for tensor in _tensors_in(node.meta.get("val"))):
            raise ExportError(f"{_at(node)}{name} computes complex numbers, which cannot be exported")
        if any(tensor.layout != torch.strided for tensor in _tensors_in(node.meta.get("val"))):
            raise ExportError(f"{_at(node)}{name} computes a sparse tensor, which cannot be exported")
        if any(free_unbacked_symbols(tensor) for tensor in _tensors_in(node.meta.get("val"))):
            raise ExportError(f"{_at(node)}{name} returns a tensor whose size depends on values")
        if name in ("aten::item", "aten::_local_scalar_dense"):
            raise ExportError(f"{_at(node)}{name} reads a value of a tensor, which a graph cannot")
        if name not in operations.allowed():
            raise ExportError(f"{_at(node)}{name} is not among the operations that can be exported{_CURES.get(name, '')}")
        args = []
        for index, argument in enumerate(schema.arguments):
            if not argument.kwarg_only and index < len(node.args):
                value = node.args[index]
            elif argument.name in node.kwargs:
                value = node.kwargs[argument.name]
            else:
                value = argument.default_value if argument.has_default_value() else None
            args.append(self._argument(node, argument.real_type, value, values))

        results = node.meta.get("val")
        if isinstance(results, torch.Tensor) and not any("Tensor" in str(a.real_type) for a in schema.arguments):
            # An operation without tensor arguments, such as arange, runs on the model's device, with the dtype that its
            # result had in the trace.
            given = {"dtype": {"dtype": str(results.dtype).removeprefix("torch.")}, "device": {"device": "input"}}
            for index, argument in enumerate(schema.arguments):
                if args[index] is None and argument.name in given:
                    args[index] = given[argument.name]
        if not schema.returns:
            outs, answer = [], None
        elif len(schema.returns) == 1:
            answer = self._new_result(results)
            outs = [answer]
        else:
            outs = answer = [self._new_result(result) for result in results]
        effect = schema.is_mutable or torch.Tag.nondeterministic_seeded in op.tags
        changed = [
            value
            for argument, arg in zip(schema.arguments, args, strict=True)
            if argument.alias_info is not None and argument.alias_info.is_write
            for value in values_in(arg)
        ]
        self.graph.nodes.append(Node(name, args, outs, effect, state, _module_of(node), place_of(node), changed))
        return answer

    def _new_result(self, result: Any) -> Value | list[Value]:
        if isinstance(result, (list, tuple)):
            return [self.graph.new_value() for _ in result]
        return self.graph.new_value()

    def _argument(self, node: fx.Node, kind: torch._C.Type, value: Any, values: dict[fx.Node, Any]) -> Json:
        """Converts an argument to the type in the schema, so that floats stay floats and lists stay lists."""
        if isinstance(kind, torch._C.OptionalType):
            return None if value is None else self._argument(node, kind.getElementType(), value, values)
        if isinstance(kind, torch._C.ListType):
            if not isinstance(value, (list, tuple)):
                raise ExportError(f"{_at(node)}{operations.full_name(node.target)} has an argument that is no list")
            return [self._argument(node, kind.getElementType(), element, values) for element in value]
        if isinstance(kind, torch._C.FloatType) and isinstance(value, int):
            value = float(value)
        return self._plain(node, value, values)

    def _plain(self, node: fx.Node, value: Any, values: dict[fx.Node, Any]) -> Json:
        if isinstance(value, fx.Node):
            value = values[value]
            if isinstance(value, Value) or value is None:
                return value
            if isinstance(value, list):
                return value
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return {"f": value if math.isfinite(value) else str(value)}
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": "input"}
        if isinstance(value, torch.layout):
            return {"layout": str(value).removeprefix("torch.")}
        if isinstance(value, torch.memory_format):
            return {"memory_format": str(value).removeprefix("torch.")}
        if isinstance(value, complex):
            raise ExportError(f"{_at(node)}complex numbers cannot be exported")
        raise ExportError(f"{_at(node)}an argument of type {type(value).__name__} cannot be exported")


def drop_unused(graph: Graph) -> None:
    """Drops the nodes that have no effect and on which neither the output nor a node with an effect depends. Also drops
    the names of parameters, buffers and constants that no remaining node uses."""
    used = {graph.output}
    kept = []
    for node in reversed(graph.nodes):
        if node.effect or any(out in used for out in values_in(node.outs)):
            kept.append(node)
            used.update(values_in(node.args))
    graph.nodes = kept[::-1]
    for places in (graph.parameters, graph.buffers, graph.constants):
        for name in [name for name, value in places.items() if value not in used]:
            del places[name]


def to_json(graph: Graph) -> Json:
    """Returns the graph in the form that FORMAT.md describes. Values are numbered from 0 in the order of definition."""
    numbers: dict[Value, int] = {}
    used = {graph.output}.union(*(set(values_in(node.args)) for node in graph.nodes))

    def number(value: Value) -> int:
        return numbers.setdefault(value, len(numbers))

    def encoded(arg: Json) -> Json:
        if isinstance(arg, Value):
            return {"v": numbers[arg]}
        return [encoded(element) for element in arg] if isinstance(arg, list) else arg

    def result(out: Value | list[Value]) -> Json:
        if isinstance(out, list):
            return [result(element) for element in out]
        return number(out) if out in used else None

    def placed(places: dict[str, Value]) -> dict[str, int]:
        return {name: number(value) for name, value in places.items()}

    head = {
        "inputs": [number(value) if value in used else None for value in graph.inputs],
        "parameters": placed(graph.parameters),
        "buffers": placed(graph.buffers),
        "constants": placed(graph.constants),
    }
    nodes = []
    for node in graph.nodes:
        namespace, _, name = node.name.partition("::")
        entry: dict[str, Json] = {}
        if name:
            base, _, overload = name.partition(".")
            entry |= {"op": f"{namespace}::{base}", "overload": overload}
        else:
            entry["sym"] = node.name.removeprefix("sym.")
        entry["args"] = encoded(node.args)
        entry["out"] = result(node.outs)
        if not node.state.grad:
            entry["grad"] = False
        if not node.state.autocast:
            entry["autocast"] = False
        if name:
            entry |= {"module": node.module, "line": node.line}
        nodes.append(entry)
    return {"values": len(numbers), **head, "nodes": nodes, "output": numbers[graph.output]}
