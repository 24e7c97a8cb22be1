"""Traces a module with torch.export, with a symbolic batch size. If tracing fails, ExportError says in one line why.

what can fail -> what the caller sees (ExportError, with the line of the user's code where it is known)
  the module's forward raises an exception -> its text
  control flow, or a size, that depends on a tensor's values; Tensor.item() -> 'depends on values'
  the batch must have one size (a reshape to a fixed count, a size that Python's int() read) -> 'fixed batch'
  print() in forward -> 'prints'
"""

import builtins
import functools
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn
from torch.export import Dim, ExportedProgram

from lockstep.export.errors import ExportError, first_line, is_users_file, users_line

_LARGEST_BATCH = 2**31 - 1


def select_output(output: Any) -> torch.Tensor:
    """Returns the tensor that the loss reads: the output itself if it is a tensor; .logits of an object; "logits" or
    "out" of a dict; otherwise the first tensor of a tuple or list. Throws ExportError if there is none."""
    if isinstance(output, torch.Tensor):
        return output
    if isinstance(getattr(output, "logits", None), torch.Tensor):
        return output.logits
    if isinstance(output, Mapping):
        for key in ("logits", "out"):
            if isinstance(output.get(key), torch.Tensor):
                return output[key]
    if isinstance(output, (tuple, list)):
        for element in output:
            if isinstance(element, torch.Tensor):
                return element
    raise ExportError(
        f"the module returns a {type(output).__name__} in which there is no output: return a tensor, an object with "
        '.logits, a dict with "logits" or "out", or a tuple'
    )


@contextmanager
def _selecting(model: nn.Module) -> Iterator[None]:
    """Makes model.forward return only the tensor of select_output()."""
    forward = model.forward

    @functools.wraps(forward)
    def selected(*args: Any, **kwargs: Any) -> torch.Tensor:
        return select_output(forward(*args, **kwargs))

    own = model.__dict__.get("forward")
    model.forward = selected
    try:
        yield
    finally:
        if own is None:
            del model.forward
        else:
            model.forward = own


@contextmanager
def _refusing_prints() -> Iterator[None]:
    """Makes print() in the user's code raise an exception, because a print() would run during the trace and never
    again."""
    original = builtins.print

    def refused(*args: Any, **kwargs: Any) -> None:
        frame = sys._getframe(1)
        if not is_users_file(frame.f_code.co_filename):
            return  # torch.export prints the graph in which it failed
        if kwargs.get("file") is None:
            raise ExportError("the module prints, and a graph cannot: remove the print()")
        original(*args, **kwargs)

    builtins.print = refused
    try:
        yield
    finally:
        builtins.print = original


@contextmanager
def _as_under_autocast() -> Iterator[None]:
    """Makes the trace contain the regions that models of the library transformers compute in float32 under autocast,
    such as rotary embeddings. transformers' maybe_autocast(enabled=False) creates such a region only if autocast is
    on."""
    original = torch.is_autocast_enabled

    def enabled(*args: Any, **kwargs: Any) -> bool:
        return sys._getframe(1).f_code.co_name == "maybe_autocast" or original(*args, **kwargs)

    torch.is_autocast_enabled = enabled
    try:
        yield
    finally:
        torch.is_autocast_enabled = original


@contextmanager
def taking_batches_of_one() -> Iterator[None]:
    """Makes it possible to trace BatchNorm for any number of samples. torch.nn raises an exception if a channel has
    only one value, because one value has no variance. While this context manager is active, torch.nn's check is off.
    Lockstep makes this check itself in training, where ranks may share a batch."""
    functional = torch.nn.functional
    original = functional._verify_batch_size
    functional._verify_batch_size = lambda size: None
    try:
        yield
    finally:
        functional._verify_batch_size = original


@contextmanager
def module_mode(model: nn.Module, training: bool) -> Iterator[None]:
    """Sets the module's mode, and restores the mode of each submodule afterwards. In evaluation mode some models
    (timm's LeViT) compute tensors and cache them until train() is called. The calls of train() here discard the tensors
    that were cached before the trace, so that they do not get into the graph, and those that were cached during the
    trace."""
    modes = [(module, module.training) for module in model.modules()]
    model.train()
    model.train(training)
    try:
        yield
    finally:
        model.train()
        for module, mode in modes:
            module.training = mode


