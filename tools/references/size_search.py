"""Searches small sizes at which a reference still runs: each integer, largest first, is moved
towards a goal.

Example: `batch = 128`, `features = 4096` and `heads = 32` in a module that asserts
features % heads == 0. Each attempt is a dry run on meta tensors:

    features = 67, 69, 71, 73    the goal and its odd neighbours: the reference raises
    features = 96                an odd multiple of heads: runs, 24,582 elements
    batch = 9                    its goal: runs, 1,734 elements
    heads = 7, 11, 13, 9         raises
    heads = 8                    runs, but is not lighter: 1,752 elements

The result is {"features": 96, "batch": 9}. Operator calls of the dry runs are charged to a budget,
so that the search ends identically on every machine.
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
"""Target maximum of elements in inputs, outputs and weights of reduced shapes."""
MAX_SHRUNK_OPERATIONS = 50_000_000
"""Target maximum of operations per call at reduced sizes."""
MAX_INTERPRETED_WEIGHTS = 1 << 22
"""Maximum number of weight elements at which a reference with few inputs and operations is
interpreted."""
SEARCH_CALLS = 8_000
"""aten calls of all dry runs of a search: a budget that is equal on every machine."""
MAX_OPERATOR_CALLS_TO_JUMP = 1_600
"""aten calls in a dry run of a reference that took too long at its own sizes."""
FAILED_DRY_RUN_CALLS = 40
"""aten calls charged for a dry run that raises, in addition to its own."""
GOAL_SIZES = ((16, 5), (64, 7), (128, 9), (256, 17), (1024, 35), (8192, 67), (65_536, 131))
"""Sizes up to the first number are brought to the second; larger ones to MAX_GOAL.

Odd, so never a multiple of a block.
"""
MAX_GOAL = 1031
MAX_VALUE_LEFT_ALONE = 8
"""Integers up to this stay in the first round: axes, layers, groups."""
NAMES_LEFT_ALONE = re.compile(r"kernel|stride|padding|dilation|pool")
"""Sizes whose names determine the kind of computation, not its amount."""
MAX_SEARCH_ROUNDS = 4
"""Each halves the goals, as long as the whole is too large."""
USUAL_SPLITS = (2, 3, 4, 8, 16, 32, 64)
"""Usual numbers of heads, groups and patches, as divisors of sizes."""
BOUND_SIZE_DIVISORS = (8, 4, 2)
"""Common divisors tried for two dependent sizes."""


def fits(cost: ReferenceCost) -> bool:
    """Says whether a reference of this cost is small enough for the interpreter."""
    return cost.elements <= MAX_SHRUNK_ELEMENTS and cost.operations <= MAX_SHRUNK_OPERATIONS


def held_elements(cost: ReferenceCost) -> int:
    """Returns the elements of parameters and buffers."""
    return sum(math.prod(shape) for shape in cost.weights)


def is_interpretable(cost: ReferenceCost) -> bool:
    """Returns True if an interpreter can run a reference of this cost: small, or large only in
    weights, which are read once."""
    weight_elements = held_elements(cost)
    other_elements = cost.elements - weight_elements
    few = other_elements <= MAX_SHRUNK_ELEMENTS and cost.operations <= MAX_SHRUNK_OPERATIONS
    return fits(cost) or (weight_elements <= MAX_INTERPRETED_WEIGHTS and few)


class Search:
    """A search. After `run()`, `sizes` holds the reduced sizes; `cost` is None if no dry run
    completed."""

    def __init__(self, problem: Problem, factor: int = 1) -> None:
        self.problem = problem
        self.factor = factor
        self.original = changeable_integers(problem)
        self.sizes: dict[str, int] = {}
        self.error = ""
        """Error of the reference at its own sizes."""
        self._remaining_calls = SEARCH_CALLS
        self.cost = self._measure_cost({})

    def run(self) -> None:
        """Makes sizes smaller until the reference fits, or nothing more can be made smaller."""
        if self.cost is None and not self._jump():
            return
        if self.cost is not None and fits(self.cost):
            return
        self._rounds()

    def _rounds(self) -> None:
        """Runs rounds of reductions. Later rounds distort (images of 2 by 2), so if they do not
        suffice, the first round's sizes stay."""
        after_first = (self.sizes, self.cost)
        for step in range(MAX_SEARCH_ROUNDS):
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
        """Returns the current value of a size."""
        return self.sizes.get(name, self.original[name])

    def _jump(self) -> bool:
        """Sets every size to the largest goal below its value at once, for a reference too slow to
        try, such as a recurrence."""
        large = {
            n: v
            for n, v in self.original.items()
            if v > MAX_VALUE_LEFT_ALONE and not NAMES_LEFT_ALONE.search(n)
        }
        goals = {n: min(v, goal_of(v) * self.factor) for n, v in large.items()}
        longest = max(large, key=lambda n: large[n], default="")
        for step in range(MAX_SEARCH_ROUNDS if large else 0):
            sizes = {**goals, longest: goals[longest] >> 2 * step | 1}
            if (cost := self._measure_cost(sizes, MAX_OPERATOR_CALLS_TO_JUMP)) is not None:
                self.sizes = sizes
                self.cost = cost
                return True
        return self._remaining_calls > 0

    def _held(self) -> int:
        """Returns the number of weight elements.

        If these alone are too many and no size changes them, the layers are written out in the
        source.
        """
        return held_elements(self.cost) if self.cost else 0

    def _reduce(self, name: str, step: int) -> None:
        """Reduces a size to its goal, alone or with all sizes of equal value."""
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
        """Replaces a size, alone or with all of equal value. Returns False if the reference runs
        with no tried value."""
        alike = tuple(
            n for n in self.original if self.value(n) == value and not NAMES_LEFT_ALONE.search(n)
        )
        for group in dict.fromkeys(((name,), alike)):
            unchanged_values = {self.value(n) for n in self.original if n not in group}
            for smaller in sizes_to_try(goal, value, unchanged_values):
                sizes = {**self.sizes, **dict.fromkeys(group, smaller)}
                if (cost := self._measure_cost(sizes)) is not None:
                    self._take(sizes, cost)
                    return True
        return False

    def _scale(self, name: str, value: int) -> None:
        """Divides two sizes by a common number, since they may be related by a constant factor."""
        other_names = [
            n
            for n in self.original
            if n != name and self.value(n) > MAX_VALUE_LEFT_ALONE and not NAMES_LEFT_ALONE.search(n)
        ]
        for other_name, divisor in product(other_names, BOUND_SIZE_DIVISORS):
            if value % divisor == 0 and self.value(other_name) % divisor == 0:
                sizes = {
                    **self.sizes,
                    name: value // divisor,
                    other_name: self.value(other_name) // divisor,
                }
                if (cost := self._measure_cost(sizes)) is not None:
                    self._take(sizes, cost)
                    return

    def _take(self, sizes: dict[str, int], cost: ReferenceCost) -> None:
        if self.cost is None or _is_lighter(cost, self.cost):
            self.sizes = sizes
            self.cost = cost

    def _measure_cost(
        self, sizes: dict[str, int], most: int = MAX_OPERATOR_CALLS
    ) -> ReferenceCost | None:
        """Returns the cost at these sizes; None if the reference does not run, takes too long to
        try, or computes nothing."""
        if self._remaining_calls <= 0:
            return None
        try:
            cost = measure_cost(self.problem.with_sizes(sizes), min(most, self._remaining_calls))
        except DryRunFailed as failed:
            self._remaining_calls -= failed.ops + FAILED_DRY_RUN_CALLS
            self.error = self.error if sizes else str(failed)
            return None
        self._remaining_calls -= cost.ops
        return cost if all(0 not in shape for shape in cost.inputs + cost.outputs) else None


