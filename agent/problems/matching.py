"""Finds the problem that a name means: spelling, word order and usual synonyms are forgiven, another number is not
(conv3d is not conv1d).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from kernelwright.tools.problem import Problem, ProblemError

MIN_SIMILARITY_PERCENT = 78.0
"""Least likeness, of 100, at which a name is taken for another."""

MIN_LEAD_PERCENT = 2.0
"""How much liker the name that is meant must be than every other one, of 100."""

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
    """Lower case, words apart, without fillers, one spelling: "Fused LayerNorm kernel" is "layer norm"."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", " ", text)
    words = re.sub(r"[^a-z0-9]+", " ", apart.lower()).strip()
    for pattern, plain in _SPELLINGS:
        words = pattern.sub(plain, words)
    kept = [w for w in words.split() if w not in _FILLERS] or words.split()
    return " ".join(kept)


def similarity_of_keys(one: str, other: str) -> float:
    """0 to 100, of two keys."""
    from rapidfuzz import fuzz

    if set(re.findall(r"\d+", one)) != set(re.findall(r"\d+", other)):
        return 0.9 * min(MIN_SIMILARITY_PERCENT, fuzz.ratio(one, other))
    return max(
        fuzz.ratio(one.replace(" ", ""), other.replace(" ", "")), fuzz.token_sort_ratio(one, other)
    )


def rank_names(asked: str, names: Mapping[str, Iterable[str]]) -> list[tuple[float, str]]:
    """Every name with the likeness of its best synonym, the likest first; equally like ones in the order given."""
    wanted = normalise_name(asked)
    scored = [
        (max(similarity_of_keys(wanted, normalise_name(s)) for s in (name, *synonyms)), name)
        for name, synonyms in names.items()
    ]
    return sorted(scored, key=lambda pair: -pair[0])


class NameMatch(NamedTuple):
    """The name that a text means."""

    name: str
    is_exact: bool
    """The words are those of the name, or of one of its synonyms."""

    def note_in(self, problem: Problem, asked: str) -> Problem:
        """Returns the problem of that name, which holds what was asked where its own name is only near to it."""
        return problem if self.is_exact else problem.model_copy(update={"taken_for": asked})


def match_name(asked: str, names: Mapping[str, Iterable[str]]) -> NameMatch | None:
    """Returns the name that was meant; None where none is like enough. Raises ProblemError where it may mean two."""
    if asked in names:
        return NameMatch(asked, is_exact=True)
    ranked = [
        (score, name) for score, name in rank_names(asked, names) if score >= MIN_SIMILARITY_PERCENT
    ]
    if not ranked:
        return None
    best, name = ranked[0]
    wanted = normalise_name(asked).replace(" ", "")
    if any(normalise_name(s).replace(" ", "") == wanted for s in (name, *names[name])):
        return NameMatch(name, is_exact=True)
    near = [other for score, other in ranked if best - score < MIN_LEAD_PERCENT]
    if len(near) > 1:
        raise ProblemError(f"{asked!r} may mean {' or '.join(near)}: name one of them")
    return NameMatch(name, is_exact=False)


def nearest_names(asked: str, names: Mapping[str, Iterable[str]], count: int = 5) -> list[str]:
    """The nearest names, whole words in common counting too."""
    wanted = normalise_name(asked)
    scores = {
        n: max(_word_overlap_score(wanted, normalise_name(s)) for s in (n, *synonyms))
        for n, synonyms in names.items()
    }
    return sorted(scores, key=lambda n: -scores[n])[:count]


def _word_overlap_score(one: str, other: str) -> float:
    from rapidfuzz import fuzz

    return 0.7 * similarity_of_keys(one, other) + 0.3 * fuzz.token_set_ratio(one, other)
