"""A judged kernel with its contract: comments for the top of its file, and its text with the guard at the end.

The judge judges the text with its guard once more where it is at hand, so that the file is what was judged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from kernelwright.agent.contracts.contract import Contract
from kernelwright.agent.contracts.contract_lines import contract_lines
from kernelwright.agent.contracts.deriving import contract_of
from kernelwright.agent.contracts.guard_text import GUARD_MARK, with_guard, without_guard
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.reference_trials.eval_mode import in_eval_mode
from kernelwright.tools.report import InfrastructureError, Report, Value, clean_text

log = logging.getLogger(__name__)
HEADER_MARKS = ("# Written by kernelwright", "# Tuned by kernelwright")
"""How the files begin that this program writes."""
Judge = Callable[[str], Report]
"""Judges a text as a candidate for the problem."""


class GuardedKernel(Value):
    """The text of a kernel file without the comments that say where it comes from."""

    text: str
    lines: tuple[str, ...]
    """The contract as comments."""
    contract: Contract | None = None
    """None where the kernel is not correct, or where its contract cannot be derived."""
    report: Report | None = None
    """The verdict on the text with its guard; None where it was not judged."""

    @property
    def is_enforced(self) -> bool:
        """Whether the text checks its contract."""
        return GUARD_MARK in self.text


def guarded_kernel(
    problem: Problem, source: str, report: Report, judge: Judge | None = None
) -> GuardedKernel:
    """Returns a judged kernel with its contract.

    judge: judges the text with its guard. Where that is not correct the kernel stays as it was judged, and the comments
    say that nothing enforces its contract. None: the guard is not judged, which the comments say.
    """
    kernel = without_guard(without_header(source))
    if not report.correct:
        return GuardedKernel(
            text=kernel, lines=("# contract   none         this text is not correct",)
        )
    judged = (in_eval_mode(problem) or problem) if report.eval_mode else problem
    try:
        contract = contract_of(judged, report)
    except (ProblemError, InfrastructureError) as error:
        reason = " ".join(clean_text(error, 200).split())
        return GuardedKernel(text=kernel, lines=(f"# contract   none         {reason}",))
    lines = contract_lines(contract, report)
    text = with_guard(kernel, contract)
    verdict = _judged(judge, text)
    if verdict is not None and not verdict.correct:
        reason = " ".join(clean_text(verdict.explanation, 200).split())
        lines.append(
            f"# contract   enforced    no: the judge refused the text with its checks ({reason})"
        )
        return GuardedKernel(text=kernel, lines=tuple(lines), contract=contract, report=verdict)
    return GuardedKernel(
        text=text, lines=(*lines, _enforced(verdict)), contract=contract, report=verdict
    )


def _judged(judge: Judge | None, text: str) -> Report | None:
    """Returns the verdict; None where nobody judges, or where the judge itself fails: the kernel is not lost."""
    if judge is None:
        return None
    try:
        return judge(text)
    except InfrastructureError as error:
        log.warning("the kernel with its contract is not judged: %s", error)
        return None


def _enforced(verdict: Report | None) -> str:
    judged = (
        "these checks are not judged"
        if verdict is None
        else "this very text was judged once more and is correct"
    )
    return f"# contract   enforced    by the checks at the end of this file; {judged}"


def without_header(source: str) -> str:
    """Returns a text without the comments that this program wrote at its top."""
    if not source.startswith(HEADER_MARKS):
        return source
    lines = source.splitlines(keepends=True)
    count = next(
        (index for index, line in enumerate(lines) if not line.startswith("#")), len(lines)
    )
    return "".join(lines[count:]).lstrip("\n")
