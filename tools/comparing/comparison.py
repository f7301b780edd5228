"""The judge's comparison: form first, then numbers against the tolerance that the arithmetic of the problem allows
(tools/numerics/tolerance.py).

Runs only in the trusted process. Works in pieces, so that outputs of 1.6e9 elements cost a few gigabytes; a GPU is
waited for once, at the end. Does not look at aliasing and mutation: the judge knows the buffers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kernelwright.tools.comparing.deviation import (
    Deviation,
    deviation_of_elements,
    deviation_of_floats,
)
from kernelwright.tools.comparing.exactness.accuracy import inaccuracy
from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.comparing.exactness.steps import StepReach
from kernelwright.tools.numerics.tolerance import (
    FP32_EPS,
    Allowance,
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
from kernelwright.tools.report import (
    Check,
    Failure,
    Fault,
    Mismatch,
    Number,
    Pattern,
    Value,
    clean_text,
)
from kernelwright.tools.trace.forms_of_outputs import overlaps

if TYPE_CHECKING:
    import torch


KB_TOLERANCE = {
    "fp32": 1e-4,
    "fp16": 1e-2,
    "bf16": 1e-2,
    "float32": 1e-4,
    "float16": 1e-2,
    "bfloat16": 1e-2,
}
"""KernelBench's atol = rtol by precision (its src/*/eval.py)."""

EXACT_ALLOWANCE = Allowance(factor=1.0, ulps=0.0, rms_ulps=0.0)


class Described(Value):
    """Type and form of an output, before its values are compared.

    `describe` derives it from a real output; a candidate's process may send it.
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
    """Comparison of an output of a call."""

    check: Check
    mismatch: Mismatch | None = None
    fault: Fault | None = None
    """MISMATCH, PRECISION or NON_FINITE for a wrong output."""
    tolerance: Tolerance = Tolerance()
    """Eager's error on this draw, to be carried to a draw that has no float64 reference."""
    headroom: Number = 0.0
    """The largest of error over allowed error, by row and by RMS: over 1 is wrong."""


def describe(value: object) -> Described:
    """Returns type, shape, dtype, device and layout of an output; only the type if it is no tensor."""
    import torch

    if not isinstance(value, torch.Tensor):
        return Described(type=type(value).__name__)
    name = "Tensor" if type(value) is torch.Tensor else type(value).__name__
    dtype, layout = (str(v).removeprefix("torch.") for v in (value.dtype, value.layout))
    if overlaps(value):
        layout = "overlapping"
    return Described(
        type=name, shape=tuple(value.shape), dtype=dtype, device=value.device.type, layout=layout
    )


def form(outputs: Sequence[Described], reference: Sequence[Described]) -> Failure | None:
    """Compares number, type, shape, dtype, device and layout class of outputs. None if all agree.

    A contiguous output may replace a reference's view, and vice versa: only the class of layout
    counts.
    """
    if len(outputs) != len(reference):
        return Failure(
            fault=Fault.OUTPUT,
            message=f"forward returns {len(outputs)} outputs, the reference {len(reference)}",
        )
    for number, (got, want) in enumerate(zip(outputs, reference, strict=True)):
        if failure := _form_of_one(
            got, want, f"output {number}" if len(reference) > 1 else "the output"
        ):
            return failure
    return None


def _form_of_one(got: Described, want: Described, name: str) -> Failure | None:
    wanted_type = "Tensor" if want.layout else want.type
    if got.type != wanted_type:
        expected_type = "torch.Tensor itself" if want.layout else wanted_type
        return Failure(
            fault=Fault.OUTPUT,
            message=clean_text(f"{name} is a {got.type}, not {expected_type}", 200),
        )
    if got.shape != want.shape:
        return Failure(
            fault=Fault.SHAPE,
            message=f"{name} has shape {got.shape}, the reference's has {want.shape}",
        )
    if got.dtype != want.dtype:
        return Failure(
            fault=Fault.DTYPE,
            message=clean_text(f"{name} is {got.dtype}, the reference's is {want.dtype}", 200),
        )
    if got.device != want.device:
        return Failure(
            fault=Fault.OUTPUT,
            message=clean_text(f"{name} is on {got.device}, the reference's on {want.device}", 200),
        )
    if got.layout not in (want.layout, "strided") or (
        got.layout == "strided" and want.layout not in ("strided", "overlapping")
    ):
        return Failure(
            fault=Fault.LAYOUT,
            message=clean_text(f"{name} is {got.layout}, the reference's is {want.layout}", 200),
        )
    return None


