"""Compares the graphs of an export with the module that they were traced from.

torch.export records only operations. Other effects of a forward are lost without an error: the backward of an
autograd.Function, a hook that changes a gradient, torch.inference_mode(), a Python counter, a random number of Python,
or a branch for a batch of one sample. A graph without these effects would train to other weights than the module. So
hidden_state.py looks for what the module keeps in Python. Then each graph and the module run here from the same state
and the same seed, once with several samples and once with one sample: the outputs, gradients and buffers must agree.

Promise: after the check the module's parameters, gradients and buffers and torch's random number generators are
unchanged.

what can fail -> what the caller sees
  the module itself fails, for example in a backward -> ExportError with its reason
  the module or the loss has hidden state -> the ExportError of hidden_state.py
  the graph gives another result -> ExportError that says what differs, and what the likely cause is
  one sample alone fails, or gives another result -> the graph takes only batches of two samples or more
"""

import math
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree

from lockstep.export import hidden_state
from lockstep.export.errors import ExportError, first_line, users_line
from lockstep.export.trace import module_mode, select_output, taking_batches_of_one

Json = Any
_SEED = 1
# The relative tolerances by dtype; other dtypes have the tolerance 1e-3. Graph and module call the same operations in
# the same order, so results differ only where a GPU uses atomics, or where weights have another memory layout.
_TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 5e-2}
_NUMBERS: dict[str, Callable] = {
    "size": lambda tensor, dimension: tensor.size(dimension),
    "stride": lambda tensor, dimension: tensor.stride(dimension),
    "numel": lambda tensor: tensor.numel(),
    "ceil": math.ceil,
    "floor": math.floor,
    "trunc": math.trunc,
    "float": float,
    "sqrt": math.sqrt,
    "min": min,
    "max": max,
    "not": operator.not_,
    "ite": lambda condition, yes, no: yes if condition else no,
} | {name: getattr(operator, name) for name in "add sub mul floordiv truediv mod neg pow eq ne lt le gt ge".split()}


class Runner:
    """Calls the operations of a graph, which FORMAT.md describes, with torch."""

    def __init__(self, graph: Json, tensors: Mapping[str, torch.Tensor], device: torch.device):
        """Keeps its arguments. `tensors` are the tensors of the .lsm file, by their names in the file."""
        self.graph, self.tensors, self.device = graph, tensors, device

    def __call__(self, inputs: list[torch.Tensor]) -> torch.Tensor:
        graph = self.graph
        values: dict[int | None, Any] = dict(zip(graph["inputs"], inputs, strict=True))
        for prefix, kind in (("state.", "parameters"), ("state.", "buffers"), ("constant.", "constants")):
            values |= {number: self.tensors[prefix + name] for name, number in graph[kind].items()}
        for node in graph["nodes"]:
            self._run(node, values)
        return values[graph["output"]]

    def _run(self, node: Json, values: dict[int | None, Any]) -> None:
        args = [self._decode(arg, values) for arg in node["args"]]
        if "sym" in node:
            values[node["out"][0]] = _NUMBERS[node["sym"]](*args)
            return
        op = getattr(getattr(torch.ops.aten, node["op"].removeprefix("aten::")), node["overload"] or "default")
        named = {a.name: arg for a, arg in zip(op._schema.arguments, args) if a.kwarg_only}
        plain = [arg for a, arg in zip(op._schema.arguments, args) if not a.kwarg_only]
        with torch.set_grad_enabled(node.get("grad", True)):
            result = op(*plain, **named)
        results = [] if not op._schema.returns else [result] if len(op._schema.returns) == 1 else result
        for out, made in zip(node["out"], results, strict=True):
            values.update(zip(out, made, strict=True) if isinstance(out, list) else [(out, made)])

    def _decode(self, arg: Json, values: dict[int | None, Any]) -> Any:
        if isinstance(arg, list):
            return [self._decode(element, values) for element in arg]
        if not isinstance(arg, dict):
            return arg
        ((kind, value),) = arg.items()
        if kind == "v":
            return values[value]
        if kind == "f":
            return float(value)
        return self.device if kind == "device" else getattr(torch, value)


def require_same(
    model: nn.Module,
    args: tuple,
    kwargs: dict[str, Any],
    batch: int,
    description: Json,
    tensors: Mapping[str, torch.Tensor],
) -> None:
    """Checks that the graphs of `description` compute the same as `model`, and otherwise throws ExportError. If a graph
    is right for several samples but not for one, sets the smallest batch of the graph to two. `args` and `kwargs` hold
    `batch` samples."""
    device = next(model.parameters()).device
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _require_no_hidden_state(model, args, kwargs, batch)
        _require_same(model, args, kwargs, batch, description, lambda graph: Runner(graph, tensors, device))
    description["batch"] = description["training"]["batch"]


