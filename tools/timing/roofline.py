"""Speed of light of a problem: bytes to move, operations to compute, and the least time which the
hardware allows.

The count yields two different figures. `roofline` rates a kernel: the reference's work at the
machine's peaks. `floor_ms` tells when a time is impossible. It must never accuse an honest
kernel, and therefore leaves out everything that a clever kernel may save: operations removed by
algebra or zeros, Winograd's and Strassen's factors, halves of symmetric inputs, data in the L2
cache.

Example: x @ w with 4096 x 4096 fp16 matrices costs 2 * 4096**3 = 137 G operations and 3 * 32 MiB.
On an H100 (989 T operations and 3.35 TB per second) the roofline is 0.139 ms, bound by
operations: the bytes take 0.030 ms.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.operator_costs import (
    PRODUCT_OPERATORS,
    OperatorTally,
    storage_of,
    trace,
)
from kernelwright.tools.references.reference import Reference
from kernelwright.tools.report import Number, Roofline, Value

if TYPE_CHECKING:
    import torch

WINOGRAD_FACTOR = 4
"""F(4x4, 3x3) multiplies a quarter as often as a direct convolution (Lavin and Gray 2016)."""
STRASSEN_FACTOR = 0.75
"""Two levels: (7/8)^2, rounded down."""
RATE_OF_DTYPE = {
    "float64": "fp64",
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "int8": "int8",
}
PRODUCTS_OF_RATE = {
    "fp32": {"fp32": 1, "tf32": 3, "fp16": 3, "bf16": 3},
    "fp64": {"fp64": 1, "fp64_tensor": 1},
    "fp16": {"fp16": 1},
    "bf16": {"bf16": 1},
}
"""Peaks by which a precision may honestly be reached, with the number of products each needs:
tf32x3 and splits into halves keep fp32's accuracy.
"""


class Work(Value):
    """Cost of a call of the reference at full shapes."""

    bytes: int | None = None
    """Outputs, weights, and inputs on which the output depends; of a table only the rows that are looked up."""
    operations: int | None = None
    products: int | None = None
    """The part of the operations that is in matmul, convolution and attention."""
    precision: str = ""
    """The precision (fp32, fp16 ...) of the largest product's operands, or of the first output."""
    floor_bytes: int = 0
    """Bytes that no kernel can avoid moving."""
    floor_operations: int = 0
    """Operations that no kernel can avoid: 0 wherever algebra or structure might save them."""
    depth: int = 1
    """Ratio of input to output elements: the possible length of a sum behind an output element
    (tools/numerics/tolerance.py).
    """
    unused: tuple[str, ...] = ()
    """Inputs and weights on which the output does not depend: `input 1`, `conv.bias`."""
    notes: tuple[str, ...] = ()


class Structure(Value):
    """Properties of tensors that follow from their values and not from meta tensors."""

    unused: tuple[str, ...] = ()
    shares: dict[str, Number] = {}
    """Share of an input that carries information: 0.5 for a triangle or a symmetric matrix.

    Inputs not named carry all.
    """


def count_work(problem: Problem, structure: Structure | None = None) -> Work:
    """Counts bytes and operations on meta tensors.

    structure: from `structure_of` on shapes that fit; without it every input counts and no
    operation is unavoidable.

    Raises: ProblemError if the reference cannot run on meta tensors (it reads values on the
    host).
    """
    import torch

    reference = Reference(problem, "meta")
    model, inputs = _meta_model(reference), reference.inputs(0)
    named = named_tensors(model, inputs)
    with torch.device("meta"):
        outputs, tally = trace(lambda: reference.run(model, inputs, 0), named.values())
    outputs = [o for o in outputs if isinstance(o, torch.Tensor)]
    if not outputs:
        raise ProblemError(f"the reference {problem.name} returns no tensor")
    return _work(named, outputs, tally, structure)


