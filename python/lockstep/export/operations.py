"""The operations that a graph may call.

Each line of operations.txt names an ATen operation, "aten::NAME" or "aten::NAME.OVERLOAD". These operations compute
tensors from tensors: none of them reads a file, has a result whose size depends on the values of a tensor, or returns
the value of a tensor to the program. The exporter and the reader both refuse all other operations.

SYMBOLIC holds the operations on sizes that depend on the batch.
"""

import math
import operator
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch

aten = torch.ops.aten

# The operations of nodes with "sym", which compute integers, floats and bools from sizes and from one another.
SYMBOLIC: dict[Callable, str] = {
    aten.sym_size.int: "size",
    aten.sym_numel.default: "numel",
    aten.sym_stride.int: "stride",
    operator.add: "add",
    operator.sub: "sub",
    operator.mul: "mul",
    operator.floordiv: "floordiv",
    operator.truediv: "truediv",
    operator.mod: "mod",
    operator.neg: "neg",
    operator.pow: "pow",
    operator.eq: "eq",
    operator.ne: "ne",
    operator.lt: "lt",
    operator.le: "le",
    operator.gt: "gt",
    operator.ge: "ge",
    math.ceil: "ceil",
    math.floor: "floor",
    math.trunc: "trunc",
    torch.sym_max: "max",
    torch.sym_min: "min",
    torch.sym_float: "float",
    torch.sym_int: "trunc",
    torch.sym_ite: "ite",
    torch.sym_not: "not",
    torch._sym_sqrt: "sqrt",
}

# Operations that only check or mark something. The model's output does not depend on them.
CHECKS = frozenset({
    "aten::sym_constrain_range",
    "aten::sym_constrain_range_for_size",
    "aten::_assert_async",
    "aten::_assert_async.msg",
    "aten::_assert_scalar",
    "aten::_assert_tensor_metadata",
    "aten::_functional_assert_async.msg",
    "profiler::_record_function_enter",
    "profiler::_record_function_enter_new",
    "profiler::_record_function_exit",
    "profiler::_record_function_exit._RecordFunction",
})


@cache
def allowed() -> frozenset[str]:
    """Returns the lines of operations.txt, without comments."""
    text = (Path(__file__).parent.parent / "operations.txt").read_text()
    return frozenset(line for line in text.split("\n") if line and not line.startswith("#"))


def full_name(op: torch._ops.OpOverload) -> str:
    """Returns a name such as "aten::add.Tensor" or "aten::relu"."""
    return op._schema.name + (f".{op._schema.overload_name}" if op._schema.overload_name else "")
