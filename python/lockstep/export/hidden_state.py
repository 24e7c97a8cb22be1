"""Finds state that a module keeps or reads in Python, outside its parameters and buffers.

A graph does the same in each call. So a module cannot be exported if its forward draws random numbers of Python or
NumPy, reads the clock or the system's random bytes, or changes a value of Python that it also reads, such as a counter.
A comparison of outputs finds such state only if it makes a difference in the few calls of an export. Therefore the
module runs twice here with the same inputs, buffers and seed of torch, and four things are looked at:

  1. Which functions of the user's code run in the first call, and whether they read the clock or random bytes. Caches
     that the module fills in its first call are full after it.
  2. The state of each generator of random numbers in this process, before and after the second call.
  3. Each attribute, class attribute, global variable, closure variable and default argument that these functions can
     reach, before and after the second call.
  4. Whether the outputs, gradients and buffers of the two calls agree.

If a state or a value has changed, a third call, which is traced line by line, finds the line that changes it. A change
that no line of the user's code makes is ignored, because another thread may have made it.

A value that forward changes and never reads is no hidden state: a counter that it only increments, or an attribute that
keeps an intermediate result for the user. Neither are random numbers that decide nothing, as in `random.random() <
self.layerdrop` with a rate of 0: the results must be the same with generators that give only very small, only very
large, or only medium numbers.

Promise: the generators of Python and NumPy are restored.

what can fail -> what the caller sees (ExportError with the line and the module)
  forward draws random numbers that are not torch's -> 'draws random numbers'
  forward reads the clock or the system's random bytes -> 'reads'
  forward changes a value that it reads -> 'changes'
  the second call fails, or gives another result for another reason -> 'two calls'
tests/export_test.py, test_hidden_state_is_refused and test_what_is_no_hidden_state, show each.
"""

import collections
import contextvars
import datetime
import dis
import functools
import gc
import hashlib
import os
import random
import sys
import time
import types
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from lockstep.export.errors import ExportError, first_line, is_users_file, users_line

Results = dict[str, torch.Tensor]

