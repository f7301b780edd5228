"""Matches requested names to known names.

Spelling, word order and common synonyms may differ; numbers may not. Names are compared after
normalising: "Fused LayerNorm kernel" is "layer norm". Similarities, with 78 % needed for a match:

    norm layer    layer norm    100 %    other order
    softmx        softmax        92 %    misspelt
    conv1d        conv3d         70 %    another number
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kernelwright.tools.problem import Problem, ProblemError

MIN_SIMILARITY_PERCENT = 78.0
"""Minimum similarity (0 to 100) at which a name is accepted as a misspelling."""

MIN_LEAD_PERCENT = 2.0
"""Minimum lead in similarity (0 to 100) of the best name over all others."""

_FILLERS = frozenset(
    [
        "a",
        "an",
        "the",
        "of",
        "for",
        "and",
        "with",
        "over",
        "by",
        "my",
        "please",
        "fused",
        "fast",
        "efficient",
        "optimized",
        "optimised",
        "kernel",
        "kernels",
        "triton",
        "gpu",
        "cuda",
        "op",
        "operator",
        "function",
    ]
)
_SPELLINGS = (
    (re.compile(r"normali[sz]ation|normali[sz]ed?|normalizing"), "norm"),
    (re.compile(r"quantis"), "quantiz"),
    (re.compile(r"convolutional|convolutions?"), "conv"),
    (re.compile(r"activations?"), ""),
    (re.compile(r"multiplication|multiply"), "mul"),
    (re.compile(r"(?<=\d) d\b"), "d"),
)


def normalise_name(text: str) -> str:
    """Returns lower-case words without filler words, in a uniform spelling: "Fused LayerNorm
    kernel" becomes "layer norm".
    """
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", text)
    words = re.sub(r"[^a-z0-9]+", " ", spaced.lower()).strip()
    for pattern, plain in _SPELLINGS:
        words = pattern.sub(plain, words)
    significant = [w for w in words.split() if w not in _FILLERS] or words.split()
    return " ".join(significant)


def similarity_of_keys(first: str, second: str) -> float:
    """Returns the similarity of two normalised names, 0 to 100."""
    from rapidfuzz import fuzz

    # conv1d and conv3d differ in a single character: other numbers stay below the threshold.
    if set(re.findall(r"\d+", first)) != set(re.findall(r"\d+", second)):
        return 0.9 * min(MIN_SIMILARITY_PERCENT, fuzz.ratio(first, second))
    return max(
        fuzz.ratio(first.replace(" ", ""), second.replace(" ", "")),
        fuzz.token_sort_ratio(first, second),
    )


def rank_names(query: str, names: Mapping[str, Iterable[str]]) -> list[tuple[float, str]]:
    """Returns every name with the similarity of its best synonym, most similar first; ties keep
    the given order.
    """
    key = normalise_name(query)
    scored: list[tuple[float, str]] = []
    for name, synonyms in names.items():
        keys = map(normalise_name, (name, *synonyms))
        scored.append((max(similarity_of_keys(key, other) for other in keys), name))
    # The sort is stable: ties stay in the order of `names`.
    return sorted(scored, key=lambda pair: -pair[0])


class NameMatch(NamedTuple):
    """Known name that a query refers to."""

    name: str
    is_exact: bool
    """Whether the words equal those of the name or of a synonym."""

    def note_in(self, problem: Problem, query: str) -> Problem:
        """Returns the problem with the query noted if the match is inexact."""
        return problem if self.is_exact else problem.model_copy(update={"taken_for": query})


def match_name(query: str, names: Mapping[str, Iterable[str]]) -> NameMatch | None:
    """Returns the matching name; None if no name is similar enough.

    Raises ProblemError if two names match.
    """
    if query in names:
        return NameMatch(query, is_exact=True)
    ranked = [
        (score, name) for score, name in rank_names(query, names) if score >= MIN_SIMILARITY_PERCENT
    ]
    if not ranked:
        return None
    best, name = ranked[0]
    key = normalise_name(query).replace(" ", "")
    if any(normalise_name(s).replace(" ", "") == key for s in (name, *names[name])):
        return NameMatch(name, is_exact=True)
    near = [other for score, other in ranked if best - score < MIN_LEAD_PERCENT]
    if len(near) > 1:
        raise ProblemError(f"{query!r} may mean {' or '.join(near)}: name one of them")
    return NameMatch(name, is_exact=False)


def nearest_names(query: str, names: Mapping[str, Iterable[str]], count: int = 5) -> list[str]:
    """Returns the most similar names; common whole words count, too."""
    key = normalise_name(query)
    scores: dict[str, float] = {}
    for name, synonyms in names.items():
        keys = map(normalise_name, (name, *synonyms))
        scores[name] = max(_word_overlap_score(key, other) for other in keys)
    return sorted(scores, key=lambda name: -scores[name])[:count]


def _word_overlap_score(first: str, second: str) -> float:
    from rapidfuzz import fuzz

    return 0.7 * similarity_of_keys(first, second) + 0.3 * fuzz.token_set_ratio(first, second)
