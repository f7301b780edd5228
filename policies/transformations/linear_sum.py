"""Writes the sum or mean of a linear layer's outputs by exact algebra.

Sums commute, so the weights are added first, and a row costs a product with a vector instead of a
matrix. The result
still depends on the input: no constant is returned.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelwright.policies.transformations.draft import ALGEBRA_MARK
from kernelwright.policies.transformations.exporting import ExportedModel, NotTransformed, name_of
from kernelwright.policies.transformations.host_text import HostText, candidate_text

if TYPE_CHECKING:
    from kernelwright.policies.inductor.graph_types import GraphNode

REDUCTIONS_OF_ONE_ELEMENT = ("sum", "mean", "amax", "amin", "logsumexp", "max", "min")
"""Reductions that return their input for an axis of length one."""

HEADER = """# The {what} of a linear layer, its weights summed first (kernelwright). Block sizes are not tuned.
{mark}
{told}import torch
import torch.nn as nn
import triton
import triton.language as tl
"""
NOTHING_LEFT = "# The reductions that follow go over one element, and give it back.\n"

KERNELS = '''@triton.jit
def weight_part_kernel(
    weight_pointer, part_pointer, outputs, inputs, share, output_stride, input_stride,
    OUTPUT_BLOCK: tl.constexpr, INPUT_BLOCK: tl.constexpr,
):
    """For each input its weights, summed over one share of the outputs."""
    one_input = (tl.program_id(0) * INPUT_BLOCK + tl.arange(0, INPUT_BLOCK)).to(tl.int64)
    first = tl.program_id(1).to(tl.int64) * share
    end = tl.minimum(first + share, outputs)
    found = tl.zeros((OUTPUT_BLOCK, INPUT_BLOCK), tl.float32)
    for begin in range(first, end, OUTPUT_BLOCK):
        output = begin + tl.arange(0, OUTPUT_BLOCK).to(tl.int64)
        found += tl.load(
            weight_pointer + output[:, None] * output_stride + one_input[None, :] * input_stride,
            mask=(output < end)[:, None] & (one_input < inputs)[None, :], other=0.0,
        )
    place = part_pointer + tl.program_id(1).to(tl.int64) * inputs + one_input
    tl.store(place, tl.sum(found, axis=0), mask=one_input < inputs)


@triton.jit
def weight_join_kernel(
    part_pointer, bias_pointer, sum_pointer, inputs, outputs, parts, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr,
):
    """The parts of each input's sum; behind them the sum of the biases."""
    one_input = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    exists = one_input < inputs
    found = tl.zeros((BLOCK,), tl.float32)
    for part in range(0, parts):
        found += tl.load(part_pointer + part * inputs + one_input, mask=exists, other=0.0)
    tl.store(sum_pointer + one_input, found, mask=exists)
    if tl.program_id(0) == 0:
        biases = tl.zeros((BLOCK,), tl.float32)
        if HAS_BIAS:
            for begin in range(0, outputs, BLOCK):
                output = begin + tl.arange(0, BLOCK)
                biases += tl.load(bias_pointer + output, mask=output < outputs, other=0.0)
        tl.store(sum_pointer + inputs, tl.sum(biases, axis=0))


@triton.jit
def row_kernel(x_pointer, sum_pointer, out_pointer, inputs, factor, shift, BLOCK: tl.constexpr):
    """One row times the summed weights."""
    row = tl.program_id(0).to(tl.int64)
    found = tl.zeros((BLOCK,), tl.float32)
    for begin in range(0, inputs, BLOCK):
        one_input = begin + tl.arange(0, BLOCK)
        exists = one_input < inputs
        x = tl.load(x_pointer + row * inputs + one_input, mask=exists, other=0.0)
        found += x * tl.load(sum_pointer + one_input, mask=exists, other=0.0)
    total = tl.sum(found, axis=0) + tl.load(sum_pointer + inputs)
    tl.store(out_pointer + row, total * factor + shift)