def measure(
    candidate: Tensor,
    eager: Tensor,
    exact: Tensor | None = None,
    *,
    kind: ArithmeticKind = ArithmeticKind.ROUNDED,
    eps: float = FP32_EPS,
    draw: str = "own",
    perturbed: Tensor | StepReach | None = None,
    moved: Callable[[], Tensor | StepReach] | None = None,
    tolerance: Tolerance | None = None,
    depth: int = 1,
    dtype: torch.dtype | None = None,
    output: int = 0,
    explained: bool = True,
    small_elements: bool = True,
) -> ComparedOutput:
    """Compares an output of the reference's form.

    exact: the reference in float64 on equal inputs. None: eager replaces it, and `tolerance` from
    another draw holds eager's own error. kind: arithmetic of the output. An exact output must have
    eager's values; stepped outputs and integers are compared by element; all others by row. eps:
    that of the coarsest input. perturbed: the reference on inputs moved by a few ulps: a jump of
    its output shows that the problem is ill-conditioned there, so the candidate's may jump, too.
    The judge's version (perturbed_outputs.py) includes eager's nearby errors. A StepReach for a
    stepped output. draw: source of the inputs; constant rows have a separate scale
    (tools/numerics/tolerance.py). moved: returns `perturbed`, called only if the output is wrong
    without it. depth: input elements summed per output element. dtype: the output's, if these are
    copies in another dtype. explained: describes the wrong elements; otherwise the fault is
    MISMATCH or NON_FINITE. small_elements: also compares elements relative to their own size,
    except near zeros or ends of functions.
    """
    dtype = eager.dtype if dtype is None else dtype
    rule = str(dtype).removeprefix("torch.")
    near = (draw.startswith(Draw.CONSTANT_ROWS), draw.startswith((Draw.TINY, Draw.SCALED)))
    if not eager.numel():
        return ComparedOutput(
            check=Check(draw=draw, passed=True, passed_kb=kernelbench_close(candidate, eager, rule))
        )
    verdict, r = _deviation(
        candidate, eager, exact, perturbed, tolerance, depth, dtype, near, kind, eps
    )
    is_strict = perturbed is None and verdict.headroom <= 1.0
    if verdict.headroom > 1.0 and moved is not None:
        verdict, r = _deviation(
            candidate, eager, exact, moved(), tolerance, depth, dtype, near, kind, eps
        )
    check = Check(
        draw=draw,
        passed=verdict.headroom <= 1.0,
        max_error=verdict.max_error,
        eager_error=verdict.eager_error if exact is not None else None,
        error_ratio=verdict.ratio if exact is not None else None,
        passed_kb=kernelbench_close(candidate, eager, rule)
        if verdict.close is None
        else verdict.close,
    )
    compared = ComparedOutput(check=check, tolerance=verdict.tolerance, headroom=verdict.headroom)
    if check.passed:
        if small_elements and is_strict and exact is not None and verdict.allowed is not None:
            return _with_accuracy(compared, candidate, eager, r, moved, dtype, output)
        return compared
    if not explained:
        return compared.with_(
            fault=Fault.MISMATCH if math.isfinite(verdict.max_error) else Fault.NON_FINITE
        )
    wrong = _wrong_elements(real_parts(candidate), r, verdict)
    return with_mismatch(compared, wrong, candidate, r, output)


