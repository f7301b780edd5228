"""The search for small sizes: one integer after another, largest first, brought near its goal where the reference
still runs.
"""

from __future__ import annotations

import ast
import math
import re
from functools import lru_cache
from itertools import chain, product

from kernelwright.tools.problem import Problem, inner_integers, module_integers, parse
from kernelwright.tools.references.dry_run import (
    MAX_OPERATOR_CALLS,
    DryRunFailed,
    ReferenceCost,
    measure_cost,
)

MAX_SHRUNK_ELEMENTS = 1 << 18
"""Elements of inputs, outputs and weights together that shrunk shapes should stay under."""
MAX_SHRUNK_OPERATIONS = 50_000_000
"""Operations of one call that shrunk shapes should stay under."""
MAX_INTERPRETED_WEIGHTS = 1 << 22
"""Elements of weights up to which a reference is interpreted whose inputs and operations are few."""
SEARCH_CALLS = 8_000
"""aten calls of all dry runs of one search: it ends at the same place on every machine."""
MAX_OPERATOR_CALLS_TO_JUMP = 1_600
"""aten calls of one dry run of a reference that took too long at its own sizes."""
FAILED_CALLS = 40
"""aten calls charged for a dry run that raises, beside those that it made."""
GOAL_SIZES = ((16, 5), (64, 7), (128, 9), (256, 17), (1024, 35), (8192, 67), (65_536, 131))
"""Sizes up to the first number are brought to the second; larger ones to MAX_GOAL.

Odd, so never a multiple of a block.
"""
MAX_GOAL = 1031
MAX_VALUE_LEFT_ALONE = 8
"""Integers up to this stay in the first round: axes, layers, groups."""
NAMES_LEFT_ALONE = re.compile(r"kernel|stride|padding|dilation|pool")
"""These say what is computed, not how much of it."""
MAX_ROUNDS = 4
"""Each halves the goals, as long as the whole is too large."""
USUAL_SPLITS = (2, 3, 4, 8, 16, 32, 64)
"""Numbers of heads, groups and patches that sizes are often multiples of."""
BOUND_SIZE_DIVISORS = (8, 4, 2)
"""Divisors of two sizes that are bound to one another."""


def fits(cost: ReferenceCost) -> bool:
    """Says whether a reference of this cost is small enough for the interpreter."""
    return cost.elements <= MAX_SHRUNK_ELEMENTS and cost.operations <= MAX_SHRUNK_OPERATIONS


def held_elements(cost: ReferenceCost) -> int:
    """Returns the elements of parameters and buffers."""
    return sum(math.prod(shape) for shape in cost.weights)


def is_interpretable(cost: ReferenceCost) -> bool:
    """Says whether an interpreter can run a reference of this cost: it is small, or only its weights are not, which are
    read once.
    """
    held = held_elements(cost)
    rest = cost.elements - held
    few = rest <= MAX_SHRUNK_ELEMENTS and cost.operations <= MAX_SHRUNK_OPERATIONS
    return fits(cost) or (held <= MAX_INTERPRETED_WEIGHTS and few)


