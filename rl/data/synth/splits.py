"""Which split a program belongs to: by what it is made of, never by chance, so that it is the same for every seed and on every machine."""

from __future__ import annotations

import hashlib
from itertools import pairwise

from rl.data.rows import Split

HELD_OUT_FAMILIES = frozenset({"embedding", "quantisation"})
TRAINING_DEPTH = 5
"""Operations of the longest chains in training."""
ONE_IN = 11
"""Of all pairs of neighbouring operations, this one is held out."""


def split_of(family: str, ops: tuple[str, ...]) -> Split:
    """Family first, then depth, then pairs: a program belongs to one split only."""
    if family in HELD_OUT_FAMILIES:
        return Split.HELD_OUT_FAMILY
    if len(ops) > TRAINING_DEPTH:
        return Split.HELD_OUT_DEPTH
    if any(held_out(a, b) for a, b in pairwise(ops)):
        return Split.HELD_OUT_COMPOSITION
    return Split.TRAIN


def held_out(first: str, second: str) -> bool:
    """Whether training never has `second` right after `first`."""
    digest = hashlib.sha256(f"{first}>{second}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % ONE_IN == 0
