"""Chooses multipliers of dimensions: near blocks, beyond them, odd and aligned, within a budget, from one generator
of random numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from kernelwright.tools.sizing.primes_and_divisors import (
    PRIME_SPREAD,
    irregular_number,
    is_power_of_two,
    is_prime,
    prime_between,
)
from kernelwright.tools.sizing.structure import Budget, Load, SizeStructure

USUAL_BLOCKS = (16, 32, 64, 128, 256, 512, 1024)
"""Tried after a candidate's own: it may compute its block sizes rather than write them."""
MAX_BLOCKS = 24
MAX_BLOCK_SIZE = 1 << 20
MAX_MULTIPLIER = 1 << 26
"""Largest multiplier of a dimension."""
PRECISION_BITS = 6
"""Binary digits to which the largest affordable multiplier is sought."""
T = TypeVar("T")
ALIGNMENTS = (64, 32, 16)
"""Triton compiles another kernel for numbers that 16 divides."""
SMALL_BLOCKS = (32, 16, 8)
"""Block sizes that every dimension should exceed where the budget admits no block of the candidate's."""
FAR_BLOCKS = 3
"""The largest blocks, beyond which a dimension is tried before anything else."""
FRESH_DRAWS = 4
"""Draws of a number that should differ from those of the other dimensions."""
BLOCK_MULTIPLES = (3.4, 2.6, 2.0, 1.5, 1.1)
"""Multiples of a block at which a dimension is drawn, so that a loop has several iterations."""
BUDGET_FACTOR = 2
"""Factor by which the budget is enlarged over the smallest sizes of all where they exceed it."""
ROW_BUDGET_FACTOR = 4


