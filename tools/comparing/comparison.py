"""The judge's comparison: form first, then numbers against the tolerance that the arithmetic of the problem allows
(tools/comparing/tolerance.py).

Runs only in the trusted process. Works in pieces, so that outputs of 1.6e9 elements cost a few gigabytes; a GPU is
waited for once, at the end. Does not look at aliasing and mutation: the judge knows the buffers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from kernelwright.tools.comparing.deviation import Deviation, deviation_of_floats, deviation_of_integers
from kernelwright.tools.comparing.forms_of_outputs import overlaps
from kernelwright.tools.comparing.tolerance import (
    Tensor,
    Tolerance,
    all_close,
    allowance,
    as_rows,
    distance,
    real_parts,
    rows_of,
    tiles,
    widened,
)
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.report import Check, Failure, Fault, Mismatch, Number, Pattern, Value, clean_text

KB_TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 1e-2, "float32": 1e-4, "float16": 1e-2, "bfloat16": 1e-2}
"""KernelBench's atol = rtol by precision (its src/*/eval.py)."""


class Described(Value):
    """What an output is, before any number is looked at.

    `describe` makes it of a real one; a candidate's process may send it.
    """

    type: str
    """`Tensor` for exactly torch.Tensor, else the type's own name."""
    shape: tuple[int, ...] = ()
    dtype: str = ""
    device: str = ""
    """cpu or cuda: the index is the judge's own affair."""
    layout: str = ""
    """strided, overlapping (two elements lie in one place, as after `expand`), sparse_coo ..."""


class ComparedOutput(Value):
    """One output of one call, compared."""

    check: Check
    mismatch: Mismatch | None = None
    fault: Fault | None = None
    """MISMATCH, PRECISION or NON_FINITE where it is wrong."""
    tolerance: Tolerance = Tolerance()
    """Eager's error on this draw, to be carried to a draw that has no float64 reference."""
    headroom: Number = 0.0
    """The largest of error over allowed error, by row and by RMS: over 1 is wrong."""


def describe(value: Any) -> Described:
    """Returns the type, shape, dtype, device and layout of an output; the type alone where it is no tensor."""
    import torch

    if not isinstance(value, torch.Tensor):
        return Described(type=type(value).__name__)
    name = "Tensor" if type(value) is torch.Tensor else type(value).__name__
    dtype, layout = (str(v).removeprefix("torch.") for v in (value.dtype, value.layout))
    if overlaps(value):
        layout = "overlapping"
    return Described(type=name, shape=tuple(value.shape), dtype=dtype, device=value.device.type, layout=layout)


def form(outputs: Sequence[Described], reference: Sequence[Described]) -> Failure | None:
    """Count, then for each output: type, shape, dtype, device, layout class. None where all agree.

    A contiguous output stands for a reference that returns a view, and the other way round: only the class of layout
    counts.
    """
    if len(outputs) != len(reference):
        return Failure(
            fault=Fault.OUTPUT, message=f"forward returns {len(outputs)} outputs, the reference {len(reference)}"
        )
    for number, (got, want) in enumerate(zip(outputs, reference, strict=True)):
        if failure := _form_of_one(got, want, f"output {number}" if len(reference) > 1 else "the output"):
            return failure
    return None


def _form_of_one(got: Described, want: Described, name: str) -> Failure | None:
    wanted_type = "Tensor" if want.layout else want.type
    if got.type != wanted_type:
        told = "torch.Tensor itself" if want.layout else wanted_type
        return Failure(fault=Fault.OUTPUT, message=clean_text(f"{name} is a {got.type}, not {told}", 200))
    if got.shape != want.shape:
        return Failure(fault=Fault.SHAPE, message=f"{name} has shape {got.shape}, the reference's has {want.shape}")
    if got.dtype != want.dtype:
        return Failure(
            fault=Fault.DTYPE, message=clean_text(f"{name} is {got.dtype}, the reference's is {want.dtype}", 200)
        )
    if got.device != want.device:
        return Failure(
            fault=Fault.OUTPUT, message=clean_text(f"{name} is on {got.device}, the reference's on {want.device}", 200)
        )
    if got.layout not in (want.layout, "strided") or (
        got.layout == "strided" and want.layout not in ("strided", "overlapping")
    ):
        return Failure(
            fault=Fault.LAYOUT, message=clean_text(f"{name} is {got.layout}, the reference's is {want.layout}", 200)
        )
    return None