def _meta_model(reference: Reference) -> Any:
    """Builds the model on meta tensors; on the CPU, with memory, if `__init__` reads values."""
    try:
        return reference.model(0)
    except ProblemError:
        return Reference(reference.problem, "cpu").model(0).to("meta")


def named_tensors(model: torch.nn.Module, inputs: list[Any]) -> dict[str, Any]:
    """Inputs as `input 0`, then parameters and buffers by their names."""
    import torch

    named = {f"input {i}": v for i, v in enumerate(inputs) if isinstance(v, torch.Tensor)}
    return named | dict(model.named_parameters()) | dict(model.named_buffers())


def _work(
    named: dict[str, Any], outputs: list[Any], tally: OperatorTally, structure: Structure | None
) -> Work:
    unused = structure.unused if structure else ()
    read = {n: tally.bytes_read(t) for n, t in named.items() if n not in unused}
    written = sum(_stored_bytes(o) for o in outputs)
    shares = structure.shares if structure else {}
    certain = {n: b * tally.shares.get(storage_of(named[n]), 1.0) for n, b in read.items()}
    least = sum(int(b * shares.get(n, 1.0)) for n, b in certain.items()) if structure else 0
    products = sum(p.operations for p in tally.products)
    drawn = sum(t.numel() for n, t in named.items() if n.startswith("input "))
    largest = max(tally.products, key=lambda p: p.operations, default=None)
    dtype = largest.dtype if largest else outputs[0].dtype
    return Work(
        bytes=written + sum(read.values()),
        operations=products + tally.elementwise,
        products=products,
        precision=RATE_OF_DTYPE.get(str(dtype).removeprefix("torch."), "fp32"),
        floor_bytes=written + least,
        floor_operations=_least_operations(tally, outputs, structure),
        depth=max(1, drawn // max(1, sum(o.numel() for o in outputs))),
        unused=unused,
    )


def _stored_bytes(tensor: torch.Tensor) -> int:
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else 1
    return elements * tensor.element_size()


def _least_operations(tally: OperatorTally, outputs: list[Any], structure: Structure | None) -> int:
    """Returns the operations of a dense product of inputs and weights whose result goes
    elementwise into the output; 0 for everything else.

    A sum after a matmul is a smaller matmul, a matmul of triangles a sixth of the work, and two
    consecutive matmuls may be joined beforehand.
    """
    if (
        structure is None
        or structure.shares
        or structure.unused
        or len(tally.products) != 1
        or not tally.plain
    ):
        return 0
    (product,) = tally.products
    if (
        product.name not in PRODUCT_OPERATORS
        or not product.direct
        or sum(o.numel() for o in outputs) < product.out
    ):
        return 0
    return int(
        product.operations * STRASSEN_FACTOR / (WINOGRAD_FACTOR if product.window > 1 else 1)
    )


def structure_of(reference: Reference, seed: int = 0) -> Structure:
    """Finds the inputs and weights which affect the output, bit by bit, and inputs which are
    triangular, sparse or symmetric. Runs the model a few dozen times.
    """
    import torch

    model = reference.model(seed)
    inputs = reference.inputs(seed)
    named = named_tensors(model, inputs)
    other = named_tensors(reference.model(seed + 1), reference.inputs(seed + 1))
    products = {
        n: share
        for n, t in named.items()
        if n.startswith("input ") and (share := _unstructured_share(t)) < 1
    }
    base, again = (_snapshot(reference, model, inputs) for _ in range(2))
    if not all(torch.equal(a, b) for a, b in zip(base, again, strict=True)):
        return Structure(shares=products)
    unused = [
        n
        for n, t in named.items()
        if not _changes_output(reference, model, inputs, base, t, other[n])
    ]
    return Structure(unused=tuple(unused), shares=products)


def _snapshot(reference: Reference, model: torch.nn.Module, inputs: list[Any]) -> list[Any]:
    """Outputs, with inputs, weights and buffers put back as they were."""
    import torch

    held = {n: t.clone() for n, t in named_tensors(model, inputs).items()}
    outputs = [o.clone() for o in reference.run(model, inputs, 0) if isinstance(o, torch.Tensor)]
    with torch.no_grad():
        for name, tensor in named_tensors(model, inputs).items():
            tensor.copy_(held[name])
    return [o.nan_to_num() if o.is_floating_point() else o for o in outputs]


def _changes_output(
    reference: Reference,
    model: torch.nn.Module,
    inputs: list[Any],
    base: list[Any],
    tensor: torch.Tensor,
    other: torch.Tensor,
) -> bool:
    """Whether another draw, or 20 times that with mixed signs, changes the output at all."""
    import torch

    from kernelwright.tools.references.input_distributions import Draw, apply_draw

    held = tensor.detach().clone()
    for large in (False, True):
        values = [
            other.detach().clone()
            + (1e-2 if torch.equal(other, held) and held.is_floating_point() else 0)
        ]
        if large:
            apply_draw(Draw.LARGE, values)
        with torch.no_grad():
            tensor.copy_(values[0])
            changed = any(
                not torch.equal(a, b)
                for a, b in zip(base, _snapshot(reference, model, inputs), strict=True)
            )
            tensor.copy_(held)
        if changed:
            return True
    return False


def _unstructured_share(tensor: torch.Tensor) -> float:
    """Returns the share of a tensor without structure: without zeros, if there are many, and with
    half of a symmetric matrix.
    """
    if not tensor.numel() or not tensor.is_floating_point():
        return 1.0
    zeros = float((tensor == 0).double().mean())
    if zeros > 0.05:
        return 1.0 - zeros
    square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1] > 1
    return 0.5 if square and bool((tensor == tensor.T).all()) else 1.0