@dataclass(frozen=True)
class WishedNumber:
    """A number that a dimension should come to, or the next one that it can."""

    number: int
    upwards: bool

    def multiplier(self, unit: int) -> int:
        """unit: by how much one step of the multiplier moves the number."""
        return -(-self.number // unit) if self.upwards else self.number // unit


def usable_blocks(blocks: Iterable[int], random: Random) -> tuple[int, ...]:
    """Returns distinct block sizes, the smallest first. A candidate's text may name any number of them: of too many,
    powers of two stay, and some of the others.
    """
    own = sorted({b for b in blocks if type(b) is int and 4 <= b <= MAX_BLOCK_SIZE})
    if len(own) > MAX_BLOCKS:
        powers = [b for b in own if is_power_of_two(b)]
        others = [b for b in own if b not in powers]
        own = sorted(powers + random.sample(others, min(len(others), max(0, MAX_BLOCKS - len(powers)))))
    return tuple(own or USUAL_BLOCKS)


def widen_budget(budget: Budget, structure: SizeStructure) -> Budget:
    """The budget, made just large enough for the smallest sizes that the reference takes, and for several times
    their rows.
    """
    if structure.least is None:
        return budget
    least, guess = Load.of(structure.least), structure.load(structure.floors)
    if budget.rows:
        budget = budget.with_(rows=max(budget.rows, int(least.rows * ROW_BUDGET_FACTOR)))
    if budget.admits(guess) and budget.admits(least):
        return budget
    return budget.with_(
        calls=max(budget.calls, int(max(least.calls, guess.calls) * BUDGET_FACTOR)),
        elements=max(budget.elements, int(max(least.elements, guess.elements) * BUDGET_FACTOR) + 1),
        operations=max(budget.operations, int(max(least.operations, guess.operations) * BUDGET_FACTOR) + 1),
    )


class Chooser:
    """Multipliers for one problem, one budget and one generator."""

    def __init__(
        self,
        structure: SizeStructure,
        blocks: Sequence[int],
        written: Mapping[str, int],
        budget: Budget,
        random: Random,
    ) -> None:
        self.structure, self.blocks, self.budget, self.random = structure, blocks, budget, random
        self.written = [written[d.name] for d in structure.dimensions]
        """The number of each dimension in the reference's own text."""
        self.all = range(len(structure.dimensions))
        self.caps = [self.cap(structure.floors, i) for i in self.all]
        batches = [i for i in self.all if structure.dimensions[i].batch]
        inner = self._shuffled(i for i in self.all if i not in batches)
        self.order = inner + self._shuffled(batches)
        self.turns = inner + self.order
        """Which dimension is served first: those of the batch half as often."""
        self.urgent: dict[int, set[WishedNumber]] = {}
        self.waiting = {i: self._wishes(i) for i in self.all}
        """Multipliers that each dimension is still to have, the most telling first."""

    def __iter__(self) -> Iterator[list[int]]:
        """Yields the multipliers of all dimensions, without end: one beyond a block everywhere, one mixed, one aligned,
        then mixed ones.
        """
        yield self.beyond()
        yield self.mixed(0)
        yield self.aligned()
        turn = 1
        while True:
            yield self.mixed(turn)
            turn += 1

    def _shuffled(self, items: Iterable[T]) -> list[T]:
        found = list(items)
        self.random.shuffle(found)
        return found

    def affordable(self, multipliers: Sequence[int]) -> bool:
        """Whether the budget admits these multipliers, one for each dimension."""
        return self.budget.admits(self.structure.load(multipliers))

    def cap(self, chosen: Sequence[int], index: int) -> int:
        """The largest multiplier of one dimension that the budget admits beside those chosen; its floor where there
        is none.
        """
        dimension = self.structure.dimensions[index]
        low, high = (
            dimension.floor,
            max(dimension.floor, min(self.budget.elements, dimension.ceiling or MAX_MULTIPLIER)),
        )
        while high - low > low >> PRECISION_BITS:
            middle = (low + high + 1) // 2 if high < 2 * low else min(high, 2 * low)
            if self.affordable(self._with(chosen, index, middle)):
                low = middle
            else:
                high = middle - 1
        return low

    def _with(self, chosen: Sequence[int], index: int, multiplier: int) -> list[int]:
        return [*chosen[:index], multiplier, *chosen[index + 1 :]]

    def _unit(self, index: int, chosen: Sequence[int]) -> int:
        """By how much one step of a multiplier moves the number that a kernel sees."""
        return self.structure.value(index, self._with(chosen, index, 1))

    def _wishes(self, index: int) -> list[WishedNumber]:
        """First beyond the largest blocks that the budget admits, and the number that is written in the reference; then
        around the largest block and beyond a usual one; then around and at the others.
        """
        unit, cap = self._unit(index, self.structure.floors), self.caps[index]
        own = [b for b in self.blocks[::-1] if b // unit + 1 <= cap]
        usual = [b for b in USUAL_BLOCKS[::-1] if b // unit + 1 <= cap and b not in own]
        urgent = [WishedNumber(self.written[index], True), *map(self._far, own[:FAR_BLOCKS])]
        others = [
            [*_around(own[:1]), *map(self._far, usual[:1])],
            [*_around(own[1:]), *(WishedNumber(b, True) for b in own), *map(self._far, own[FAR_BLOCKS:])],
            [*_around(usual)],
        ]
        self.urgent[index] = set(urgent)
        tiers = [urgent, *others]
        return list(dict.fromkeys(wish for tier in tiers for wish in self._shuffled(tier)))

    def _far(self, block: int) -> WishedNumber:
        """Beyond two blocks, so that a loop has three iterations or more."""
        return WishedNumber(prime_between(2 * block + 1, int(block * BLOCK_MULTIPLES[0]), self.random), True)

    def beyond(self) -> list[int]:
        """Returns multipliers that lie beyond one block in every dimension, or in all but those of the batch: the
        largest block for which the budget is enough.
        """
        batches = [i for i in self.all if self.structure.dimensions[i].batch]
        inner = [i for i in self.all if i not in batches] or batches
        own, usual = self.blocks[::-1], [b for b in USUAL_BLOCKS[::-1] if SMALL_BLOCKS[0] < b < self.blocks[-1]]
        tried = [
            (self.all, own),
            (self.all, usual),
            (inner, own),
            (inner, usual),
            (self.all, SMALL_BLOCKS),
            (inner, SMALL_BLOCKS),
        ]
        for growing, blocks in tried:
            for block in (b for b in blocks if self._fits(self._all_beyond(growing, b, 1.0))):
                for scale in BLOCK_MULTIPLES:
                    if self._fits(chosen := self._all_beyond(growing, block, scale)):
                        return self._grown(chosen, [i for i in self.all if i not in growing])
        return self._grown(list(self.structure.floors), self.order)

    def _fits(self, chosen: Sequence[int]) -> bool:
        return all(m <= cap for m, cap in zip(chosen, self.caps, strict=True)) and self.affordable(chosen)

    def _all_beyond(self, growing: Iterable[int], block: int, scale: float) -> list[int]:
        """Different numbers from the block to about `scale` times it: primes, where one step of a multiplier moves
        a number by one.
        """
        chosen, taken = list(self.structure.floors), set[int]()
        for index in growing:
            unit = self._unit(index, chosen)
            target = (
                prime_between(int(block * (scale + 1) / 2), int(block * scale), self.random) if scale > 1 else block
            )
            least = max(block // unit + 1, target // unit, self.structure.dimensions[index].floor)
            chosen[index] = _prime_from(least) if unit == 1 else least
            while chosen[index] * unit in taken:
                chosen[index] = _prime_from(chosen[index] + 1) if unit == 1 else chosen[index] + 1
            taken.add(chosen[index] * unit)
        return chosen

    def _grown(self, chosen: list[int], indices: Iterable[int]) -> list[int]:
        for index in indices:
            chosen[index] = self._modest(chosen, index)
        return chosen

    def aligned(self) -> list[int]:
        """Multiples of a block, or of 16, in as many dimensions as the budget admits."""
        chosen = list(self.structure.floors)
        for index in self.order:
            unit, cap = self._unit(index, chosen), self.cap(chosen, index)
            wanted = [b * times for b in self.blocks[::-1] for times in self._shuffled((1, 2))]
            whole = [n // unit for n in (*wanted, *ALIGNMENTS) if n % 16 == 0 and n % unit == 0]
            room = cap if index == self.order[-1] else int(cap**0.75)
            taken = self._taken(chosen, index)
            fitting = [m for m in whole if self.structure.dimensions[index].floor <= m <= room]
            fresh = [m for m in fitting if m * unit not in taken]
            chosen[index] = next(iter(fresh or fitting), chosen[index])
        return chosen

    def mixed(self, turn: int) -> list[int]:
        """One dimension, each in its turn, has its next wish; the others one for which there is room, or something
        modest and odd.
        """
        first = self.turns[turn % len(self.turns)]
        order = [first, *self._shuffled(i for i in self.order if i != first)]
        chosen = list(self.structure.floors)
        for index in order:
            chosen[index] = self._wish(chosen, index, index == order[0]) or self._modest(chosen, index)
        return chosen

    def _wish(self, chosen: Sequence[int], index: int, first: bool) -> int | None:
        """The next wish for which there is room. first: there is most room, so of the urgent ones the largest."""
        unit, cap, taken = self._unit(index, chosen), self.cap(chosen, index), self._taken(chosen, index)
        wishes = self.waiting[index]
        if first:
            wishes = sorted(wishes, key=lambda w: -w.number if w in self.urgent[index] else 0)
        for wish in wishes:
            multiplier = wish.multiplier(unit)
            if self.structure.dimensions[index].floor <= multiplier <= cap and multiplier * unit not in taken:
                self.waiting[index].remove(wish)
                return multiplier
        return None

    def _taken(self, chosen: Sequence[int], index: int) -> set[int]:
        """Numbers of the other dimensions: equal extents hide a transposition."""
        return {self.structure.value(i, chosen) for i in self.all if i != index}

    def _modest(self, chosen: Sequence[int], index: int) -> int:
        """Between the floor and what there is room for, small ones as likely as large ones, and of another value
        than the others have.
        """
        floor, cap, unit = self.structure.dimensions[index].floor, self.cap(chosen, index), self._unit(index, chosen)
        taken = self._taken(chosen, index)
        found = floor
        for _ in range(FRESH_DRAWS):
            drawn = int(floor * max(1.0, cap / floor) ** (0.75 * self.random.random()))
            found = min(irregular_number(max(drawn, floor), floor, self.random), cap)
            if found * unit not in taken:
                return found
        return found


def _prime_from(number: int) -> int:
    """The next prime, or the number itself where none is near."""
    return next((n for n in range(number, number + PRIME_SPREAD) if is_prime(n)), number)


def _around(blocks: Iterable[int]) -> list[WishedNumber]:
    return [wish for b in blocks for wish in (WishedNumber(b + 1, True), WishedNumber(b - 1, False))]