class Search:
    """`sizes` after `run()`: what was made smaller. `cost` is None where no dry run came to its end."""

    def __init__(self, problem: Problem, factor: int = 1) -> None:
        self.problem, self.factor = problem, factor
        self.original = changeable_integers(problem)
        self.sizes: dict[str, int] = {}
        self.trouble = ""
        """What the reference raised at its own sizes."""
        self._left = SEARCH_CALLS
        self.cost = self._measure_cost({})

    def run(self) -> None:
        """Makes sizes smaller until the reference fits, or nothing more can be made smaller."""
        if self.cost is None and not self._jump():
            return
        if self.cost is not None and fits(self.cost):
            return
        self._rounds()

    def _rounds(self) -> None:
        """Later rounds distort (images of 2 by 2), so what does not fit after all of them stays as the first one
        left it.
        """
        after_first = (self.sizes, self.cost)
        for step in range(MAX_ROUNDS):
            before, held = self.sizes, self._held()
            for name in sorted(self.original, key=lambda n: -self.value(n)):
                self._reduce(name, step)
            if self.cost is not None and (
                fits(self.cost) or (held == self._held() and is_interpretable(self.cost))
            ):
                return
            after_first = after_first if step else (self.sizes, self.cost)
            if (step and self.sizes == before) or (
                held == self._held() and held > MAX_INTERPRETED_WEIGHTS
            ):
                break
        self.sizes, self.cost = after_first

    def value(self, name: str) -> int:
        """The size of this name as it is now."""
        return self.sizes.get(name, self.original[name])

    def _jump(self) -> bool:
        """Sets every size to its goal at once, the largest goal below it, for a reference that takes too long to try as
        it is, such as a recurrence.
        """
        large = {
            n: v
            for n, v in self.original.items()
            if v > MAX_VALUE_LEFT_ALONE and not NAMES_LEFT_ALONE.search(n)
        }
        goals = {n: min(v, goal_of(v) * self.factor) for n, v in large.items()}
        longest = max(large, key=lambda n: large[n], default="")
        for step in range(MAX_ROUNDS if large else 0):
            sizes = {**goals, longest: goals[longest] >> 2 * step | 1}
            if (cost := self._measure_cost(sizes, MAX_OPERATOR_CALLS_TO_JUMP)) is not None:
                self.sizes, self.cost = sizes, cost
                return True
        return self._left > 0

    def _held(self) -> int:
        """Elements of the weights.

        Where they alone are too many and nothing changes them, the layers are written out.
        """
        return held_elements(self.cost) if self.cost else 0

    def _reduce(self, name: str, step: int) -> None:
        """One integer made as small as its goal, alone or with all that have the same value."""
        value, goal = self.value(name), max(2, goal_of(self.original[name]) * self.factor >> step)
        if (
            goal >= value
            or NAMES_LEFT_ALONE.search(name)
            or value <= (MAX_VALUE_LEFT_ALONE if step == 0 else 3)
        ):
            return
        if not self._replace(name, value, goal):
            self._scale(name, value)

    def _replace(self, name: str, value: int, goal: int) -> bool:
        """One size, alone or with all of the same value. False where the reference runs with none that was tried."""
        alike = tuple(
            n for n in self.original if self.value(n) == value and not NAMES_LEFT_ALONE.search(n)
        )
        for group in dict.fromkeys(((name,), alike)):
            others = {self.value(n) for n in self.original if n not in group}
            for smaller in sizes_to_try(goal, value, others):
                sizes = {**self.sizes, **dict.fromkeys(group, smaller)}
                if (cost := self._measure_cost(sizes)) is not None:
                    self._take(sizes, cost)
                    return True
        return False

    def _scale(self, name: str, value: int) -> None:
        """Two sizes divided by the same number: one may have to be twice the other."""
        others = [
            n
            for n in self.original
            if n != name and self.value(n) > MAX_VALUE_LEFT_ALONE and not NAMES_LEFT_ALONE.search(n)
        ]
        for other, divisor in product(others, BOUND_SIZE_DIVISORS):
            if value % divisor == 0 and self.value(other) % divisor == 0:
                sizes = {**self.sizes, name: value // divisor, other: self.value(other) // divisor}
                if (cost := self._measure_cost(sizes)) is not None:
                    self._take(sizes, cost)
                    return

    def _take(self, sizes: dict[str, int], cost: ReferenceCost) -> None:
        if self.cost is None or _is_lighter(cost, self.cost):
            self.sizes, self.cost = sizes, cost

    def _measure_cost(
        self, sizes: dict[str, int], most: int = MAX_OPERATOR_CALLS
    ) -> ReferenceCost | None:
        """Weighs the sizes; None where the reference does not run with them, takes too long to try, or computes
        nothing.
        """
        if self._left <= 0:
            return None
        try:
            cost = measure_cost(self.problem.with_sizes(sizes), min(most, self._left))
        except DryRunFailed as failed:
            self._left -= failed.ops + FAILED_CALLS
            self.trouble = self.trouble if sizes else str(failed)
            return None
        self._left -= cost.ops
        return cost if all(0 not in shape for shape in cost.inputs + cost.outputs) else None


def changeable_integers(problem: Problem) -> dict[str, int]:
    """Every integer of the reference that may be a size and that its classes do not read: with a name, inside a
    tuple, or written into get_inputs.
    """
    return dict(_places(problem.source))


@lru_cache(maxsize=512)
def _places(source: str) -> tuple[tuple[str, int], ...]:
    found = chain(module_integers(source).items(), inner_integers(source).items())
    read = _read_by_model(source)
    kept = {
        name: value for name, value in found if value > 1 and name.partition("[")[0] not in read
    }
    return tuple(kept.items())


def _read_by_model(source: str) -> set[str]:
    """Module-level names that classes read for themselves: a candidate would not see them change."""
    found: set[str] = set()
    for node in parse(source).body:
        for function in (
            f
            for f in ast.walk(node)
            if isinstance(node, ast.ClassDef) and isinstance(f, ast.FunctionDef)
        ):
            own = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
            names = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
            own |= {n.id for n in names if isinstance(n.ctx, ast.Store)}
            found |= {n.id for n in names if n.id not in own}
    return found


def goal_of(value: int) -> int:
    """Returns the small value that an integer of the reference is to be brought down to."""
    return next((goal for most, goal in GOAL_SIZES if value <= most), MAX_GOAL)


def sizes_to_try(goal: int, value: int, others: set[int]) -> list[int]:
    """Sizes to try, best first: the goal and odd neighbours (one that no other size has, because equal sizes hide a
    transposition), odd multiples of the other sizes and of usual splits, powers of two, then halves.
    """
    neighbours = sorted((goal, goal + 2, goal + 4, goal + 6), key=lambda n: n in others)
    related = sorted(_odd_multiple(n, goal) for n in others if 1 < n < value)
    usual = sorted(_odd_multiple(n, goal) for n in USUAL_SPLITS)
    powers = [1 << k for k in range(goal.bit_length(), goal.bit_length() + 4)]
    halves = [value >> k for k in (5, 4, 3, 2, 1)]
    tried = dict.fromkeys(chain(neighbours, related, usual, powers, halves))
    return [n for n in tried if min(goal, value // 2) <= n < value]


def _odd_multiple(number: int, least: int) -> int:
    times = -(-least // number)
    return number * (times | 1)


def _is_lighter(one: ReferenceCost, other: ReferenceCost) -> bool:
    return (
        one.elements <= other.elements
        and one.operations <= other.operations
        and (one.elements, one.operations) != (other.elements, other.operations)
    )
