"""Selects combinations of changed surroundings: single ones, typical ones of users, and random
ones."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator

from kernelwright.tools.trace.trace import OF_WEIGHTS, Change

RANDOM_DRAWS = 4
TRAINING = (Change.GRADIENTS, Change.PARAMETERS), (Change.GRADIENTS, Change.VIEWS)
_FORMS_OF_INPUTS = (Change.PARAMETERS, Change.VIEWS)
Changes = tuple[Change, ...]


def single_changes(has_weights: bool, rng: random.Random) -> Iterator[Changes]:
    """Yields every change alone, in random order; strides of weights last, since a wrong answer
    there is no fault."""
    changes = [change for change in Change if has_weights or change not in OF_WEIGHTS]
    for change in sorted(
        rng.sample(changes, len(changes)), key=lambda change: change is Change.STRIDED
    ):
        yield (change,)


def joint_changes(possible: Collection[Change], rng: random.Random) -> Iterator[Changes]:
    """Yields combinations of the changes that the candidate accepts alone."""
    for pair in TRAINING:
        if set(pair) <= set(possible):
            yield pair
    yield _compatible(list(possible), rng)
    for _ in range(RANDOM_DRAWS):
        yield _compatible([change for change in possible if rng.random() < 0.5], rng)


def _compatible(changes: list[Change], rng: random.Random) -> Changes:
    """Removes all but a single form of inputs and a single way of loading weights."""
    for group in (_FORMS_OF_INPUTS, sorted(OF_WEIGHTS)):
        among = [change for change in changes if change in group]
        for change in rng.sample(among, max(0, len(among) - 1)):
            changes.remove(change)
    return tuple(changes)