def measure(
    candidate: Tensor,
    eager: Tensor,
    exact: Tensor | None = None,
    *,
    draw: str = "own",
    perturbed: Tensor | None = None,
    moved: Callable[[], Tensor] | None = None,
    tolerance: Tolerance | None = None,
    depth: int = 1,
    dtype: Any = None,
    output: int = 0,
    explained: bool = True,
) -> ComparedOutput:
    """Compares one output whose form was found equal.

    exact: the reference in float64 on the same inputs. None: eager stands in, and `tolerance` from another draw says
    how wrong eager itself is.
    perturbed: the reference again, on inputs moved by a few ulps: where its output jumps, the problem is
    ill-conditioned there and the candidate may move too. The judge's own (perturbed_outputs.py) is also off by what
    eager is off by nearby.
    draw: whose inputs they come from; rows that are one number each have a scale of their own
    (tools/comparing/tolerance.py).
    moved: gives `perturbed`, and is asked only where the output is wrong without it.
    depth: input elements summed into one output element. dtype: the output's, where these are copies of it in
    where empty. explained: a wrong output says where it is wrong, which takes longer than to find that it is; without
    it the fault is MISMATCH or NON_FINITE.
    """
    dtype = eager.dtype if dtype is None else dtype
    rule = str(dtype).removeprefix("torch.")
    near = (draw.startswith(Draw.CONSTANT_ROWS), draw.startswith((Draw.TINY, Draw.SCALED)))
    if not eager.numel():
        return ComparedOutput(check=Check(draw=draw, passed=True, passed_kb=kernelbench_close(candidate, eager, rule)))
    verdict, r = _deviation(candidate, eager, exact, perturbed, tolerance, depth, dtype, near)
    if verdict.headroom > 1.0 and moved is not None:
        verdict, r = _deviation(candidate, eager, exact, moved(), tolerance, depth, dtype, near)
    check = Check(
        draw=draw,
        passed=verdict.headroom <= 1.0,
        max_error=verdict.max_error,
        eager_error=verdict.eager_error if exact is not None else None,
        error_ratio=verdict.ratio if exact is not None else None,
        passed_kb=kernelbench_close(candidate, eager, rule) if verdict.close is None else verdict.close,
    )
    known = ComparedOutput(check=check, tolerance=verdict.tolerance, headroom=verdict.headroom)
    if check.passed:
        return known
    if not explained:
        return known.with_(fault=Fault.MISMATCH if math.isfinite(verdict.max_error) else Fault.NON_FINITE)
    return _with_mismatch(known, verdict, candidate, r, output)


def is_right(
    candidate: Tensor, eager: Tensor, exact: Tensor | None = None, perturbed: Tensor | None = None, depth: int = 1
) -> bool:
    """The verdict of `measure` alone, at half its price."""
    return (
        not eager.numel() or _deviation(candidate, eager, exact, perturbed, None, depth, eager.dtype)[0].headroom <= 1.0
    )


def _deviation(
    candidate: Tensor,
    eager: Tensor,
    exact: Tensor | None,
    perturbed: Tensor | None,
    tolerance: Tolerance | None,
    depth: int,
    dtype: Any,
    near: tuple[bool, bool] = (False, False),
) -> tuple[Deviation, Tensor]:
    """The deviation, and the reference in the output's shape (complex numbers as pairs).

    dtype: the output's, of which these may be copies. near: whether the rows are one number each, whether all are
    near zero.
    """
    shape = tuple(real_parts(eager).shape)
    rows, columns = rows_of(shape)
    c, e = (as_rows(real_parts(t), rows, columns) for t in (candidate, eager))
    r = e if exact is None else as_rows(real_parts(exact), rows, columns).to(e.device)
    s = None if perturbed is None else as_rows(real_parts(perturbed), rows, columns)
    if not (eager.is_floating_point() or eager.is_complex()):
        return deviation_of_integers(c, e, r, s), r.reshape(shape)
    allowed = allowance(dtype.to_real(), depth, constant_rows=near[0], tiny=near[1])
    found = deviation_of_floats(
        c, e, r, s, allowed, tolerance, exact is None, _kb_tolerance(str(dtype).removeprefix("torch."))
    )
    return replace(found, close=None) if eager.is_complex() else found, r.reshape(shape)


