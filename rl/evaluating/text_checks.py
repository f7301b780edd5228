"""Checks of a candidate's text alone, as in published corpora of Triton: patterns, and overlap
with a known answer.

They cost nothing and decide nothing. An evaluation reports them beside the tools' verdicts, to
show how far they mislead.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelwright.policies.base import Value

PATTERNS = ("@triton.jit", "tl.program_id", "tl.load", "tl.store", "import triton", "def ")
_WORD = re.compile(r"[A-Za-z_]\w*|\d+|[^\s\w]")


class CheckedText(Value):
    """The text checks of a candidate, beside its verdict."""

    patterns: bool
    overlap: float | None
    """The overlap with a known correct answer; None without an answer."""
    compiled: bool
    correct: bool


class TextCheckFigures(Value):
    """Figures of how well text checks predict the judge's verdict."""

    candidates: int
    passed: float
    """Share of the candidates with all patterns."""
    compiled_of_passed: float | None
    correct_of_passed: float | None
    """Share of correct candidates among those with all patterns."""
    passed_of_wrong: float | None
    """Share of candidates with all patterns among the incorrect."""
    overlap_correct: float | None
    overlap_wrong: float | None
    separation: float | None
    """Probability of a correct candidate's larger overlap compared with an incorrect candidate
    (area under the ROC curve): 0.5 is chance, 1 is perfect separation.
    """


def has_patterns(source: str) -> bool:
    """Returns whether the text contains all marks of a Triton kernel."""
    return all(pattern in source for pattern in PATTERNS)


def overlap(source: str, answer: str) -> float:
    """Returns the Jaccard index of the sets of words and signs, 0 to 1."""
    source_words = set(_WORD.findall(source))
    answer_words = set(_WORD.findall(answer))
    union = source_words | answer_words
    return len(source_words & answer_words) / len(union) if union else 0.0


def text_check_figures(checked: Sequence[CheckedText]) -> TextCheckFigures | None:
    """Returns figures over all candidates; None without candidates."""
    if not checked:
        return None
    passed = [text for text in checked if text.patterns]
    wrong = [text for text in checked if not text.correct]
    right_overlaps: list[float] = []
    wrong_overlaps: list[float] = []
    for text in checked:
        if text.overlap is not None:
            (right_overlaps if text.correct else wrong_overlaps).append(text.overlap)
    return TextCheckFigures(
        candidates=len(checked),
        passed=len(passed) / len(checked),
        compiled_of_passed=_mean([float(text.compiled) for text in passed]),
        correct_of_passed=_mean([float(text.correct) for text in passed]),
        passed_of_wrong=_mean([float(text.patterns) for text in wrong]),
        overlap_correct=_mean(right_overlaps),
        overlap_wrong=_mean(wrong_overlaps),
        separation=separation(right_overlaps, wrong_overlaps),
    )


def separation(right: Sequence[float], wrong: Sequence[float]) -> float | None:
    """Returns the area under the ROC curve, ties counting half; None if either side is empty."""
    if not right or not wrong:
        return None
    ordered = 0.0
    for right_overlap in right:
        for wrong_overlap in wrong:
            ordered += right_overlap > wrong_overlap
            ordered += 0.5 * (right_overlap == wrong_overlap)
    return ordered / (len(right) * len(wrong))


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
