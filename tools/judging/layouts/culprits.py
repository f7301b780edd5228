"""Which of the inputs in other layouts a candidate is wrong on: one lies otherwise at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernelwright.tools.judging.layouts.layout_checks import failure_of_layouts
from kernelwright.tools.judging.layouts.layout_draws import one_by_one, with_variants
from kernelwright.tools.judging.rules import AtSize, JudgeFindings, Rules
from kernelwright.tools.report import LayoutCheck, SizeOutcome
from kernelwright.tools.sizing.selection import Selection

if TYPE_CHECKING:
    from kernelwright.tools.judging.judge import Judge
    from kernelwright.tools.tracing.client import TracedCandidate

Trace = Callable[[Selection], "tuple[TracedCandidate, Mapping[str, Any] | None]"]
"""Traces and compiles the candidate; the second value is None where it is interpreted."""


def name_culprits(
    judge: Judge, judged: JudgeFindings, selection: Selection, trace: Trace, seed: int, rules: Rules
) -> JudgeFindings:
    """Returns the findings with the inputs alone whose strides the candidate ignores, where it is wrong with several
    inputs in other layouts at once.
    """
    checks = judged.result.layouts
    if not checks or checks[-1].outcome is not SizeOutcome.WRONG:
        return judged
    size = selection.layouts[len(checks) - 1]
    singles = one_by_one(size.layouts)
    if len(singles) < 2:
        return judged
    problem = selection.base.problem
    variants = with_variants(Selection(base=AtSize(index=0, problem=problem)), size, singles, like=None)
    candidate, binaries = trace(variants)
    rules = replace(rules, contiguous_inputs=True)  # every input is looked at, also after one that is wrong
    wrong = [
        check
        for variant in variants.layouts
        for check in judge.check_layouts(candidate, variant, seed, rules, binaries)
        if check.outcome is SizeOutcome.WRONG
    ]
    if not wrong:
        return judged
    layouts = {name: layout for check in wrong for name, layout in check.layouts.items()}
    culprits: LayoutCheck = wrong[0].with_(layouts=layouts)
    failure = judged.result.failure and failure_of_layouts(culprits)
    return judged.with_result(judged.result.with_(layouts=(*checks[:-1], culprits), failure=failure))