def changeable_integers(problem: Problem) -> dict[str, int]:
    """Returns the integers of the reference that may be sizes and are not read by its classes.

    They have a name, or are inside a tuple, or are written in get_inputs.
    """
    return dict(_named_integers(problem.source))


@lru_cache(maxsize=512)
def _named_integers(source: str) -> tuple[tuple[str, int], ...]:
    integers = chain(module_integers(source).items(), inner_integers(source).items())
    names_of_model = _read_by_model(source)
    changeable = {
        name: value
        for name, value in integers
        if value > 1 and name.partition("[")[0] not in names_of_model
    }
    return tuple(changeable.items())


def _read_by_model(source: str) -> set[str]:
    """Returns module-level names that classes read themselves: a candidate would not see their
    change."""
    names_read: set[str] = set()
    for node in parse(source).body:
        for function in (
            f
            for f in ast.walk(node)
            if isinstance(node, ast.ClassDef) and isinstance(f, ast.FunctionDef)
        ):
            local_names = {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
            names = [n for n in ast.walk(function) if isinstance(n, ast.Name)]
            local_names |= {n.id for n in names if isinstance(n.ctx, ast.Store)}
            names_read |= {n.id for n in names if n.id not in local_names}
    return names_read


def goal_of(value: int) -> int:
    """Returns the small target value of an integer of the reference."""
    return next((goal for most, goal in GOAL_SIZES if value <= most), MAX_GOAL)


def sizes_to_try(goal: int, value: int, other_values: set[int]) -> list[int]:
    """Returns sizes to try, best first.

    The goal and odd neighbours (distinct from other sizes first, because equal sizes hide a
    transposition), odd multiples of other sizes and of usual splits, powers of two, then halves.
    """
    neighbours = sorted((goal, goal + 2, goal + 4, goal + 6), key=lambda n: n in other_values)
    related = sorted(_odd_multiple(n, goal) for n in other_values if 1 < n < value)
    usual = sorted(_odd_multiple(n, goal) for n in USUAL_SPLITS)
    powers = [1 << k for k in range(goal.bit_length(), goal.bit_length() + 4)]
    halves = [value >> k for k in (5, 4, 3, 2, 1)]
    tried = dict.fromkeys(chain(neighbours, related, usual, powers, halves))
    return [n for n in tried if min(goal, value // 2) <= n < value]


def _odd_multiple(number: int, least: int) -> int:
    times = -(-least // number)
    return number * (times | 1)


def _is_lighter(cost: ReferenceCost, other_cost: ReferenceCost) -> bool:
    return (
        cost.elements <= other_cost.elements
        and cost.operations <= other_cost.operations
        and (cost.elements, cost.operations) != (other_cost.elements, other_cost.operations)
    )
