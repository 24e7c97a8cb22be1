"""Modules for tests/export_test.py: HIDDEN have state that a graph does not have, HONEST only look as if they had.

Each entry is a function that makes the module. Most counters change something only after a thousand calls, and most
random numbers decide something in one of a hundred calls, so no comparison of a few outputs would show them."""

import collections
import contextvars
import datetime
import functools
import itertools
import logging
import os
import random
import secrets
import time
import types
import uuid
from random import random as draw
from time import monotonic

import numpy as np
import torch
from torch import nn

COUNT = 0
STATS = {"calls": 0}
NAMES = types.SimpleNamespace(calls=0)
VARIABLE = contextvars.ContextVar("calls", default=0)

HIDDEN, HONEST = {}, {}


class Net(nn.Module):
    calls = 0

    def __init__(self, attributes):
        super().__init__()
        self.fc, self.norm, self.dropout = nn.Linear(6, 6), nn.BatchNorm1d(6), nn.Dropout(0.5)
        for name, value in attributes.items():
            setattr(self, name, value() if callable(value) else value)

    def forward(self, x):
        return self.compute(self.norm(self.fc(x)))


def case(table, expected="", **attributes):
    """Adds a module whose forward ends with the decorated function. Its attributes are values, or functions that make
    them. `expected` are words of the error."""

    def add(function):
        def make():
            return type("Net", (Net,), {"compute": function})(attributes)

        table[function.__name__] = (make, expected) if table is HIDDEN else make
        return function

    return add


# Random numbers.


@case(HIDDEN, "draws random numbers from Python's random")
def layer_drop(self, x):
    return x if random.random() < 0.01 else torch.tanh(x)


@case(HIDDEN, "draws random numbers from Python's random")
def a_function_of_random(self, x):
    return x if draw() < 0.01 else torch.tanh(x)


@case(HIDDEN, "draws random numbers from Python's random")
def in_the_middle(self, x):
    return x if 0.49 < random.random() < 0.51 else torch.tanh(x)


@case(HIDDEN, "draws random numbers from Python's random")
def faint_noise(self, x):
    return x + 1e-6 * random.gauss(0, 1)


@case(HIDDEN, "draws random numbers from Python's random")
def shuffled(self, x):
    order = list(range(6))
    random.shuffle(order)
    return x[:, order]


@case(HIDDEN, "draws random numbers from Python's random")
def in_a_hook(self, x):
    if x.requires_grad:
        x.register_hook(lambda gradient: gradient * 0 if random.random() < 0.01 else gradient)
    return x * 2


@case(HIDDEN, "draws random numbers from numpy.random")
def numpy_layer_drop(self, x):
    return x if np.random.rand() < 0.01 else torch.tanh(x)


@case(HIDDEN, "draws random numbers from numpy.random")
def numpy_noise(self, x):
    return x + torch.from_numpy(np.random.randn(6)).float()


@case(HIDDEN, "draws random numbers from a Generator of NumPy", rng=lambda: np.random.default_rng(0))
def own_generator(self, x):
    return x if self.rng.random() < 0.01 else torch.tanh(x)


@case(HIDDEN, "draws random numbers from a Generator of NumPy", rng=lambda: [np.random.default_rng(0)])
def generator_in_a_list(self, x):
    return x if self.rng[0].random() < 0.01 else torch.tanh(x)


@case(HIDDEN, "draws random numbers from a RandomState of NumPy", rng=lambda: np.random.RandomState(0))
def own_random_state(self, x):
    return x if self.rng.rand() < 0.01 else torch.tanh(x)


@case(HIDDEN, "draws random numbers from a Random of Python", rng=lambda: random.Random(0))
def own_random(self, x):
    return x if self.rng.random() < 0.01 else torch.tanh(x)


@case(HIDDEN, "generator=", rng=lambda: torch.Generator().manual_seed(0))
def generator_of_torch(self, x):
    return x * torch.rand(6, generator=self.rng)


@case(HIDDEN, "depends on values of a tensor")
def branch_on_an_item(self, x):
    return x if torch.rand(()).item() < 0.01 else torch.tanh(x)


@case(HIDDEN, "depends on values of a tensor")
def branch_on_a_tensor(self, x):
    return x if torch.rand(()) < 0.01 else torch.tanh(x)