'''

LINEAR_SUM_HOST = """weight = {weight}
x = {x}.contiguous()
rows, inputs = x.shape
outputs = weight.shape[{output_axis}]
share = triton.cdiv(triton.cdiv(outputs, 16), 32) * 32
parts = triton.cdiv(outputs, share)
part = torch.empty((parts, inputs), device=x.device, dtype=torch.float32)
summed = torch.empty((inputs + 1,), device=x.device, dtype=torch.float32)
out = torch.empty({shape}, device=x.device, dtype=torch.float32)
weight_part_kernel[lambda block: (triton.cdiv(inputs, block["INPUT_BLOCK"]), parts)](
    weight, part, outputs, inputs, share, weight.stride({output_axis}), weight.stride({input_axis}),
    OUTPUT_BLOCK=16, INPUT_BLOCK=256, num_warps=4,
)
weight_join_kernel[lambda block: (triton.cdiv(inputs, block["BLOCK"]),)](
    part, {bias}, summed, inputs, outputs, parts, HAS_BIAS={has_bias}, BLOCK=256, num_warps=4,
)
row_kernel[(rows,)](x, summed, out, inputs, {factor}, {shift}, BLOCK=2048, num_warps=4)
return out"""


@dataclass
class LinearSum:
    """The operations of a graph that sums a linear layer. Nodes are torch.fx nodes."""

    product: Any
    """Node of the product: linear or matmul."""
    mean: bool = False
    keeps: bool = False
    factor: str = "1.0"
    shift: str = "0.0"
    of_one: list[str] = field(default_factory=list)
    """Reductions over a single element that follow the sum."""

    def scale(self, sign: str, number: str) -> None:
        """Multiplies or divides the result by a number."""
        self.factor = f"{self.factor} {sign} {number}".removeprefix("1.0 * ")
        if self.shift != "0.0":
            self.shift = f"({self.shift}) {sign} {number}"

    def add(self, number: str) -> None:
        """Adds a number, written as an expression, to the constant part of the sum."""
        self.shift = number if self.shift == "0.0" else f"{self.shift} + {number}"


def write_linear_sum(exported: ExportedModel) -> str:
    """Returns the candidate's text. Raises NotTransformed."""
    pattern = _find(exported)
    x, weight, bias, outputs_first = operands_of(pattern.product)
    if (
        any(not str(n.meta["val"].dtype).endswith("float32") for n in (x, weight))
        or x.meta["val"].dim() != 2
    ):
        raise NotTransformed("it is no layer of fp32 on rows of one axis")
    host = HostText(exported.names, {})
    body = LINEAR_SUM_HOST.format(
        weight=host.of(weight), x=host.of(x), bias="summed" if bias is None else host.of(bias),
        has_bias=bias is not None, output_axis=0 if outputs_first else 1, input_axis=1 if outputs_first else 0,
        shape="(rows, 1)" if pattern.keeps else "(rows,)", factor=pattern.factor, shift=pattern.shift,
    )  # fmt: skip
    lines = [*host.lines, *body.splitlines()]
    head = HEADER.format(
        mark=ALGEBRA_MARK,
        what="mean" if pattern.mean else "sum",
        told=NOTHING_LEFT if pattern.of_one else "",
    )
    return candidate_text(exported, head, [KERNELS], lines)


def _find(exported: ExportedModel) -> LinearSum:
    """Walks from the output up to the product. Raises NotTransformed for an operation that does
    not commute with the sum.
    """
    node = next(n for n in exported.graph.nodes if n.op == "output").args[0]
    if len(node) != 1:
        raise NotTransformed("more than one output")
    node = node[0]
    # Collect the chain of operators between the product and the output.
    steps: list[Any] = []
    while name_of(node) not in ("linear", "matmul", "mm"):
        if (
            node.op != "call_function"
            or len([u for u in node.users if u.users or u.op == "output"]) != 1
        ):
            raise NotTransformed("it is no chain of sums and numbers behind a linear layer")
        steps.insert(0, node)
        node = node.args[0]
    pattern, summed = LinearSum(node), False
    for step in steps:
        name = name_of(step)
        if name in ("mul", "div", "add", "sub"):
            _take_number(pattern, step, name, exported)
        elif step.target is operator.getitem and step.args[1] == 0:
            continue
        elif (
            not summed
            and name in ("sum", "mean")
            and axes_of(step) == [1]
            and step.args[0].meta["val"].dim() == 2
        ):
            summed, pattern.mean, pattern.keeps = True, name == "mean", keeps_axis(step)
            if pattern.mean:
                pattern.factor = f"{pattern.factor} / outputs".removeprefix("1.0 * ")
            elif pattern.shift != "0.0":
                pattern.shift = f"({pattern.shift}) * outputs"
        elif summed and name in REDUCTIONS_OF_ONE_ELEMENT and _is_of_one(step):
            pattern.of_one.append(name)
            pattern.keeps = keeps_axis(step)
        else:
            raise NotTransformed(
                f"{name or step.target} does not commute with a sum over the outputs"
            )
    if not summed:
        raise NotTransformed("the outputs are not summed")
    return pattern


def _take_number(pattern: LinearSum, step: GraphNode, name: str, exported: ExportedModel) -> None:
    number = step.args[1]
    if type(number) not in (int, float) or not math.isfinite(number) or step.kwargs:
        raise NotTransformed(f"{name} with something that is no plain number")
    written = exported.numbers.get(float(number), repr(number))
    if name in ("mul", "div"):
        pattern.scale("*" if name == "mul" else "/", written)
    else:
        pattern.add(written if name == "add" else f"-{written}")


def operands_of(product: GraphNode) -> tuple[Any, Any, Any, bool]:
    """x, weight, bias, and whether the weight stands as (outputs, inputs)."""
    if name_of(product) == "linear":
        bias = product.args[2] if len(product.args) > 2 else None
        return product.args[0], product.args[1], bias, True
    x, weight = product.args
    if weight.meta["val"].dim() != 2:
        raise NotTransformed("the weight is no matrix")
    if name_of(weight) in ("numpy_T", "t", "transpose", "mT"):
        return x, weight.args[0], None, True
    return x, weight, None, False


def axes_of(step: GraphNode) -> list[int]:
    """Returns the axes a reduction in a graph sums over, counted from 0 and sorted."""
    axes = step.args[1] if len(step.args) > 1 else None
    axes = [axes] if isinstance(axes, int) else axes or []
    return sorted(axis % step.args[0].meta["val"].dim() for axis in axes)


def keeps_axis(step: GraphNode) -> bool:
    """Says whether a reduction in a graph keeps its axes with the extent 1."""
    return len(step.args) > 2 and bool(step.args[2])


def _is_of_one(step: GraphNode) -> bool:
    shape = step.args[0].meta["val"].shape
    return axes_of(step) == [1] and len(shape) == 2 and shape[1] == 1