def require_same_loss(
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    example: tuple[torch.Tensor, torch.Tensor],
    batch: int,
    graph: Json,
    parameters: list[nn.Parameter],
    tensors: Mapping[str, torch.Tensor],
) -> None:
    """Checks that `graph` gives the same loss and the same gradient as `loss`, and that `loss` itself uses no
    parameters of the module, because the graph would hold them as constants. Throws ExportError if one of these checks
    fails. `example` holds `batch` samples."""
    def call() -> dict[str, torch.Tensor]:
        (output, target), _ = _samples(example, {}, batch, batch)
        with torch.random.fork_rng([]):
            torch.manual_seed(_SEED)
            return {"value": loss(output, target).detach()}

    hidden_state.require_none(loss, {"the loss: ": call}, lambda ours, theirs: _difference_of(ours, theirs)[0])
    low, high = graph["batch"]
    for count in {batch, batch + 1}:
        if not low <= count <= high:
            continue
        (output, target), _ = _samples(example, {}, batch, count)
        found = []
        with torch.random.fork_rng([]):
            for call in (loss, lambda *pair: Runner(graph, tensors, output.device)(list(pair))):
                torch.manual_seed(_SEED)
                own = output.clone().requires_grad_()
                value = call(own, target)
                gradient, others = None, []
                if value.requires_grad:
                    gradient, *others = torch.autograd.grad(value.float().sum(), [own, *parameters], allow_unused=True)
                if gradient is None:
                    raise ExportError("the loss gives no gradient to the output")
                if any(other is not None for other in others):
                    raise ExportError("the loss uses parameters of the module: only its output and the target may be")
                found.append((value.detach(), gradient))
        for name, theirs, ours in zip(("value", "gradient"), *found):
            if _distance(ours, theirs, 0.0) > _TOLERANCE.get(theirs.dtype, 1e-3):
                raise ExportError(f"the loss: the {name} of its graph differs from the function's")


def _require_same(
    model: nn.Module,
    args: tuple,
    kwargs: dict[str, Any],
    batch: int,
    description: Json,
    runner_of: Callable[[Json], Runner],
) -> None:
    for mode, training in (("training", True), ("evaluation", False)):
        graph = description[mode]
        low, high = graph["batch"]
        runner = runner_of(graph)
        # If the graph takes other numbers of samples, the check uses another number than the trace.
        count = next((n for n in (batch + 1, batch - 1, batch) if max(low, 2) <= n <= high), batch)
        difference = _difference(model, *_samples(args, kwargs, batch, count), training, runner)
        if difference:
            raise ExportError(difference)
        if low == 1:
            try:
                difference = _difference(model, *_samples(args, kwargs, batch, 1), training, runner)
            except ExportError:
                difference = "fails"
            if difference:
                graph["batch"] = [2, high]