@case(HIDDEN, "reads a value of a tensor")
def factor_of_an_item(self, x):
    return x * torch.rand(()).item()


# The clock and the system's random bytes.


@case(HIDDEN, "reads the system's random bytes")
def new_generator(self, x):
    return x if np.random.default_rng().random() < 0.01 else torch.tanh(x)


@case(HIDDEN, "reads the system's random bytes")
def new_random(self, x):
    return x if random.Random().random() < 0.01 else torch.tanh(x)


@case(HIDDEN, "reads the system's random bytes")
def random_bytes(self, x):
    return x if os.urandom(1)[0] == 0 else torch.tanh(x)


@case(HIDDEN, "reads the system's random bytes")
def secret(self, x):
    return x if secrets.randbelow(100) == 0 else torch.tanh(x)


@case(HIDDEN, "reads the system's random bytes")
def random_name(self, x):
    return x if uuid.uuid4().int % 100 == 0 else torch.tanh(x)


@case(HIDDEN, "reads the clock (time)")
def clock(self, x):
    return x if time.time() % 100 < 1 else torch.tanh(x)


@case(HIDDEN, "reads the clock (monotonic)")
def a_function_of_time(self, x):
    return x if monotonic() % 100 < 1 else torch.tanh(x)


@case(HIDDEN, "reads the clock (now)")
def date(self, x):
    return x if datetime.datetime.now().year > 2100 else torch.tanh(x)


# Counters.


@case(HIDDEN, "changes its attribute n", n=0)
def counter(self, x):
    self.n += 1
    return x * 2 if self.n > 1000 else x


@case(HIDDEN, "changes its attribute flip", flip=False)
def every_second_call(self, x):
    self.flip = not self.flip
    return x * 1.0001 if self.flip else x


@case(HIDDEN, "has changed its attribute is_first", is_first=True)
def first_call(self, x):
    if self.is_first:
        self.is_first = False
        return x * 2
    return x


@case(HIDDEN, "changes its attribute n", n=lambda: [0])
def counter_in_a_list(self, x):
    self.n[0] += 1
    return x * 2 if self.n[0] > 1000 else x


@case(HIDDEN, "changes its attribute n", n=dict)
def counter_in_a_dict(self, x):
    self.n["calls"] = self.n.get("calls", 0) + 1
    return x * 2 if self.n["calls"] > 1000 else x


@case(HIDDEN, "changes its attribute n", n=lambda: np.zeros(1))
def counter_in_an_array(self, x):
    self.n += 1
    return x * 2 if self.n[0] > 1000 else x


@case(HIDDEN, "changes its attribute n", n=lambda: types.SimpleNamespace(calls=0))
def counter_in_an_object(self, x):
    self.n.calls += 1
    return x * 2 if self.n.calls > 1000 else x


@case(HIDDEN, "changes its attribute seen", seen=list)
def length_of_a_list(self, x):
    self.seen.append(1)
    return x * 2 if len(self.seen) > 1000 else x


@case(HIDDEN, "changes its attribute n", n=lambda: collections.deque(range(1000)))
def turned_deque(self, x):
    self.n.rotate(1)
    return x * 2 if self.n[0] == 7 else x


@case(HIDDEN, "changes its attribute n", n=itertools.count)
def iterator(self, x):
    return x * 2 if next(self.n) > 1000 else x


@case(HIDDEN, "changes its attribute n", n=lambda: itertools.cycle([0] * 99 + [1]))
def cycle(self, x):
    return x * 2 if next(self.n) else x


@case(HIDDEN, "changes its attribute n", n=lambda: (number for number in range(10000)))
def generator_expression(self, x):
    return x * 2 if next(self.n) > 1000 else x


@case(HIDDEN, "changes its attribute n", n=lambda: iter(range(10000)))
def range_iterator(self, x):
    return x * 2 if next(self.n) > 1000 else x


@case(HIDDEN, "changes its attribute n")
def by_name(self, x):
    setattr(self, "n", getattr(self, "n", 0) + 1)
    return x * 2 if getattr(self, "n") > 1000 else x


@case(HIDDEN, "changes its attribute kept", kept=lambda: {"mean": torch.zeros(6)})
def tensor_in_a_dict(self, x):
    self.kept["mean"] = self.kept["mean"] * 0.9 + x.detach().mean(0) + 1
    return x + self.kept["mean"] * 1e-9