_CLOCKS = {
    getattr(time, name)
    for name in (
        "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns process_time process_time_ns thread_time "
        "localtime gmtime ctime strftime"
    ).split()
}
_ENTROPY = {function for function in (os.urandom, getattr(os, "getrandom", None)) if function is not None}
_DEFAULT_ATTRIBUTES = frozenset(vars(nn.Module())) | {"forward"}
_MOST_VALUES = 100_000  # of one attribute; of a longer list the rest is not compared
_DEEPEST = 12
_ABSENT = object()
_SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # the numbers that generators return in a trial, as shares of the largest
# So many numbers in a trial are equal. Others follow, because a loop may reject numbers until it gets another one.
_EQUAL_NUMBERS = 312
_MERSENNE_WORDS = 624
_WITHOUT_RESULT = {"add", "append", "appendleft", "clear", "extend", "insert", "update"}
_LOADS = {"LOAD_ATTR", "LOAD_METHOD", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_CLOSURE"}
_STORES = {"STORE_ATTR", "STORE_GLOBAL", "STORE_NAME", "STORE_DEREF"}


class _Value(NamedTuple):
    """Something that forward may change: an attribute or a variable."""

    what: str  # for messages: "its attribute n"
    name: str  # the name in the code; "" for a value that the code reads wherever it has it
    get: Callable[[], Any]  # returns the value in a form that can be compared later


class _Place(NamedTuple):
    """A line of the user's code, and the module or function that runs it."""

    line: str
    who: str


def require_none(
    root: Callable, calls: Mapping[str, Callable[[], Results]], difference: Callable[[Results, Results], str]
) -> None:
    """Throws ExportError if `root`, a module or a loss, has hidden state. Each function of `calls` calls `root` in one
    mode, with the same inputs and seed each time. Its key, such as "in training, ", is a part of the message.
    `difference(ours, theirs)` returns the name of a result that differs, or "". A mode whose first call fails is not
    checked."""
    names = {id(module): name for name, module in root.named_modules()} if isinstance(root, nn.Module) else {}
    objects = gc.get_objects()  # takes 0.1 s
    generators = _generators_in(objects)
    functions = [held for held in objects if type(held) is types.FunctionType]
    del objects
    ran, firsts = _Ran(names), {}
    before = {key: value.get() for key, value in _values(root, ran).items()}
    with _restoring(generators):
        for mode, call in calls.items():
            try:
                with _hooked(sys.getprofile, sys.setprofile, ran.see):
                    firsts[mode] = call()
            except Exception:
                continue
            if ran.read is not None:
                place, what = ran.read
                raise ExportError(f"{place.line}: {mode}{place.who} reads {what}, which a graph cannot: take it out")
        at_first = [value for key, value in _values(root, ran).items() if value.get() != before.get(key, value.get())]
        ran.functions = [function for function in functions if function.__code__ in ran.codes]
        for mode, first in firsts.items():
            _require_none(root, ran, mode, calls[mode], first, difference, generators, at_first)


def _require_none(
    root: Callable,
    ran: "_Ran",
    mode: str,
    call: Callable[[], Results],
    first: Results,
    difference: Callable[[Results, Results], str],
    generators: list[Any],
    at_first: list["_Value"],
) -> None:
    """Throws ExportError if a second call shows hidden state. `at_first` are values that the first calls changed."""
    states = [_state(generator) for generator in generators]
    values = {key: value.get() for key, value in _values(root, ran).items()}
    try:
        second = call()
    except Exception as error:
        place = users_line(error.__traceback__)
        raise ExportError(
            f"{place + ': ' if place else ''}{mode}the second of two calls fails, and a graph does the same in each "
            f"call: {first_line(error)}"
        ) from error
    changed = {key: value for key, value in _values(root, ran).items() if value.get() != values.get(key, _ABSENT)}
    drawn = [generator for generator, state in zip(generators, states) if _state(generator) != state]
    for generator in drawn:
        place = _line_that_changes(lambda: _state(generator), call, ran)
        if place is not None and not _decides_nothing(drawn, call, first):
            raise ExportError(
                f"{place.line}: {mode}{place.who} draws random numbers from {_name_of(generator)}, which a graph "
                "cannot: draw them with torch, such as torch.rand(), and multiply by them instead of branching"
            )
    read = ran.names_read() if changed else set()
    for value in changed.values():
        if value.name and not read & {value.name, "__dict__", "vars"}:
            continue
        place = _line_that_changes(value.get, call, ran)
        if place is not None:
            raise ExportError(
                f"{place.line}: {mode}{place.who} changes {value.what} in each call and reads it, but a graph does the "
                "same in each call: take it out, or keep it in a buffer, as a tensor with which forward computes"
            )
    if name := difference(second, first):
        after = f" after the first has changed {at_first[0].what}" if at_first else ""
        raise ExportError(
            f"{mode}two calls with the same inputs and the same seed of torch differ in the {name}{after}, but a graph "
            "does the same in each call"
        )


class _Ran:
    """The functions of the user's code that ran, and the first of them that read the clock or random bytes. `names` has
    the names of the modules by their ids."""

    def __init__(self, names: Mapping[int, str]):
        self.names = names
        self.codes: dict[types.CodeType, dict[str, Any]] = {}  # with the global variables of each
        self.functions: list[types.FunctionType] = []  # those that have these codes
        self.read: tuple[_Place, str] | None = None

    def see(self, frame: types.FrameType, event: str, argument: Any) -> None:
        """Is the function for sys.setprofile()."""
        code = frame.f_code
        if event == "call":
            if _is_users(frame):
                self.codes.setdefault(code, frame.f_globals)
            elif code is random.Random.seed.__code__ and frame.f_locals.get("a") is None:
                self._note(frame, "the system's random bytes, as the seed of a generator")
        elif event == "c_call":
            if _is_one_of(argument, _ENTROPY):
                self._note(frame, f"the system's random bytes ({argument.__name__})")
            elif _is_clock(argument) and _is_users(frame):  # a library, such as logging, may read it for itself
                self._note(frame, f"the clock ({argument.__name__})")

    def place(self, frame: types.FrameType | None) -> _Place | None:
        """Returns the innermost place of the user's code in the stack of `frame`; None if there is none, or if the
        code runs only because a module is imported."""
        inner = None
        while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
            if inner is None and _is_users(frame):
                inner = frame
            if inner is not None and id(module := frame.f_locals.get("self")) in self.names:
                name = self.names[id(module)]
                return _Place(_line_of(inner), type(module).__name__ + (f" ({name})" if name else ""))
            frame = frame.f_back
        return None if inner is None or frame is not None else _Place(_line_of(inner), f"{inner.f_code.co_name}()")

    def names_read(self) -> set[str]:
        """Returns the names of the attributes and variables that the functions read. `self.n += 1` alone reads n only
        to change it, and `self.seen.append(x)` does not read the list."""
        return {name for code in self.codes for name in _names_read(code)}

    def _note(self, frame: types.FrameType, what: str) -> None:
        if self.read is None and (place := self.place(frame)) is not None:
            self.read = place, what


def _is_users(frame: types.FrameType) -> bool:
    path = frame.f_code.co_filename
    return is_users_file(path) or path in ("<string>", "<stdin>") or path.startswith(("<ipython", "<doctest"))


def _line_of(frame: types.FrameType) -> str:
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _is_one_of(function: Any, functions: set[Any]) -> bool:
    return isinstance(function, types.BuiltinFunctionType) and function in functions


def _is_clock(function: Any) -> bool:
    if _is_one_of(function, _CLOCKS):
        return True
    owner = getattr(function, "__self__", None)
    is_date = isinstance(owner, type) and issubclass(owner, datetime.date)
    return is_date and function.__name__ in ("now", "today", "utcnow")


def _names_read(code: types.CodeType) -> Iterator[str]:
    loads: collections.Counter[str] = collections.Counter()
    instructions = [i for i in dis.get_instructions(code) if i.opname not in ("CACHE", "PRECALL")]
    for index, instruction in enumerate(instructions):
        following = instructions[index + 1] if index + 1 < len(instructions) else None
        if instruction.opname in _LOADS:
            is_method = following is not None and following.opname in ("LOAD_METHOD", "LOAD_ATTR")
            loads[instruction.argval] += not (is_method and following.argval in _WITHOUT_RESULT)
        elif instruction.opname in _STORES:
            before = index - 1
            while before > 0 and instructions[before].opname in ("SWAP", "ROT_TWO"):
                before -= 1
            maker = instructions[before]
            is_change = maker.opname.startswith("INPLACE_") or maker.opname == "BINARY_OP" and maker.argrepr[-1] == "="
            loads[instruction.argval] -= is_change
    yield from (name for name, count in loads.items() if count > 0)
    yield from (constant for constant in code.co_consts if isinstance(constant, str))  # getattr(self, "n")


def _values(root: Callable, ran: _Ran) -> dict[tuple[int, str], _Value]:
    """Returns what the functions that ran can reach and may change, by the id of the holder and the name."""
    found: dict[tuple[int, str], _Value] = {}

    def add(holder: Any, name: str, what: str, get: Callable[[], Any]) -> None:
        found.setdefault((id(holder), name), _Value(what, name, lambda: _freeze(get(), ran.names)))

    def add_variables(holder: Any, what: str) -> None:
        variables = vars(holder)
        for name in variables:
            value = variables[name]
            if not callable(value) and not hasattr(value, "__get__") and not name.startswith("__"):
                add(holder, name, what.format(name), lambda v=variables, n=name: v.get(n, _ABSENT))

    if isinstance(root, nn.Module):
        for prefix, module in root.named_modules():
            held = vars(module)
            for name in held.keys() - _DEFAULT_ATTRIBUTES:
                add(module, name, f"its attribute {name}", lambda h=held, n=name: h.get(n, _ABSENT))
            for base in type(module).__mro__:
                if is_users_file(getattr(sys.modules.get(base.__module__), "__file__", None) or "<"):
                    add_variables(base, f"the attribute {{}} of the class {base.__name__}")
    for code, variables in ran.codes.items():
        for name in code.co_names:
            value = variables.get(name)
            if isinstance(value, types.ModuleType):
                if is_users_file(getattr(value, "__file__", None) or "<"):
                    for inner in set(code.co_names) & vars(value).keys():
                        add(value, inner, f"{name}.{inner}", lambda v=vars(value), n=inner: v.get(n, _ABSENT))
            elif isinstance(value, (type, types.FunctionType)):
                if is_users_file(getattr(sys.modules.get(value.__module__), "__file__", None) or "<"):
                    add_variables(value, f"{name}.{{}}")
            elif name in variables:
                add(variables, name, f"the variable {name}", lambda v=variables, n=name: v.get(n, _ABSENT))
    for function in ran.functions:
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
            add(cell, name, f"the variable {name}", lambda c=cell: _content(c))
        arguments = function.__code__.co_varnames[: function.__code__.co_argcount]
        defaults = function.__defaults__ or ()
        for name, value in [*zip(arguments[len(arguments) - len(defaults) :], defaults),
                            *(function.__kwdefaults__ or {}).items()]:  # fmt: skip
            default = _Value(f"the default of the argument {name}", "", lambda v=value: _freeze(v, ran.names))
            found.setdefault((id(function), name), default)
    return found


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # the cell is empty
        return _ABSENT


class _Freezer:
    """Copies a value into a form that can be compared later. Of a module of the model, a function, a type, and an
    object of torch or of the standard library, the form is which object it is."""

    def __init__(self, modules: Mapping[int, str]):
        self.modules = modules
        self.inside: set[int] = set()  # the containers that are being copied, which may contain themselves
        self.left = _MOST_VALUES

    def __call__(self, value: Any) -> Any:
        self.left -= 1
        if isinstance(value, float):
            return float, repr(value)  # NaN equals itself
        if value is None or isinstance(value, (bool, int, complex, str, bytes)):
            return type(value), value
        if self.left < 0 or len(self.inside) >= _DEEPEST or id(value) in self.inside or id(value) in self.modules:
            return type(value), id(value)
        self.inside.add(id(value))
        try:
            return type(value), self._inner(value)
        except Exception:  # the value cannot be looked into
            return type(value), id(value)
        finally:
            self.inside.discard(id(value))

    def _inner(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _freeze_tensor(value)
        if isinstance(value, (torch.Generator, *_kinds_of_generators())):
            return _state(value)
        if isinstance(value, Mapping):
            return [(self(key), self(inner)) for key, inner in value.items()]
        if isinstance(value, (set, frozenset)):
            return sorted((self(inner) for inner in value), key=repr)
        if isinstance(value, (list, tuple, collections.deque)):
            return [self(inner) for inner in value] + ([self(vars(value))] if hasattr(value, "__dict__") else [])
        if type(value).__module__ == "numpy" and hasattr(value, "tobytes"):
            return value.shape, str(value.dtype), hashlib.sha256(value.tobytes()).digest()
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        if isinstance(value, range):
            return repr(value)
        if isinstance(value, contextvars.ContextVar):
            return self(value.get(None))
        if isinstance(value, types.GeneratorType):
            frame = value.gi_frame
            return None if frame is None else (frame.f_lasti, self(frame.f_locals))
        if isinstance(value, (type, types.ModuleType, types.FunctionType, types.MethodType, weakref.ref)):
            return id(value)
        if type(value).__module__ == "itertools" or type(value).__module__ == "builtins" and hasattr(value, "__next__"):
            # Such an iterator says where it is when it is asked how to copy it, or in its text.
            try:
                return [self(inner) for inner in value.__reduce__()[1:]]
            except TypeError:
                return repr(value)
        owner = getattr(sys.modules.get(type(value).__module__), "__file__", None)
        if isinstance(value, types.SimpleNamespace) or is_users_file(owner or "<") or type(value).__module__ == "__main__":
            slots = [name for base in type(value).__mro__ for name in _names_of_slots(base)]
            held = {name: getattr(value, name) for name in slots if hasattr(value, name)} | getattr(value, "__dict__", {})
            if isinstance(value, nn.Module):
                held = {name: inner for name, inner in held.items() if name not in _DEFAULT_ATTRIBUTES}
            return self(held)
        return id(value)


def _freeze(value: Any, modules: Mapping[int, str]) -> Any:
    return _Freezer(modules)(value)


def _names_of_slots(base: type) -> list[str]:
    slots = base.__dict__.get("__slots__", ())
    return [slots] if isinstance(slots, str) else [name for name in slots if name not in ("__dict__", "__weakref__")]


def _freeze_tensor(tensor: torch.Tensor) -> Any:
    """Returns what an equal tensor also has. Sums over a tensor may differ in the last digits on a GPU."""
    known = (tuple(tensor.shape), tensor.dtype)
    if type(tensor) not in (torch.Tensor, nn.Parameter) or tensor.is_meta:
        return (*known, id(tensor))
    plain = torch.nan_to_num(torch.view_as_real(tensor) if tensor.is_complex() else tensor.detach()).double()
    return (*known, f"{plain.sum().item():.5g}", f"{plain.abs().sum().item():.5g}")


def _generators_in(objects: list[Any]) -> list[Any]:
    """Returns the generators of random numbers of Python and NumPy among the objects, and the global ones."""
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, _kinds_of_generators())}
    found = {id(held): held for held in objects if type(held) in kinds}
    found[id(random._inst)] = random._inst
    if (numpy := sys.modules.get("numpy.random")) is not None:
        found[id(numpy.mtrand._rand)] = numpy.mtrand._rand
    return [held for held in found.values() if type(held) is not random.SystemRandom]


