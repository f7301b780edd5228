"""One output compared by the rule of the draw that it comes from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from kernelwright.tools.comparing.comparison import ComparedOutput, measure, measure_finite_part, measure_with_nan
from kernelwright.tools.comparing.tolerance import Tensor, Tolerance
from kernelwright.tools.faults import Fault
from kernelwright.tools.references.input_distributions import Draw

if TYPE_CHECKING:
    from kernelwright.tools.references.prepared_problem import Expected

TF32_SHARE = 0.22
"""Of the reference's error in tf32, which counts as eager's own: `measure` allows eight times that, so a candidate
may be off by 1.76 times what tf32 is off by. Eight times the whole would let bf16 pass
(tests/tools/comparing/test_by_draw.py).
"""
TF32_LEAST_RMS = 1.0
"""Of the RMS of that error over the whole output: the least that counts at any element."""


def measure_by_draw(
    mine: Tensor,
    expected: Expected,
    number: int,
    name: str,
    tolerance: Tolerance | None = None,
    moved: Callable[[], list[Tensor]] | None = None,
    tf32_errors: Callable[[], list[Tensor] | None] = lambda: None,
) -> ComparedOutput:
    """Compares output `number` of a candidate with what is expected.

    name: of the draw, as it is told. tolerance: eager's error on another draw, for one without float64. moved: outputs
    off by what an honest candidate may be off by. tf32_errors: by how much the outputs are off where the problem's
    convolutions are in tf32, None where it has none; both are asked for only where the output is wrong without them.
    """
    eager = expected.eager[number]
    exact = None if expected.exact is None else expected.exact[number]
    carried = tolerance if exact is None else None
    shaken = None if moved is None else lambda: moved()[number]

    def compared(shaken: Callable[[], Tensor] | None, *, explained: bool) -> ComparedOutput:
        given: dict[str, Any] = {"draw": name, "output": number, "moved": shaken, "explained": explained}
        if expected.draw == Draw.NAN:
            return measure_with_nan(mine, eager, exact, **given)
        if expected.draw == Draw.INFINITE or (expected.draw == Draw.ZERO_ROWS and not expected.finite()):
            return measure_finite_part(mine, eager, exact, inputs=expected.inputs, **given)
        return measure(mine, eager, exact, tolerance=carried, **given)

    special = expected.draw == Draw.NAN or not expected.finite()
    plain = None if special else shaken
    found = compared(plain, explained=False)
    if found.check.passed:
        return found
    errors = tf32_errors() if found.fault is Fault.MISMATCH and mine.is_floating_point() else None
    if errors is not None:
        base = eager if exact is None else exact
        off = partial(_off_by, base, errors[number])
        again = compared(lambda: off(None if special or shaken is None else shaken()), explained=False)
        if again.check.passed:
            return _noted(again)
    return compared(plain, explained=True)


def _off_by(base: Tensor, errors: Tensor, shaken: Tensor | None) -> Tensor:
    """Outputs whose distance from `base` is the error that an honest candidate may have: at each element the largest of
    the scaled tf32 error there, of its RMS (behind a relu the error of one run may be 0 by luck), and of the distance
    of `shaken`.
    """
    import torch

    errors = errors.nan_to_num(nan=0.0, posinf=0.0)
    finite = errors[errors < torch.finfo(torch.float32).max ** 0.5]
    least = TF32_LEAST_RMS * finite.double().square().mean().sqrt() if finite.numel() else 0.0
    off = errors.clamp(min=least).mul_(TF32_SHARE)
    if shaken is not None:
        off = torch.maximum(off, (shaken - base).abs().nan_to_num(nan=0.0, posinf=0.0))
    return base + off


def _noted(measured: ComparedOutput) -> ComparedOutput:
    note = "within what the problem's convolutions are off by in tf32, torch's default for them on a GPU"
    return measured.with_(check=measured.check.with_(note=note))