def best_rate(precision: str, rates: Mapping[str, float]) -> tuple[str, float] | None:
    """Returns the fastest peak at which `precision` can be reached: its name, such as `tf32/3`,
    and operations per second. None if no peak is known.
    """
    reachable = [
        (f"{name}/{parts}" if parts > 1 else name, rates[name] / parts)
        for name, parts in PRODUCTS_OF_RATE.get(precision, {precision: 1}).items()
        if name in rates
    ]
    return max(reachable, key=lambda rate: rate[1], default=None)


def roofline(work: Work, bytes_per_second: float | None, rates: Mapping[str, float]) -> Roofline:
    """The larger of bytes and operations over their peaks.

    rates: dense peaks by format, as tools/hardware/peaks.py names them.
    """
    best = best_rate(work.precision, rates)
    times: dict[str, float] = {}
    if work.bytes is not None and bytes_per_second:
        times["memory"] = 1e3 * work.bytes / bytes_per_second
    if work.operations is not None and best:
        simple = rates.get("fp32", best[1])
        times["compute"] = 1e3 * max(
            (work.products or 0) / best[1], (work.operations - (work.products or 0)) / simple
        )
    bound = max(times, key=lambda b: times[b], default="")
    return Roofline(
        bytes=work.bytes,
        operations=work.operations,
        bytes_per_second=bytes_per_second,
        operations_per_second=best[1] if best else None,
        rate_name=best[0] if best else "",
        milliseconds=times.get(bound),
        bound=bound,
    )


def floor_ms(
    work: Work, bytes_per_second: float | None, rates: Mapping[str, float], l2_bytes: int = 0
) -> float:
    """Returns the milliseconds below which no honest call can be. 0 if unknown.

    l2_bytes: size of the cache, which may hold inputs when the call begins, and unwritten outputs
    when it ends.
    """
    best = best_rate(work.precision, rates)
    moved = max(0, work.floor_bytes - 2 * l2_bytes) / bytes_per_second if bytes_per_second else 0.0
    done = work.floor_operations / best[1] if best else 0.0
    longest = max(moved, done)
    return 1e3 * longest if math.isfinite(longest) else 0.0
