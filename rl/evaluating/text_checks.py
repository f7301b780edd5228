"""Checks of a candidate's text alone, as published corpora of Triton use them: patterns, and overlap with a known
answer.

They cost nothing and decide nothing. An evaluation reports them beside the verdicts of the tools, so that a reader sees
how far they mislead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelwright.policies.base import Value

PATTERNS = ("@triton.jit", "tl.program_id", "tl.load", "tl.store", "import triton", "def ")
_WORD = re.compile(r"[A-Za-z_]\w*|\d+|[^\s\w]")


class CheckedText(Value):
    """The text checks of one candidate, beside its verdict."""

    patterns: bool
    overlap: float | None
    """The overlap with an answer known to be right; None where none is."""
    compiled: bool
    correct: bool


class TextCheckFigures(Value):
    """Measures of how well checks of the text alone predict the judge's verdict."""

    candidates: int
    passed: float
    """Share that has all patterns."""
    compiled_of_passed: float | None
    correct_of_passed: float | None
    """Share of those with all patterns that are correct."""
    passed_of_wrong: float | None
    """Share of the incorrect ones that have all patterns."""
    overlap_correct: float | None
    overlap_wrong: float | None
    separation: float | None
    """Probability that a right candidate overlaps more than a wrong one (area under the ROC curve): 0.5 is chance, 1 is
    perfect separation.
    """


def has_patterns(source: str) -> bool:
    """Whether the text has everything that a Triton kernel has to contain."""
    return all(pattern in source for pattern in PATTERNS)


def overlap(source: str, known: str) -> float:
    """Jaccard index over the sets of words and signs, 0 to 1."""
    one, other = set(_WORD.findall(source)), set(_WORD.findall(known))
    return len(one & other) / len(one | other) if one | other else 0.0


def text_check_figures(checked: Sequence[CheckedText]) -> TextCheckFigures | None:
    """Figures over all candidates; None where there is none."""
    if not checked:
        return None
    passed = [own for own in checked if own.patterns]
    wrong = [own for own in checked if not own.correct]
    right_overlaps = [own.overlap for own in checked if own.correct and own.overlap is not None]
    wrong_overlaps = [own.overlap for own in wrong if own.overlap is not None]
    return TextCheckFigures(
        candidates=len(checked),
        passed=len(passed) / len(checked),
        compiled_of_passed=_mean([float(own.compiled) for own in passed]),
        correct_of_passed=_mean([float(own.correct) for own in passed]),
        passed_of_wrong=_mean([float(own.patterns) for own in wrong]),
        overlap_correct=_mean(right_overlaps),
        overlap_wrong=_mean(wrong_overlaps),
        separation=separation(right_overlaps, wrong_overlaps),
    )


def separation(right: Sequence[float], wrong: Sequence[float]) -> float | None:
    """Area under the ROC curve, ties counting half; None where one side is empty."""
    if not right or not wrong:
        return None
    pairs = sum((one > other) + 0.5 * (one == other) for one in right for other in wrong)
    return pairs / (len(right) * len(wrong))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