def _with_accuracy(
    compared: ComparedOutput, candidate: Tensor, eager: Tensor, exact: Tensor,
    moved: Callable[[], Tensor | StepReach] | None, dtype: torch.dtype, output: int,
) -> ComparedOutput:  # fmt: skip
    """Checks relative errors of elements in an output that its rows' tolerances accept."""
    c, e = real_parts(candidate), real_parts(eager)
    allow, real_type = allowance(dtype.to_real()), dtype.to_real()
    hint, wrong = inaccuracy(c, e, exact, None, allow, real_type)
    if wrong is not None and moved is not None:
        perturbed = moved()
        if isinstance(perturbed, StepReach):
            perturbed = perturbed.moved_from(exact)
        hint, wrong = inaccuracy(c, e, exact, real_parts(perturbed), allow, real_type)
    if wrong is None:
        return compared
    failed = compared.with_(check=compared.check.with_(passed=False), headroom=math.inf)
    return with_mismatch(failed, wrong, candidate, exact, output, hint).with_(fault=Fault.PRECISION)


def is_right(
    candidate: Tensor,
    eager: Tensor,
    exact: Tensor | None = None,
    perturbed: Tensor | None = None,
    depth: int = 1,
) -> bool:
    """Returns only the decision of `measure`, at half the cost."""
    return (
        not eager.numel()
        or _deviation(candidate, eager, exact, perturbed, None, depth, eager.dtype)[0].headroom
        <= 1.0
    )


def _deviation(
    candidate: Tensor,
    eager: Tensor,
    exact: Tensor | None,
    perturbed: Tensor | StepReach | None,
    tolerance: Tolerance | None,
    depth: int,
    dtype: torch.dtype,
    near: tuple[bool, bool] = (False, False),
    kind: ArithmeticKind = ArithmeticKind.ROUNDED,
    eps: float = FP32_EPS,
) -> tuple[Deviation, Tensor]:
    """Returns the deviation, and the reference in the output's shape (complex numbers as pairs).

    dtype: the output's, of which these may be copies. near: whether the rows are constant, whether
    all are near zero.
    """
    shape = tuple(real_parts(eager).shape)
    rows, columns = rows_of(shape)
    c, e = (as_rows(real_parts(t), rows, columns) for t in (candidate, eager))
    r = e if exact is None else as_rows(real_parts(exact), rows, columns).to(e.device)
    is_float = eager.is_floating_point() or eager.is_complex()
    if kind is not ArithmeticKind.ROUNDED or not is_float:
        steps = perturbed
        if perturbed is not None and not isinstance(perturbed, StepReach):
            steps = StepReach.of_distance(as_rows(real_parts(perturbed), rows, columns), r)
        allow = (
            EXACT_ALLOWANCE
            if kind is ArithmeticKind.EXACT or not is_float
            else allowance(dtype.to_real(), depth)
        )
        return deviation_of_elements(
            c, e, r, steps and steps.as_rows(rows, columns), allow, eps
        ), r.reshape(shape)
    s = None if perturbed is None else as_rows(real_parts(perturbed), rows, columns)
    constant = near[0] or _has_constant_rows(e)
    allowed = allowance(dtype.to_real(), depth, constant_rows=constant, tiny=near[1])
    measured = deviation_of_floats(
        c,
        e,
        r,
        s,
        allowed,
        tolerance,
        exact is None,
        _kb_tolerance(str(dtype).removeprefix("torch.")),
    )
    return replace(measured, close=None) if eager.is_complex() else measured, r.reshape(shape)


def _has_constant_rows(rows: Tensor) -> bool:
    """Returns True if each of several rows is constant, as a sum broadcast over its row.

    One of many such sums may be near zero, while its absolute error is as large as elsewhere.
    """
    several = rows.shape[0] > 1 and rows.shape[1] > 1
    return several and bool((rows[0] == rows[0, :1]).all()) and bool((rows == rows[:, :1]).all())


