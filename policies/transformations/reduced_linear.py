"""Writes a linear layer and the reduction or norm of its rows as one kernel.

A program holds whole rows of the layer's result, which are never stored in memory. For rows that
fit into the
registers of a block.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from kernelwright.policies.transformations.exporting import (
    ExportedModel,
    NotTransformed,
    name_of,
    size_of,
)
from kernelwright.policies.transformations.host_text import HostText, candidate_text
from kernelwright.policies.transformations.linear_sum import axes_of, keeps_axis, operands_of
from kernelwright.policies.transformations.row_reduction import EXTREMES

if TYPE_CHECKING:
    from kernelwright.policies.inductor.graph_types import GraphNode

MAX_ROW_ELEMENTS = 512
"""Elements of a row a block of 16 rows holds without spills."""
UNARY = {
    "relu": "tl.where((value > 0.0) | (value != value), value, 0.0)",
    "sigmoid": "1.0 / (1.0 + tl.exp(-value))",
    "silu": "value / (1.0 + tl.exp(-value))",
    "exp": "tl.exp(value)",
    "neg": "-value",
    "abs": "tl.abs(value)",
}
LOWEST = '-float("inf")'
SHIFTED = """    largest = tl.reduce(value, 1, larger)
    shift = tl.where(tl.abs(largest) == float("inf"), 0.0, largest)
    weight = tl.exp(value - shift[:, None])
"""
ROW_REDUCTIONS = {
    "softmax": (LOWEST, SHIFTED.replace("shift[:, None]", "largest[:, None]").replace(
        '    shift = tl.where(tl.abs(largest) == float("inf"), 0.0, largest)\n', "")
        + "    reduced = weight / tl.sum(weight, axis=1)[:, None]\n"),
    "logsumexp": (LOWEST, SHIFTED + "    reduced = shift + tl.log(tl.sum(weight, axis=1))\n"),
    "amax": (LOWEST, "    reduced = tl.reduce(value, 1, larger)\n"),
    "sum": ("0.0", "    reduced = tl.sum(value, axis=1)\n"),
    "mean": ("0.0", "    reduced = tl.sum(value, axis=1) / outputs\n"),
    "layer_norm": ("0.0", """    mean = tl.sum(value, axis=1) / outputs
    centred = tl.where((column < outputs)[None, :], value - mean[:, None], 0.0)
    variance = tl.sum(centred * centred, axis=1) / outputs
    reduced = centred / tl.sqrt(variance + EPSILON)[:, None]
"""),
    "rms_norm": ("0.0", """    square = tl.sum(value * value, axis=1) / outputs
    reduced = value / tl.sqrt(square + EPSILON)[:, None]
"""),
}  # fmt: skip
"""Reduction or norm of a row -> the value beyond the row's end, and the lines of the kernel."""
NORM_NAMES = ("layer_norm", "rms_norm")
WHOLE_ROWS = ("softmax", *NORM_NAMES)
"""They give as many elements as a row has."""
AFFINE = {
    "scale": "    reduced *= tl.load(scale_pointer + column, mask=column < outputs, other=0.0)[None, :]\n",
    "shift": "    reduced += tl.load(shift_pointer + column, mask=column < outputs, other=0.0)[None, :]\n",
}
"""Lines that apply a norm's weight and bias, an element per column, to its rows."""
FP32_EPSILON = 1.1920928955078125e-07
"""torch's epsilon of an RMS norm of fp32 that names none."""

HEAD = """# A linear layer and the {name} of its rows in one kernel (kernelwright). Block sizes are not tuned.
import torch
import torch.nn as nn
import triton
import triton.language as tl
"""
KERNEL = '''@triton.jit
def reduced_linear_kernel(
    x_pointer, weight_pointer, bias_pointer, {pointers}out_pointer, rows, inputs, outputs, output_stride, input_stride,
    HAS_BIAS: tl.constexpr, ROW_BLOCK: tl.constexpr, STEP_BLOCK: tl.constexpr, COLUMNS: tl.constexpr,
):
    """Whole rows: `COLUMNS` holds all outputs of a row."""
    row = (tl.program_id(0) * ROW_BLOCK + tl.arange(0, ROW_BLOCK)).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    value = tl.zeros((ROW_BLOCK, COLUMNS), tl.float32)
    for begin in range(0, inputs, STEP_BLOCK):
        step = begin + tl.arange(0, STEP_BLOCK)
        x = tl.load(
            x_pointer + row[:, None] * inputs + step[None, :],
            mask=(row < rows)[:, None] & (step < inputs)[None, :], other=0.0,
        )
        weight = tl.load(
            weight_pointer + step.to(tl.int64)[:, None] * input_stride + column.to(tl.int64)[None, :] * output_stride,
            mask=(step < inputs)[:, None] & (column < outputs)[None, :], other=0.0,
        )
        value = tl.dot(x, weight, value, input_precision="ieee")
    if HAS_BIAS:
        value += tl.load(bias_pointer + column, mask=column < outputs, other=0.0)[None, :]
{chain}    value = tl.where((column < outputs)[None, :], value, {beyond})
{reduction}    {store}
'''
STORE_ROWS = "tl.store(out_pointer + row, reduced, mask=row < rows)"
STORE_ALL = """place = out_pointer + row[:, None] * outputs + column[None, :]
    tl.store(place, reduced, mask=(row < rows)[:, None] & (column < outputs)[None, :])"""
