"""The speed of light of a problem: bytes that must move, operations that must be done, and the least time that physics
allows for them.

Two figures from one count, and they are not the same. `roofline` says how good a kernel is: what the reference
computes, at the machine's peaks. `floor_ms` says when a time is impossible, and must never accuse an honest kernel, so
it leaves out all that a clever one may save: operations that algebra or zeros take away, Winograd's and Strassen's
factors, halves of symmetric inputs, what lies in the L2 cache.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.operator_costs import (
    PRODUCT_OPERATORS,
    OperatorTally,
    storage_of,
    trace,
)
from kernelwright.tools.references.reference import Reference
from kernelwright.tools.report import Number, Roofline, Value

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
"""Peaks by which a precision may honestly be reached, and how many products one costs: tf32x3 and splits into
halves keep fp32's accuracy.
"""


class Work(Value):
    """The cost of one call of the reference at full shapes."""

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
    """Input elements over output elements: how long a sum behind one output element may be
    (tools/numerics/tolerance.py).
    """
    unused: tuple[str, ...] = ()
    """Inputs and weights on which the output does not depend: `input 1`, `conv.bias`."""
    notes: tuple[str, ...] = ()


class Structure(Value):
    """Properties of tensors that follow from their values and not from meta tensors."""

    unused: tuple[str, ...] = ()
    kept: dict[str, Number] = {}
    """Share of an input that carries information: 0.5 for a triangle or a symmetric matrix.

    Inputs not named carry all.
    """


def count_work(problem: Problem, structure: Structure | None = None) -> Work:
    """Counts on meta tensors.

    structure: from `structure_of` on shapes that fit; without it every input counts and no operation is held to be
    unavoidable.

    Raises: ProblemError where the reference does not run on meta tensors (it reads values on the host).
    """
    import torch

    reference = Reference(problem, "meta")
    model, inputs = _meta_model(reference), reference.inputs(0)
    named = named_tensors(model, inputs)
    with torch.device("meta"):
        outputs, seen = trace(lambda: reference.run(model, inputs, 0), named.values())
    outputs = [o for o in outputs if isinstance(o, torch.Tensor)]
    if not outputs:
        raise ProblemError(f"the reference {problem.name} returns no tensor")
    return _work(named, outputs, seen, structure)


def _meta_model(reference: Reference) -> Any:
    """Built on meta tensors; on the CPU, with its memory, where `__init__` reads values."""
    try:
        return reference.model(0)
    except ProblemError:
        return Reference(reference.problem, "cpu").model(0).to("meta")


def named_tensors(model: Any, inputs: list[Any]) -> dict[str, Any]:
    """Inputs as `input 0`, then parameters and buffers by their names."""
    import torch

    named = {f"input {i}": v for i, v in enumerate(inputs) if isinstance(v, torch.Tensor)}
    return named | dict(model.named_parameters()) | dict(model.named_buffers())


def _work(
    named: dict[str, Any], outputs: list[Any], seen: OperatorTally, structure: Structure | None
) -> Work:
    unused = structure.unused if structure else ()
    read = {n: seen.bytes_read(t) for n, t in named.items() if n not in unused}
    written = sum(_stored_bytes(o) for o in outputs)
    kept = structure.kept if structure else {}
    certain = {n: b * seen.shares.get(storage_of(named[n]), 1.0) for n, b in read.items()}
    least = sum(int(b * kept.get(n, 1.0)) for n, b in certain.items()) if structure else 0
    products = sum(p.operations for p in seen.products)
    drawn = sum(t.numel() for n, t in named.items() if n.startswith("input "))
    largest = max(seen.products, key=lambda p: p.operations, default=None)
    dtype = largest.dtype if largest else outputs[0].dtype
    return Work(
        bytes=written + sum(read.values()),
        operations=products + seen.elementwise,
        products=products,
        precision=RATE_OF_DTYPE.get(str(dtype).removeprefix("torch."), "fp32"),
        floor_bytes=written + least,
        floor_operations=_least_operations(seen, outputs, structure),
        depth=max(1, drawn // max(1, sum(o.numel() for o in outputs))),
        unused=unused,
    )


def _stored_bytes(tensor: Any) -> int:
    elements = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= size if stride else 1
    return elements * tensor.element_size()


def _least_operations(seen: OperatorTally, outputs: list[Any], structure: Structure | None) -> int:
    """Of one dense product of inputs and weights whose result goes element by element into the output; 0 for everything
    else.

    A sum after a matmul is a smaller matmul, a matmul of triangles a sixth of one, and two matmuls in a row may be
    joined beforehand.
    """
    if (
        structure is None
        or structure.kept
        or structure.unused
        or len(seen.products) != 1
        or not seen.plain
    ):
        return 0
    (product,) = seen.products
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
    """Finds the inputs and weights that the output depends on, bit by bit, and the inputs that are triangular, sparse
    or symmetric. Runs the model a few dozen times.
    """
    import torch

    model, inputs = reference.model(seed), reference.inputs(seed)
    named = named_tensors(model, inputs)
    other = named_tensors(reference.model(seed + 1), reference.inputs(seed + 1))
    kept = {
        n: share
        for n, t in named.items()
        if n.startswith("input ") and (share := _unstructured_share(t)) < 1
    }
    base, again = (_snapshot(reference, model, inputs) for _ in range(2))
    if not all(torch.equal(a, b) for a, b in zip(base, again, strict=True)):
        return Structure(kept=kept)
    unused = [
        n
        for n, t in named.items()
        if not _changes_output(reference, model, inputs, base, t, other[n])
    ]
    return Structure(unused=tuple(unused), kept=kept)


def _snapshot(reference: Reference, model: Any, inputs: list[Any]) -> list[Any]:
    """Outputs, with inputs, weights and buffers put back as they were."""
    import torch

    held = {n: t.clone() for n, t in named_tensors(model, inputs).items()}
    outputs = [o.clone() for o in reference.run(model, inputs, 0) if isinstance(o, torch.Tensor)]
    with torch.no_grad():
        for name, tensor in named_tensors(model, inputs).items():
            tensor.copy_(held[name])
    return [o.nan_to_num() if o.is_floating_point() else o for o in outputs]


def _changes_output(
    reference: Reference, model: Any, inputs: list[Any], base: list[Any], tensor: Any, other: Any
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


def _unstructured_share(tensor: Any) -> float:
    """Share of a tensor that is not structural: zeros are taken off where there are many, half of a symmetric
    matrix.
    """
    if not tensor.numel() or not tensor.is_floating_point():
        return 1.0
    zeros = float((tensor == 0).double().mean())
    if zeros > 0.05:
        return 1.0 - zeros
    square = tensor.dim() == 2 and tensor.shape[0] == tensor.shape[1] > 1
    return 0.5 if square and bool((tensor == tensor.T).all()) else 1.0


def best_rate(precision: str, rates: Mapping[str, float]) -> tuple[str, float] | None:
    """Returns the fastest peak at which `precision` can be reached: its name, such as `tf32/3`, and operations per
    second. None where no peak is known.
    """
    ways = [
        (f"{name}/{parts}" if parts > 1 else name, rates[name] / parts)
        for name, parts in PRODUCTS_OF_RATE.get(precision, {precision: 1}).items()
        if name in rates
    ]
    return max(ways, key=lambda way: way[1], default=None)


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
    """Milliseconds under which no honest call can be. 0 where nothing is known.

    l2_bytes: what may lie in the cache when the call begins, and as much again that may still lie there, unwritten,
    when it ends.
    """
    best = best_rate(work.precision, rates)
    moved = max(0, work.floor_bytes - 2 * l2_bytes) / bytes_per_second if bytes_per_second else 0.0
    done = work.floor_operations / best[1] if best else 0.0
    longest = max(moved, done)
    return 1e3 * longest if math.isfinite(longest) else 0.0