def _with_mismatch(
    known: ComparedOutput, verdict: Deviation, candidate: Tensor, exact: Tensor, output: int
) -> ComparedOutput:
    from kernelwright.tools.comparing.mismatch_patterns import explain_mismatch

    wrong = _wrong_elements(real_parts(candidate), exact, verdict)
    mismatch = explain_mismatch(real_parts(candidate), exact, wrong).with_(
        output=output, draw=known.check.draw, max_error=verdict.max_error, error_ratio=known.check.error_ratio
    )
    fault = Fault.MISMATCH
    if mismatch.pattern is Pattern.ROUNDING:
        fault = Fault.PRECISION
    elif not math.isfinite(verdict.max_error) and mismatch.pattern is not Pattern.UNWRITTEN:
        fault = Fault.NON_FINITE  # what is left of the poison is NaN, but says that nothing was written
    return known.with_(mismatch=mismatch, fault=fault)


def _wrong_elements(candidate: Tensor, exact: Tensor, verdict: Deviation) -> Tensor:
    """Bool, the output's shape: elements over their row's tolerance; where only the RMS is over, those over the RMS
    of the error.
    """
    import torch

    if verdict.allowed is None:
        return candidate != exact
    rows, columns = rows_of(tuple(exact.shape))
    c, r = as_rows(candidate, rows, columns), as_rows(exact, rows, columns)
    wrong, allowed = torch.empty(rows, columns, dtype=torch.bool, device=c.device), verdict.allowed.to(c.device)
    for down, across in tiles(rows, columns, c.device.type):
        wrong[down, across] = distance(c[down, across], r[down, across]) > allowed[down, None]
    if not bool(wrong.any()):
        for down, across in tiles(rows, columns, c.device.type):
            gap = distance(c[down, across], r[down, across])
            wrong[down, across] = gap > gap.square().mean().sqrt()
    return wrong.reshape(exact.shape)


def failure_of(measured: ComparedOutput) -> Failure | None:
    """The failure that a wrong output is, None for a right one."""
    if measured.fault is None or measured.mismatch is None:
        return None
    m = measured.mismatch
    share = f"{m.wrong} of {m.total} elements wrong"
    error = "" if m.max_error is None else f", largest error {m.max_error:.3g}"
    return Failure(fault=measured.fault, message=f"{share}{error} ({m.draw} inputs): {m.hint}", mismatch=m)


def kernelbench_close(candidate: Tensor, eager: Tensor, precision: str = "fp32") -> bool:
    """KernelBench's own rule: equal shapes, and torch.allclose(eager, candidate) with atol = rtol = 1e-4 for fp32, 1e-2
    for fp16 and bf16.

    Unknown precisions take fp32's. Another dtype makes allclose raise there, which is a failure.
    """
    return is_all_close(candidate, eager, _kb_tolerance(precision))


def _kb_tolerance(precision: str) -> float:
    return KB_TOLERANCE.get(precision, 1e-4)


def is_all_close(candidate: Tensor, eager: Tensor, tolerance: float) -> bool:
    """torch.allclose(eager, candidate) with atol = rtol = tolerance, in pieces."""
    import torch

    if candidate.shape != eager.shape or candidate.dtype != eager.dtype:
        return False
    rows, columns = rows_of(tuple(eager.shape))
    c, e = as_rows(widened(candidate), rows, columns), as_rows(widened(eager), rows, columns)
    bad = torch.zeros((), dtype=torch.bool, device=e.device)
    for down, across in tiles(rows, columns, e.device.type):
        bad |= ~all_close(e[down, across], c[down, across], tolerance)
    return not bool(bad)