REDUCED_LINEAR_HOST = """weight = {weight}
x = {x}.contiguous()
rows, inputs = x.shape
outputs = weight.shape[{output_axis}]
out = torch.empty({shape}, device=x.device, dtype=torch.float32)
columns = max(16, triton.next_power_of_2(outputs))
reduced_linear_kernel[lambda block: (triton.cdiv(rows, block["ROW_BLOCK"]),)](
    x, weight, {bias}, {tensors}out, rows, inputs, outputs, weight.stride({output_axis}), weight.stride({input_axis}),
    HAS_BIAS={has_bias}, ROW_BLOCK=16, STEP_BLOCK=32, COLUMNS=columns, num_warps=8, num_stages=2,
)
return out"""


def write_reduced_linear(exported: ExportedModel) -> str:
    """Returns the candidate's text. Raises NotTransformed."""
    reduction, steps, product = _find(exported)
    name = name_of(reduction)
    name = {"max": "amax", "_softmax": "softmax"}.get(name, name)
    x, weight, bias, outputs_first = operands_of(product)
    if (
        any(not str(n.meta["val"].dtype).endswith("float32") for n in (x, weight))
        or x.meta["val"].dim() != 2
    ):
        raise NotTransformed("it is no layer of fp32 on rows of one axis")
    outputs = size_of(product.meta["val"].shape[1])
    if outputs > MAX_ROW_ELEMENTS:
        raise NotTransformed(f"a row of {outputs} does not fit into a block")
    host = HostText(exported.names, {})
    norm, whole = _Norm(reduction) if name in NORM_NAMES else None, name in WHOLE_ROWS
    shape = "(rows, outputs)" if whole else "(rows, 1)" if keeps_axis(reduction) else "(rows,)"
    body = REDUCED_LINEAR_HOST.format(
        weight=host.of(weight), x=host.of(x), bias="out" if bias is None else host.of(bias),
        has_bias=bias is not None, output_axis=0 if outputs_first else 1, input_axis=1 if outputs_first else 0,
        shape=shape, tensors="".join(f"{host.of(tensor)}, " for tensor in norm.tensors.values()) if norm else "",
    )  # fmt: skip
    # Columns beyond the row's end get the reduction's neutral element.
    beyond, lines = ROW_REDUCTIONS[name]
    if norm is not None:
        lines = lines.replace("EPSILON", repr(norm.epsilon)) + "".join(
            AFFINE[name] for name in norm.tensors
        )
    chain = "".join(f"    value = {expression_of_step(step)}\n" for step in steps)
    kernel = KERNEL.format(
        chain=chain, beyond=beyond, reduction=lines, store=STORE_ALL if whole else STORE_ROWS,
        pointers="".join(f"{name}_pointer, " for name in norm.tensors) if norm else "",
    )  # fmt: skip
    joined = [EXTREMES["amax"].rstrip("\n")] if "larger" in lines else []
    return candidate_text(
        exported, HEAD.format(name=name), [*joined, kernel], [*host.lines, *body.splitlines()]
    )


class _Norm:
    """The weight, the bias and the epsilon of a norm over a graph's last axis."""

    def __init__(self, node: GraphNode) -> None:
        """Reads the arguments of a norm's node. Raises NotTransformed."""
        schema = [argument.name for argument in node.target._schema.arguments]
        arguments = dict(zip(schema, node.args, strict=False)) | node.kwargs
        if len(arguments["normalized_shape"]) != 1:
            raise NotTransformed("it is not the last of two axes that is normalized")
        named = {"scale": arguments.get("weight"), "shift": arguments.get("bias")}
        self.tensors = {name: tensor for name, tensor in named.items() if tensor is not None}
        """Weight and bias by their effect on the rows: `scale` and `shift`."""
        if any(
            not str(tensor.meta["val"].dtype).endswith("float32")
            for tensor in self.tensors.values()
        ):
            raise NotTransformed("its weight is not of fp32")
        epsilon = arguments.get("eps")
        self.epsilon = (
            float(epsilon) if epsilon is not None else 1e-5 if "bias" in schema else FP32_EPSILON
        )


def _find(exported: ExportedModel) -> tuple[Any, list[Any], Any]:
    """Returns the reduction, the operators before it in order, and the product. Raises
    NotTransformed.
    """
    outputs = next(n for n in exported.graph.nodes if n.op == "output").args[0]
    node = outputs[0]
    if len(outputs) == 1 and node.target is operator.getitem and node.args[1] == 0:
        node = node.args[0]
    name = name_of(node)
    if (
        len(outputs) != 1
        or {"max": "amax", "_softmax": "softmax"}.get(name, name) not in ROW_REDUCTIONS
    ):
        raise NotTransformed("what is returned is no reduction of rows")
    if node.args[0].meta["val"].dim() != 2 or (name not in NORM_NAMES and axes_of(node) != [1]):
        raise NotTransformed("it is not the last of two axes that is reduced")
    reduction, node = node, node.args[0]
    steps: list[Any] = []
    while name_of(node) not in ("linear", "matmul", "mm"):
        if node.op != "call_function" or len(node.users) != 1:
            raise NotTransformed("it is no chain behind a linear layer")
        expression_of_step(node)
        steps.insert(0, node)
        node = node.args[0]
    return reduction, steps, node


def expression_of_step(step: GraphNode) -> str:
    """Returns the expression in which a step after the product changes `value`. Raises NotTransformed."""
    name = name_of(step)
    if name in UNARY and len(step.args) == 1:
        return UNARY[name]
    sign = {"mul": "*", "div": "/", "add": "+", "sub": "-"}.get(name)
    number: Any = step.args[1] if len(step.args) == 2 and not step.kwargs else None
    if sign is None or type(number) not in (int, float) or not math.isfinite(number):
        raise NotTransformed(f"{name or step.target} is not written after a product")
    return f"value {sign} {float(number)!r}" if number >= 0 else f"value {sign} ({float(number)!r})"