def with_mismatch(
    compared: ComparedOutput,
    wrong: Tensor,
    candidate: Tensor,
    exact: Tensor,
    output: int,
    hint: str = "",
) -> ComparedOutput:
    """Returns the comparison with its wrong elements (a boolean each) explained.

    exact: the expected values, complex numbers as pairs. hint: replaces the pattern's hint.
    """
    from kernelwright.tools.comparing.mismatch_patterns import explain_mismatch

    max_error = compared.check.max_error
    mismatch = explain_mismatch(real_parts(candidate), exact, wrong).with_(
        output=output,
        draw=compared.check.draw,
        max_error=max_error,
        error_ratio=compared.check.error_ratio,
    )
    mismatch = mismatch.with_(hint=hint or mismatch.hint)
    fault = Fault.MISMATCH
    if mismatch.pattern is Pattern.ROUNDING:
        fault = Fault.PRECISION
    elif (
        max_error is not None
        and not math.isfinite(max_error)
        and mismatch.pattern is not Pattern.UNWRITTEN
    ):
        fault = (
            Fault.NON_FINITE
        )  # what is left of the poison is NaN, but says that nothing was written
    return compared.with_(mismatch=mismatch, fault=fault)


def _wrong_elements(candidate: Tensor, exact: Tensor, verdict: Deviation) -> Tensor:
    """Returns a boolean tensor: elements over their row's tolerance; if only the RMS is exceeded,
    those over the error's RMS."""
    import torch

    if verdict.allowed is None:
        assert verdict.wrong is not None
        return verdict.wrong.reshape(exact.shape)
    rows, columns = rows_of(tuple(exact.shape))
    c, r = as_rows(candidate, rows, columns), as_rows(exact, rows, columns)
    wrong, allowed = (
        torch.empty(rows, columns, dtype=torch.bool, device=c.device),
        verdict.allowed.to(c.device),
    )
    for down, across in tiles(rows, columns, c.device.type):
        wrong[down, across] = distance(c[down, across], r[down, across]) > allowed[down, None]
    if not bool(wrong.any()):
        for down, across in tiles(rows, columns, c.device.type):
            gap = distance(c[down, across], r[down, across])
            wrong[down, across] = gap > gap.square().mean().sqrt()
    return wrong.reshape(exact.shape)


def failure_of(measured: ComparedOutput) -> Failure | None:
    """Returns the failure of a wrong output, None for a correct one."""
    if measured.fault is None or measured.mismatch is None:
        return None
    return Failure(
        fault=measured.fault,
        message=describe_mismatch(measured.mismatch),
        mismatch=measured.mismatch,
    )


def describe_mismatch(m: Mismatch) -> str:
    """Returns how many elements are wrong, by how much, on which draw, and the hint: one line."""
    share = f"{m.wrong} of {m.total} elements wrong"
    error = "" if m.max_error is None else f", largest error {m.max_error:.3g}"
    return f"{share}{error} ({m.draw} inputs): {m.hint}"


def kernelbench_close(candidate: Tensor, eager: Tensor, precision: str = "fp32") -> bool:
    """KernelBench's rule: equal shapes, and torch.allclose(eager, candidate) with atol = rtol =
    1e-4 for fp32, 1e-2 for fp16 and bf16.

    Unknown precisions use fp32's. For other dtypes allclose raises, which counts as a failure.
    """
    return is_all_close(candidate, eager, _kb_tolerance(precision))


def _kb_tolerance(precision: str) -> float:
    return KB_TOLERANCE.get(precision, 1e-4)


def is_all_close(candidate: Tensor, eager: Tensor, tolerance: float) -> bool:
    """Returns torch.allclose(eager, candidate) with atol = rtol = tolerance, in pieces."""
    import torch

    if candidate.shape != eager.shape or candidate.dtype != eager.dtype:
        return False
    rows, columns = rows_of(tuple(eager.shape))
    c, e = as_rows(widened(candidate), rows, columns), as_rows(widened(eager), rows, columns)
    bad = torch.zeros((), dtype=torch.bool, device=e.device)
    for down, across in tiles(rows, columns, e.device.type):
        bad |= ~all_close(e[down, across], c[down, across], tolerance)
    return not bool(bad)
