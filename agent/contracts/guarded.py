"""Combines a judged kernel with its contract: comments for the top of the file, and the text with
the guard at its end.

If a judge is available, the text with its guard is judged again, so that the written file is a
judged text.
"""

from __future__ import annotations

import itertools
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
"""First lines of files written by this program."""
CandidateJudge = Callable[[str], Report]
"""Judges a text as a candidate for the problem."""


class GuardedKernel(Value):
    """Text of a kernel file, without comments about its origin."""

    text: str
    lines: tuple[str, ...]
    """Contract as comment lines."""
    contract: Contract | None = None
    """None if the kernel is incorrect or its contract cannot be derived."""
    report: Report | None = None
    """Verdict on the text with its guard; None if not judged."""

    @property
    def is_enforced(self) -> bool:
        """Whether the text checks its contract."""
        return GUARD_MARK in self.text


def guarded_kernel(
    problem: Problem, source: str, report: Report, judge: CandidateJudge | None = None
) -> GuardedKernel:
    """Returns a judged kernel with its contract.

    judge: judges the text with its guard. If the guarded text is incorrect, the kernel is
    returned without guard, and the comments state that the contract is not enforced. None: the
    guard is not judged, which the comments state.
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


def _judged(judge: CandidateJudge | None, text: str) -> Report | None:
    """Returns the verdict; None without a judge or if the judge fails, so that the kernel is not
    lost.
    """
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
    """Removes the comments that this program wrote at the top of a text."""
    if not source.startswith(HEADER_MARKS):
        return source
    lines = source.splitlines(keepends=True)
    code = itertools.dropwhile(lambda line: line.startswith("#"), lines)
    return "".join(code).lstrip("\n")