def _samples(args: tuple, kwargs: dict[str, Any], batch: int, count: int) -> tuple[tuple, dict[str, Any]]:
    """Returns the same arguments with `count` samples instead of `batch`."""

    def resized(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        if value.shape[0] != batch:
            return value.detach().clone()
        rows = torch.arange(count, device=value.device) % batch
        return value.detach()[rows].contiguous()

    return _pytree.tree_map(resized, (args, kwargs))


def _difference(model: nn.Module, args: tuple, kwargs: dict[str, Any], training: bool, runner: Runner) -> str:
    """Returns a message for the user that says how the module and the graph differ; "" if they do not."""
    mode = "training" if training else "evaluation"
    inputs = [leaf.clone() for leaf in _pytree.tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
    parameters = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
    with _noting_functions() as functions, module_mode(model, training), taking_batches_of_one():
        try:
            theirs = _call(model, lambda: select_output(model(*args, **kwargs)), parameters, training)
        except ExportError:
            raise
        except Exception as error:
            place = users_line(error.__traceback__)
            place += ": " if place else ""
            raise ExportError(f"{place}in {mode}, the module fails: {first_line(error)}") from error
        try:
            ours = _call(model, lambda: runner(inputs), parameters, training)
        except Exception as error:
            raise ExportError(f"in {mode}, the exported graph fails: {first_line(error)}") from error
    name, error = _difference_of(ours, theirs)
    what = f"in {mode}, the {name} of the graph differs from the module's by {error:.2g} of its size: "
    if name.startswith("gradient") and functions:
        return f"{what}the backward of {' and '.join(functions)} is not part of a graph"
    if name.startswith("gradient"):
        return f"{what}hooks, inference_mode and a backward of the module's own are not part of a graph"
    return f"{what}a graph does the same in each call, whatever Python does" if name else ""


def _difference_of(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> tuple[str, float]:
    """Returns the name of the first of `theirs` from which `ours` differs, and by how much; "" if they agree."""
    largest = max((_size(tensor) for name, tensor in theirs.items() if name.startswith("gradient")), default=0.0)
    for name, expected in theirs.items():
        error = _distance(ours.get(name), expected, 1e-5 * largest if name.startswith("gradient") else 0.0)
        if error > _TOLERANCE.get(expected.dtype, 1e-3):
            return name, error
    return "", 0.0


def _call(
    model: nn.Module,
    call: Callable[[], torch.Tensor],
    parameters: dict[str, nn.Parameter],
    training: bool,
) -> dict[str, torch.Tensor]:
    """Returns the results of a step, and what it makes of the module's buffers, which are restored."""
    with _restoring(model) as buffers:
        results = _step(call, parameters, training)
        return results | {f"buffer {name}": tensor.clone() for name, tensor in buffers().items()}


def _require_no_hidden_state(model: nn.Module, args: tuple, kwargs: dict[str, Any], batch: int) -> None:
    parameters = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}

    def call_in(training: bool) -> Callable[[], dict[str, torch.Tensor]]:
        def call() -> dict[str, torch.Tensor]:
            own_args, own_kwargs = _samples(args, kwargs, batch, batch)
            with module_mode(model, training), taking_batches_of_one():
                return _call(model, lambda: select_output(model(*own_args, **own_kwargs)), parameters, training)

        return call

    calls = {"in training, ": call_in(True), "in evaluation, ": call_in(False)}
    hidden_state.require_none(model, calls, lambda ours, theirs: _difference_of(ours, theirs)[0])


def _step(
    call: Callable[[], torch.Tensor], parameters: dict[str, nn.Parameter], training: bool
) -> dict[str, torch.Tensor]:
    """Returns the output and, in training, the gradients of a sum of the output's elements with random weights."""
    torch.manual_seed(_SEED)
    with torch.enable_grad():
        output = call()
        result = {"output": output.detach().clone()}
        if training:
            torch.manual_seed(_SEED)
            weights = torch.randn(output.shape, device=output.device)
            total = (output.float() * weights).sum()
            gradients = torch.autograd.grad(total, list(parameters.values()), allow_unused=True)
            for name, gradient in zip(parameters, gradients):
                if gradient is not None:
                    result[f"gradient of {name}"] = gradient
    return result


@contextmanager
def _restoring(model: nn.Module) -> Iterator[Callable[[], dict[str, torch.Tensor]]]:
    """Restores the module's buffers and torch's random number generators at the end. Yields a function that returns
    the buffers by name."""
    kept = [(module, name, buffer, buffer.detach().clone()) for module in model.modules()
            for name, buffer in module._buffers.items() if buffer is not None]  # fmt: skip
    devices = {p.device for p in model.parameters() if p.device.type == "cuda"}
    with torch.random.fork_rng(list(devices)):
        try:
            yield lambda: dict(model.named_buffers())
        finally:
            with torch.no_grad():
                for module, name, buffer, values in kept:
                    if buffer.requires_grad:
                        buffer.detach_()
                    buffer.copy_(values)
                    module._buffers[name] = buffer


@contextmanager
def _noting_functions() -> Iterator[list[str]]:
    """Yields a list of the user's autograd.Functions that have run, such as "STE (net.py:12)"."""
    functions: list[str] = []
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls: type, *args: Any, **kwargs: Any) -> Any:
        place = users_line()
        if not cls.__module__.startswith("torch.") and (text := f"{cls.__name__} ({place})") not in functions:
            functions.append(text)
        return original.__get__(None, cls)(*args, **kwargs)

    torch.autograd.Function.apply = classmethod(apply)
    try:
        yield functions
    finally:
        torch.autograd.Function.apply = original


def _size(tensor: torch.Tensor) -> float:
    """Returns the largest absolute value of the finite elements."""
    if tensor.numel() == 0:
        return 0.0
    return torch.nan_to_num(tensor.detach().double().abs(), 0.0, 0.0, 0.0).max().item()


def _distance(ours: torch.Tensor | None, theirs: torch.Tensor, floor: float) -> float:
    """Returns the largest absolute difference of `ours` from `theirs`, divided by the largest absolute value in
    `theirs`, or by `floor` if that value is less. NaN equals NaN. Returns infinity if the shapes or dtypes differ."""
    if ours is None or ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return math.inf
    ours, theirs = ours.detach().double(), theirs.detach().double()
    differs = (ours != theirs) & ~(ours.isnan() & theirs.isnan())
    if not differs.any():
        return 0.0
    error = (ours - theirs).abs()[differs].max().item()
    return error / max(_size(theirs), floor, 1e-12) if math.isfinite(error) else math.inf
