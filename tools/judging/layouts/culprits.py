"""Finds the inputs whose strides a candidate ignores: a single input lies otherwise in each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernelwright.tools.judging.layouts.layout_checks import failure_of_layouts
from kernelwright.tools.judging.rules import JudgeFindings, Rules
from kernelwright.tools.report import LayoutCheck, SizeOutcome
from kernelwright.tools.sizing.at_size import AtSize
from kernelwright.tools.sizing.layout_draws import single_layouts, with_variants
from kernelwright.tools.sizing.selection import Selection

if TYPE_CHECKING:
    from kernelwright.tools.judging.judge import Judge
    from kernelwright.tools.tracing.client import TracedCandidate

TracesVariants = Callable[[Selection], "tuple[TracedCandidate, Mapping[str, Any] | None]"]
"""Traces and compiles the candidate; the second value is None under the interpreter."""


def name_culprits(
    judge: Judge,
    judged: JudgeFindings,
    selection: Selection,
    trace: TracesVariants,
    seed: int,
    rules: Rules,
) -> JudgeFindings:
    """Returns the findings with the names of the inputs whose strides the candidate ignores.

    The findings stay as they are if no call was wrong, or if a single input lay otherwise.
    """
    checks = judged.result.layouts
    if not checks or checks[-1].outcome is not SizeOutcome.WRONG:
        return judged
    size = selection.layouts[len(checks) - 1]
    singles = single_layouts(size.layouts)
    if len(singles) < 2:
        return judged
    problem = selection.base.problem
    variants = with_variants(
        Selection(base=AtSize(index=0, problem=problem)), size, singles, like=None
    )
    candidate, binaries = trace(variants)
    wrong: list[LayoutCheck] = []
    for variant in variants.layouts:
        layout_checks = judge.check_layouts(candidate, variant, seed, rules, binaries)
        wrong += [check for check in layout_checks if check.outcome is SizeOutcome.WRONG]
    if not wrong:
        return judged
    layouts = {name: layout for check in wrong for name, layout in check.layouts.items()}
    culprits: LayoutCheck = wrong[0].with_(layouts=layouts)
    failure = judged.result.failure and failure_of_layouts(size, culprits)
    return judged.with_result(
        judged.result.with_(layouts=(*checks[:-1], culprits), failure=failure)
    )