@case(HIDDEN, "changes the variable COUNT")
def global_variable(self, x):
    global COUNT
    COUNT += 1
    return x * 2 if COUNT > 1000 else x


@case(HIDDEN, "changes the variable STATS")
def global_dict(self, x):
    STATS["calls"] += 1
    return x * 2 if STATS["calls"] > 1000 else x


@case(HIDDEN, "changes the variable NAMES")
def global_object(self, x):
    NAMES.calls += 1
    return x * 2 if NAMES.calls > 1000 else x


@case(HIDDEN, "changes the variable VARIABLE")
def context_variable(self, x):
    VARIABLE.set(VARIABLE.get() + 1)
    return x * 2 if VARIABLE.get() > 1000 else x


@case(HIDDEN, "changes the attribute calls of the class Net")
def class_attribute(self, x):
    Net.calls += 1
    return x * 2 if self.calls > 1000 else x


@case(HIDDEN, "changes the default of the argument calls")
def default_argument(self, x, calls=[0]):  # noqa: B006
    calls[0] += 1
    return x * 2 if calls[0] > 1000 else x


def helper(x):
    helper.calls += 1
    return x * 2 if helper.calls > 1000 else x


helper.calls = 0


@case(HIDDEN, "changes helper.calls")
def function_attribute(self, x):
    return helper(x)


def _closure():
    calls = 0

    @case({})
    def compute(self, x):
        nonlocal calls
        calls += 1
        return x * 2 if calls > 1000 else x

    return type("Net", (Net,), {"compute": compute})({})


HIDDEN["closure"] = (_closure, "changes the variable calls")


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n += 1
        return x * 2 if self.n > 1000 else x


@case(HIDDEN, "Counting (inner) changes its attribute n", inner=Counting)
def inner_module(self, x):
    return self.inner(x)


@case(HIDDEN, "changes its attribute inner", inner=lambda: [Counting()])
def unregistered_module(self, x):
    return self.inner[0](x)


# Modules without hidden state.


@functools.lru_cache(None)
def doubled(number):
    return number * 2


@case(HONEST)
def dropout_and_norm(self, x):
    return self.dropout(torch.tanh(x))


@case(HONEST)
def cached_function(self, x):
    return x * doubled(3)


@case(HONEST, cache=None)
def lazy_attribute(self, x):
    if self.cache is None:
        self.cache = 3
    return x * self.cache


@case(HONEST, cache=dict)
def cache_in_a_dict(self, x):
    if x.shape[1] not in self.cache:
        self.cache[x.shape[1]] = 2.0
    return x * self.cache[x.shape[1]]


class Lazy(nn.Module):
    @functools.cached_property
    def scale(self):
        return 2.0

    def forward(self, x):
        return x * self.scale


@case(HONEST, inner=Lazy)
def cached_property(self, x):
    return self.inner(x)


@case(HONEST, n=0)
def counter_that_nothing_reads(self, x):
    self.n += 1
    return x * 2


@case(HONEST, seen=list)
def list_that_nothing_reads(self, x):
    self.seen.append(tuple(x.shape))
    return x * 2


@case(HONEST, shapes=None)
def list_of_each_call(self, x):
    self.shapes = []
    for _ in range(3):
        self.shapes.append(1)
    return x * len(self.shapes)


@case(HONEST)
def seeded_generator(self, x):
    return x[:, torch.from_numpy(np.random.default_rng(0).permutation(6))]


@case(HONEST)
def seeded_in_forward(self, x):
    np.random.seed(3)
    random.seed(4)
    return x * float(np.random.rand()) * random.random()


@case(HONEST, rate=0.0)
def layer_drop_with_rate_0(self, x):
    return x if random.random() < self.rate else torch.tanh(x)


@case(HONEST, rate=0.0)
def numpy_layer_drop_with_rate_0(self, x):
    return x if np.random.uniform(0, 1) < self.rate else torch.tanh(x)


@case(HONEST)
def log_line(self, x):
    logging.getLogger("net").debug("called")
    return x * 2


@case(HONEST, inner=lambda: nn.utils.spectral_norm(nn.Linear(6, 6)))
def spectral_norm(self, x):
    return self.inner(x)


@case(HONEST, inner=lambda: nn.utils.weight_norm(nn.Linear(6, 6)))
def weight_norm(self, x):
    return self.inner(x)