@contextmanager
def _noting_fixed_sizes(places: list[str]) -> Iterator[None]:
    """Records the lines of the user's code at which torch.export finds that a symbolic size must be one number."""
    environment = torch.fx.experimental.symbolic_shapes.ShapeEnv
    original = getattr(environment, "_set_replacement", None)
    if original is None:  # another version of torch: the error does not name a line
        yield
        return

    @functools.wraps(original)
    def noting(self: Any, symbol: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
        if getattr(target, "is_number", False):
            places.append(users_line())
        return original(self, symbol, target, *args, **kwargs)

    environment._set_replacement = noting
    try:
        yield
    finally:
        environment._set_replacement = original


def _explain(error: Exception) -> str:
    """Returns a text that explains an exception of torch.export to a person who does not know torch.export."""
    name, text = type(error).__name__, str(error)
    if "DataDependent" in name or "data-dependent" in text or "dynamic value" in text.lower():
        return "the control flow or a size depends on values of a tensor, which a graph cannot express"
    if "Constraints violated" in text:
        return "the module takes only a fixed batch: a size that depends on the batch is used as a constant"
    if "torch._C.Generator" in text:
        return "a tensor is drawn with a torch.Generator, which a graph does not keep: draw it without generator="
    if "fake tensor in the exported program constant" in text:
        return "a tensor comes from what cannot be traced, such as .data (write .detach()) or torch.autograd.grad()"
    return first_line(error)


def _trace(model: nn.Module, args: tuple, kwargs: dict, shapes: Callable[[Any], Any]) -> ExportedProgram:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dynamic = {
            name: torch.utils._pytree.tree_map(shapes, value)
            for name, value in inspect.signature(model.forward).bind(*args, **kwargs).arguments.items()
        }
        dynamic = _spread(model, dynamic)
        return torch.export.export(model, args, kwargs, dynamic_shapes=dynamic, strict=False)


def _spread(model: nn.Module, dynamic: dict[str, Any]) -> dict[str, Any]:
    """Moves the entries that bind() gathered under **kwargs to the top level, as torch.export expects them."""
    for parameter in inspect.signature(model.forward).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD and parameter.name in dynamic:
            dynamic |= dynamic.pop(parameter.name)
    return dynamic


def trace(model: nn.Module, args: tuple, kwargs: dict, batch: int, training: bool) -> ExportedProgram:
    """Traces the module's forward. In each input whose dimension 0 has size `batch`, this dimension becomes symbolic.
    The dimension's range starts at 1 if the module allows this; otherwise it is the range that the module allows."""
    fixed: list[str] = []
    with ExitStack() as during:
        during.enter_context(module_mode(model, training))
        during.enter_context(_refusing_prints())
        during.enter_context(_selecting(model))
        during.enter_context(_as_under_autocast())
        during.enter_context(taking_batches_of_one())
        during.enter_context(_noting_fixed_sizes(fixed))
        during.enter_context(torch.enable_grad())
        try:
            named = Dim("batch", min=1, max=_LARGEST_BATCH)
            try:
                return _trace(model, args, kwargs, _first_dimension(batch, named))
            except torch._dynamo.exc.UserError as error:
                if "Constraints violated" not in str(error):
                    raise
            return _trace(model, args, kwargs, _first_dimension(batch, Dim.DYNAMIC))
        except ExportError as error:
            place = users_line(error.__traceback__)
            raise ExportError(f"{place}: {error}" if place else str(error)) from error
        except Exception as error:
            place = users_line(error.__traceback__) if error.__traceback__ else ""
            if "Constraints violated" in str(error) and fixed:
                place = fixed[-1]
            mode = "training" if training else "evaluation"
            raise ExportError(f"{place + ': ' if place else ''}in {mode}, {_explain(error)}") from error


class _Loss(nn.Module):
    def __init__(self, loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]):
        super().__init__()
        self.loss = loss

    def forward(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return self.loss(output, target)


def trace_loss(
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], output: torch.Tensor, target: torch.Tensor, batch: int
) -> ExportedProgram:
    """Traces the loss function `loss` in the way in which trace() traces a module. Throws ExportError."""
    if isinstance(loss, nn.Module) and any(True for _ in loss.parameters()):
        raise ExportError("the loss has parameters: make them the module's")
    try:
        return trace(_Loss(loss), (output, target), {}, batch, training=True)
    except ExportError as error:
        raise ExportError(f"the loss: {error}") from error


def _first_dimension(batch: int, dimension: Any) -> Callable[[Any], Any]:
    def shape(value: Any) -> dict[int, Any] | None:
        if isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == batch:
            return {0: dimension}
        return None

    return shape
