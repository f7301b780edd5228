"""Credit: what a turn brought about, against what others did in its place.

A turn is a sample. Its return is its own reward and, discounted, the rewards of the turns that came of it (Kevin,
arXiv:2507.11948, gamma 0.4). The baseline is taken over samples of one problem at one depth (TRLOO: leave-one-out);
nothing is divided by a standard deviation.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

GAMMA = 0.4
MAX_DIFFERENCE_OF_EQUAL_RETURNS = 1e-9
"""Returns that differ by less are equal."""


class AdvantageBaseline(StrEnum):
    """The baseline that is subtracted from a return inside its group to make an advantage."""

    LEAVE_ONE_OUT = "leave-one-out"
    """The mean of the others: N / (N - 1) times the distance from the mean of all."""
    MEAN = "mean"


class CreditedTurn(NamedTuple):
    """The fields of a turn that its credit depends on."""

    id: int
    parent_id: int | None
    """The turn that it repairs or refines; None for a draft."""
    reward: float
    group: Hashable
    """Samples with one group are each other's baseline: problem, depth, policy."""


class Credit(NamedTuple):
    """The return and the advantage of one turn."""

    value: float
    """The turn's return."""
    advantage: float
    group_size: int
    spread: float
    """The largest return of its group less the smallest."""


def returns(turns: Sequence[CreditedTurn], gamma: float = GAMMA) -> dict[int, float]:
    """Returns the return of each turn by id: its reward plus gamma times the mean return of its children. On a chain
    that is the discounted sum of rewards.
    """
    children: dict[int, list[CreditedTurn]] = defaultdict(list)
    known = {turn.id for turn in turns}
    for turn in turns:
        if turn.parent_id in known and turn.parent_id is not None:
            children[turn.parent_id].append(turn)
    found: dict[int, float] = {}
    # A child is written after its parent, so it has the larger id.
    for turn in sorted(turns, key=lambda t: t.id, reverse=True):
        after = [found[child.id] for child in children[turn.id]]
        found[turn.id] = turn.reward + (gamma * math.fsum(after) / len(after) if after else 0.0)
    return found


def credit_of_turns(
    turns: Sequence[CreditedTurn],
    gamma: float = GAMMA,
    baseline: AdvantageBaseline = AdvantageBaseline.LEAVE_ONE_OUT,
) -> dict[int, Credit]:
    """Returns the credit of turns by id. Groups may have any sizes; one that is alone has the advantage 0."""
    values = returns(turns, gamma)
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for turn in turns:
        groups[turn.group].append(turn.id)
    found: dict[int, Credit] = {}
    for ids in groups.values():
        found.update(_of_group({id: values[id] for id in ids}, baseline))
    return found


def _of_group(values: Mapping[int, float], baseline: AdvantageBaseline) -> dict[int, Credit]:
    size = len(values)
    mean = math.fsum(values.values()) / size
    spread = max(values.values()) - min(values.values())
    stretch = size / (size - 1) if baseline is AdvantageBaseline.LEAVE_ONE_OUT and size > 1 else 1.0
    flat = spread < MAX_DIFFERENCE_OF_EQUAL_RETURNS
    return {
        id: Credit(value, 0.0 if flat else stretch * (value - mean), size, 0.0 if flat else spread)
        for id, value in values.items()
    }
