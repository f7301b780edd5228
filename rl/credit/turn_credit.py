"""Credit assignment: a turn's return compared with the returns of alternatives.

A turn is a sample. Its return is its own reward plus the discounted rewards of the turns derived
from it (Kevin, arXiv:2507.11948, gamma 0.4). The baseline is taken over samples of the same
problem at the same depth (TRLOO: leave-one-out); nothing is divided by a standard deviation.

    draft 1 (reward 0) -> repair 2 (reward 1): returns {1: 0 + 0.4 * 1 = 0.4, 2: 1}
    a group with returns 0.4 and 0: advantages 2 / (2 - 1) * (0.4 - 0.2) = 0.4 and -0.4
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

GAMMA = 0.4
"""Discount of a later turn's reward (Kevin, arXiv:2507.11948)."""
MAX_DIFFERENCE_OF_EQUAL_RETURNS = 1e-9
"""Returns with a smaller difference are equal."""


class AdvantageBaseline(StrEnum):
    """The baseline subtracted from a return inside its group to get an advantage."""

    LEAVE_ONE_OUT = "leave-one-out"
    """The mean of the other returns: N / (N - 1) times the distance from the mean of all."""
    MEAN = "mean"


class CreditedTurn(NamedTuple):
    """The fields of a turn that determine its credit."""

    id: int
    parent_id: int | None
    """The turn it repairs or refines; None for a draft."""
    reward: float
    group: Hashable
    """Samples with equal groups are each other's baseline: problem, depth, policy."""


class Credit(NamedTuple):
    """The return and the advantage of a turn."""

    value: float
    """The turn's discounted return."""
    advantage: float
    group_size: int
    spread: float
    """The largest return of the group minus the smallest."""


def returns(turns: Sequence[CreditedTurn], gamma: float = GAMMA) -> dict[int, float]:
    """Returns the return of each turn by id: its reward plus gamma times the mean return of its
    children. On a chain this is the discounted sum of rewards.
    """
    children: dict[int, list[CreditedTurn]] = defaultdict(list)
    ids = {turn.id for turn in turns}
    for turn in turns:
        if turn.parent_id is not None and turn.parent_id in ids:
            children[turn.parent_id].append(turn)
    values: dict[int, float] = {}
    # A child is written after its parent and has a larger id: its return is computed first.
    for turn in sorted(turns, key=lambda turn: turn.id, reverse=True):
        later = [values[child.id] for child in children[turn.id]]
        values[turn.id] = turn.reward + (gamma * math.fsum(later) / len(later) if later else 0.0)
    return values


def credit_of_turns(
    turns: Sequence[CreditedTurn],
    gamma: float = GAMMA,
    baseline: AdvantageBaseline = AdvantageBaseline.LEAVE_ONE_OUT,
) -> dict[int, Credit]:
    """Returns the credit of turns by id. Groups may have any sizes; a turn alone in its group has
    the advantage 0.
    """
    values = returns(turns, gamma)
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for turn in turns:
        groups[turn.group].append(turn.id)
    credits: dict[int, Credit] = {}
    for ids in groups.values():
        credits.update(_of_group({id: values[id] for id in ids}, baseline))
    return credits


def _of_group(values: Mapping[int, float], baseline: AdvantageBaseline) -> dict[int, Credit]:
    """Returns the credit of the turns of a group, from their returns."""
    size = len(values)
    mean = math.fsum(values.values()) / size
    spread = max(values.values()) - min(values.values())
    # The mean of the other returns: the distance from it is N / (N - 1) times that from the mean.
    leaves_one_out = baseline is AdvantageBaseline.LEAVE_ONE_OUT and size > 1
    stretch = size / (size - 1) if leaves_one_out else 1.0
    if spread < MAX_DIFFERENCE_OF_EQUAL_RETURNS:
        return {turn_id: Credit(value, 0.0, size, 0.0) for turn_id, value in values.items()}
    return {
        turn_id: Credit(value, stretch * (value - mean), size, spread)
        for turn_id, value in values.items()
    }