def _kinds_of_generators() -> tuple[type, ...]:
    numpy = sys.modules.get("numpy.random")
    return (random.Random,) if numpy is None else (random.Random, numpy.RandomState, numpy.Generator)


def _state(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return repr(generator.bit_generator.state)
    kind, words, *others = generator.get_state()
    return kind, words.tobytes(), *others


def _name_of(generator: Any) -> str:
    if generator is random._inst:
        return "Python's random"
    if isinstance(generator, random.Random):
        return f"a {type(generator).__name__} of Python"
    is_global = generator is sys.modules["numpy.random"].mtrand._rand
    return "numpy.random" if is_global else f"a {type(generator).__name__} of NumPy"


@contextmanager
def _restoring(generators: list[Any]) -> Iterator[None]:
    restores: list[Callable[[], None]] = []
    for held in generators:
        if isinstance(held, random.Random):
            restores.append(functools.partial(held.setstate, held.getstate()))
        elif hasattr(held, "set_state"):
            restores.append(functools.partial(held.set_state, held.get_state()))
        else:
            restores.append(functools.partial(setattr, held.bit_generator, "state", held.bit_generator.state))
    try:
        yield
    finally:
        for restore in restores:
            restore()


def _decides_nothing(
    drawn: list[Any], call: Callable[[], Results], first: Results
) -> bool:
    """Returns whether the results are those of `first`, whatever the generators return."""
    others = random.Random(0)
    for share in _SHARES:
        words = [_untempered(round(share * (2**32 - 1)))] * _EQUAL_NUMBERS
        words += [others.getrandbits(32) for _ in range(_MERSENNE_WORDS - _EQUAL_NUMBERS)]
        for held in drawn:
            if type(held) is random.Random:
                held.setstate((3, (*words, 0), None))
            elif hasattr(held, "get_state") and held.get_state()[0] == "MT19937":
                held.set_state(("MT19937", words, 0))
            else:
                return False
        try:
            results = call()
        except Exception:
            return False
        if not all(torch.equal(torch.nan_to_num(results[name]), torch.nan_to_num(first[name])) for name in first):
            return False
    return True


def _untempered(number: int) -> int:
    """Returns the word of the Mersenne Twister's state from which it makes `number` (Matsumoto and Nishimura, 1998)."""
    number ^= number >> 18
    number ^= number << 15 & 0xEFC60000
    word = number
    for _ in range(5):
        word = number ^ (word << 7 & 0x9D2C5680)
    number = word
    for _ in range(3):
        word = number ^ word >> 11
    return word & 0xFFFFFFFF


def _line_that_changes(get: Callable[[], Any], call: Callable[[], Results], ran: _Ran) -> _Place | None:
    """Calls `call`, and returns the line of the user's code after which `get` first returns something else."""
    before, found, running = get(), None, None

    def see(frame: types.FrameType, event: str, _: Any) -> Any:
        nonlocal found, running
        if found is not None or not _is_users(frame):
            return None
        if running is not None and get() != before:
            inner, line = running
            found = ran.place(inner)
            if found is not None:
                found = found._replace(line=f"{os.path.basename(inner.f_code.co_filename)}:{line}")
            return None
        while event == "return" and (frame := frame.f_back) is not None and not _is_users(frame):
            pass
        running = None if frame is None else (frame, frame.f_lineno)
        return see

    try:
        with _hooked(sys.gettrace, sys.settrace, see):
            call()
    except Exception:
        pass
    return found


@contextmanager
def _hooked(get: Callable[[], Any], set_hook: Callable[[Any], None], hook: Callable) -> Iterator[None]:
    kept = get()
    set_hook(hook)
    try:
        yield
    finally:
        set_hook(kept)
