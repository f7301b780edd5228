"""Draws orders of computation which Triton leaves open, from the seed of a call.

A GPU folds a reduction by its layout: each thread folds its own elements, then threads fold each
other's results. Neither the pairs nor the order of two operands is specified. Among equal values
any may win an argmax with open ties (`tie_break_left=False`), and any lane may win several stores
to one address. An interpreter with a fixed order would accept kernels which are right by luck.

Example: with the pairings [(halves, swapped), (neighbours, in order)], the four elements a, b, c,
d of a reduction become f(f(c, a), f(d, b)).
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import numpy as np

ELEMENTS_OF_A_THREAD = (2, 4, 8)
"""Elements folded by one thread of a scan or sum before threads combine their results."""


class Pairing(NamedTuple):
    """Pairing of elements at one level of a reduction."""

    neighbours: bool
    """Whether elements 2i and 2i + 1 are paired; otherwise elements i and i + count / 2."""
    swapped: bool
    """Whether the later element is the first operand."""

    @property
    def keeps_order(self) -> bool:
        """True if operands stay in the order of the elements."""
        return self.neighbours and not self.swapped


class OpenOrder:
    """Choices of one call. Reductions with equal element counts use equal orders."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._pairings: dict[int, tuple[Pairing, ...]] = {}
        self._permutations: dict[int, Any] = {}
        self.stores = np.random.default_rng(seed)
        """Random generator for the winners of stores to one address."""

    def _random(self, purpose: str, count: int) -> Random:
        return Random(f"{self._seed} {purpose} {count}")

    def pairings(self, count: int) -> tuple[Pairing, ...]:
        """Returns the levels of a reduction of `count` elements, a power of two. At least one
        level changes the order of the operands, so that a function which does not commute is
        always detected.
        """
        if count not in self._pairings:
            random = self._random("pairings", count)
            levels = count.bit_length() - 1
            drawn = [Pairing(random.random() < 0.5, random.random() < 0.5) for _ in range(levels)]
            if drawn and all(level.keeps_order for level in drawn[:-1]):
                drawn[0] = Pairing(neighbours=levels == 1, swapped=True)
            self._pairings[count] = tuple(drawn)
        return self._pairings[count]

    def permutation(self, count: int) -> Any:
        """Returns an order of `count` elements in which the first of equal elements wins."""
        if count not in self._permutations:
            order = list(range(count))
            self._random("ties", count).shuffle(order)
            self._permutations[count] = np.array(order)
        return self._permutations[count]

    def thread_elements(self, count: int) -> int:
        """Returns how many of `count` elements, a power of two, a thread folds by itself."""
        return min(self._random("threads", count).choice(ELEMENTS_OF_A_THREAD), count)


_current = [OpenOrder(0)]


def begin_call(seed: int) -> None:
    """Draws the orders of a new call."""
    _current[0] = OpenOrder(seed)


def current() -> OpenOrder:
    """Returns the orders of the running call."""
    return _current[0]
