"""Learns which numbers of a reference may change, by dry runs: alone, with numbers of equal value,
with multiples, in steps.

Numbers that determine the kind of computation rather than its amount are fixed: windows, strides,
axes, layers; numbers that change no shape; and numbers up to 8, unless they are an extent of an
input on which no weight depends.

Example: for `batch = 128`, `channels = 64`, `groups = 8` and a GroupNorm(groups, channels) on x of
shape (batch, channels, 16, 16):

    batch = 129                  alone: runs, and inputs grow, so batch is a dimension
    channels = 65                fails: channels cannot change alone by 1
    channels = 72 (a step of 8)  runs: channels = 8 * c, a dimension c with base 8
    groups                       at most 8, and no extent of an input: stays
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain

from kernelwright.tools.problem import Problem
from kernelwright.tools.references.dry_run import ReferenceCost, count_held_elements
from kernelwright.tools.references.size_search import (
    MAX_VALUE_LEFT_ALONE,
    NAMES_LEFT_ALONE,
    changeable_integers,
)
from kernelwright.tools.sizing.arithmetic import divisors
from kernelwright.tools.sizing.bounds import ChangeableNumbers, structure_with_bounds
from kernelwright.tools.sizing.structure import (
    Probe,
    SizeStructure,
    Term,
    measure_growth,
    same_form,
)
from kernelwright.tools.sizing.trial import MAX_DRY_RUN_CALLS, REAL_ELEMENTS, Trials

LEARNING_CALLS = 12_000
"""aten calls of all dry runs for a structure, about a second on a CPU."""
NAMES_OF_NO_SIZE = re.compile(
    r"window|patch|axis|axes|layers(\[|$)|upscale|scale_factor|shuffle|iterations|seed|expan|ratio",
    re.I,
)
"""Further names (beside NAMES_LEFT_ALONE) of numbers that determine the kind of computation, not
its amount."""
AUTHOR_SHAPES = ("shapes", "SHAPES")
CALLS_LEFT_FOR_BOUNDS = LEARNING_CALLS // 2
"""The part of LEARNING_CALLS that is reserved for finding which dimensions run together, and their bounds."""
NAMES_OF_STEP_COUNTS = re.compile(r"len|seq|step|time|^t$", re.I)
"""Names of numbers of steps that a recurrence may take."""
MAX_OPERATOR_CALLS_FOR_PAIRS = 100
"""aten calls of a reference, beyond which small numbers are not tried together with others."""
STEPS_WHILE_LEARNING = 3
"""Steps of a recurrence while the other sizes are learned."""
MAX_LEARNED_STEPS = 9
MAX_FOLLOWERS = 6
"""Maximum number of numbers tried as followers of another."""


def learn_structure(problem: Problem, base: Mapping[str, int]) -> SizeStructure:
    """Returns the structure of a problem's sizes around `base`, cached in this process by source
    and base.

    base: argument for `Problem.with_sizes`; {} for the written sizes.
    """
    return _learned(problem.source, tuple(sorted(base.items())))


@lru_cache(maxsize=512)
def _learned(source: str, base: tuple[tuple[str, int], ...]) -> SizeStructure:
    return _Learning(Problem(name="reference", source=source), dict(base)).structure()


class _Learning:
    """Search for the structure of a problem's sizes."""

    def __init__(self, problem: Problem, base: dict[str, int]) -> None:
        self.problem = problem
        self.base = base
        self.trials = Trials(problem, base, LEARNING_CALLS)
        self.original = {n: v for n, v in changeable_integers(problem).items() if _may_be_a_size(n)}
        self.values = {n: base.get(n, v) for n, v in self.original.items()}
        self.names: list[tuple[str, ...]] = []
        """For each dimension, the numbers that lead it."""
        self.multipliers: list[int] = []
        self.probes: list[Probe] = []
        self.terms: dict[str, Term] = {}
        self.bound: list[str] = []
        """Numbers that cannot change alone by one."""
        self.untried: list[str] = []
        self.silent: list[str] = []
        """Numbers that change no shape: the bound of an index, a number of groups, a constant."""
        self.at_base = self._first_run()
        self.costly = self.at_base is not None and self.at_base.ops > MAX_OPERATOR_CALLS_FOR_PAIRS

    def _first_run(self) -> ReferenceCost | None:
        """Runs the reference at the base: without data, or with data if required and small."""
        cost = self.trials.at({})
        if (
            cost is not None
            or self.trials.remaining_calls <= LEARNING_CALLS - MAX_DRY_RUN_CALLS
            or not _is_light(self.problem, self.base)
        ):
            return cost
        real = Trials(self.problem, self.base, LEARNING_CALLS, real=True)
        cost = real.at({})
        if cost is not None:
            self.trials = real
        return cost

    def structure(self) -> SizeStructure:
        """Returns the dimensions found, or a note on why there are none."""
        at_base = self.at_base
        if at_base is None:
            note = f"the reference does not run at {self.base or 'its own sizes'}: {self.trials.last_error}"
            return SizeStructure(self.base, (), {}, None, None, (), (note,), self.trials.real)
        if self.costly:
            at_base = self._shorten(at_base)
        for name in sorted(self.values, key=lambda n: "batch" not in n.lower()):
            self._alone(name)
        for name in sorted(self.bound, key=lambda n: self.values[n]):
            self._leading(name)
        for name in self.bound:
            self._stepping(name)
        return structure_with_bounds(
            ChangeableNumbers(
                problem=self.problem,
                base=self.base,
                trials=self.trials,
                at_base=at_base,
                values=self.values,
                names=tuple(self.names),
                multipliers=tuple(self.multipliers),
                probes=tuple(self.probes),
                terms=self.terms,
                stuck=tuple(n for n in self.bound if n not in self.terms),
                untried=tuple(self.untried),
                silent=tuple(self.silent),
            )
        )

    def _shorten(self, at_base: ReferenceCost) -> ReferenceCost:
        """Reduces the steps of a recurrence in the base, to make further dry runs cheap.

        Such are numbers on which the calls depend, but no weight.
        """
        for name in [
            n
            for n, v in self.values.items()
            if v > STEPS_WHILE_LEARNING and NAMES_OF_STEP_COUNTS.search(n)
        ]:
            cost = self.trials.at({name: STEPS_WHILE_LEARNING})
            if cost is None or not same_form(at_base, cost) or cost.weights != at_base.weights:
                continue
            if cost.inputs != at_base.inputs and 2 * cost.ops < at_base.ops:
                self.base[name] = self.trials.base[name] = self.values[name] = STEPS_WHILE_LEARNING
                self.at_base = at_base = cost
        return at_base

    def _try(self, changed: Mapping[str, int], leaders: tuple[str, ...]) -> ReferenceCost | None:
        """Returns the cost with `changed`, if the reference runs and the change is one of size;
        None also if half the budget is used."""
        cost = (
            self.trials.at(changed) if self.trials.remaining_calls > CALLS_LEFT_FOR_BOUNDS else None
        )
        return cost if cost is not None and self._is_size(cost, leaders) else None

    def _alone(self, name: str) -> None:
        at_base, value = self.at_base, self.values[name]
        if self.trials.remaining_calls <= CALLS_LEFT_FOR_BOUNDS:
            self.untried.append(name)
            return
        cost = self.trials.at({name: value + 1})
        if cost is None:
            self.bound.append(name)
        elif self._is_size(cost, (name,)):
            self._add((name,), (), value, value + 1, cost)
        elif at_base and (cost.inputs, cost.outputs, cost.weights) == (
            at_base.inputs,
            at_base.outputs,
            at_base.weights,
        ):
            self.silent.append(name)

    def _leading(self, name: str) -> None:
        """Changes a number by one together with others of equal value, or with multiples that
        follow."""
        value = self.values[name]
        if name in self.terms or (self.costly and self._is_small((name,))):
            return
        alike = tuple(n for n in self.bound if self.values[n] == value and n not in self.terms)
        multiples = [
            n for n in self.bound if self.values[n] > value and self.values[n] % value == 0
        ]
        # Alone first: equal values may belong to different dimensions.
        for leaders in dict.fromkeys(((name,), alike)):
            for followers in self._sets(leaders, multiples):
                changed = dict.fromkeys(leaders, value + 1)
                changed |= {f: self.values[f] // value * (value + 1) for f in followers}
                if cost := self._try(changed, leaders):
                    self._add(leaders, followers, value, value + 1, cost)
                    return

    def _sets(
        self, leaders: tuple[str, ...], multiples: Sequence[str]
    ) -> Iterator[tuple[str, ...]]:
        """Yields sets of numbers that may follow: none, each alone, all. A number with its factor
        used up follows no more."""
        value = self.values[leaders[0]]
        free = [f for f in multiples if f not in self.terms or self.terms[f].factor % value == 0][
            :MAX_FOLLOWERS
        ]
        if len(leaders) > 1:
            yield ()
        yield from ((f,) for f in free)
        if len(free) > 1:
            yield tuple(free)

    def _stepping(self, name: str) -> None:
        """Changes a number in steps: it must stay a multiple of a number that is no size."""
        if self.costly and self._is_small((name,)):
            return
        remaining_factor = self.terms[name].factor if name in self.terms else self.values[name]
        value = self.values[name]
        alike = tuple(
            n
            for n in self.bound
            if self.values[n] == value and self.terms.get(n) == self.terms.get(name)
        )
        # For example, a width of 768 with heads of 64 runs at 832, and not at 769.
        for step in divisors(value, MAX_LEARNED_STEPS, self.original.values()):
            for moving in (
                dict.fromkeys(((name,), alike))
                if remaining_factor % (value // step) == 0 and remaining_factor > 1
                else ()
            ):
                if cost := self._try(dict.fromkeys(moving, value + step), moving):
                    self._add(moving, (), value // step, value // step + 1, cost)
                    return

    def _is_small(self, names: tuple[str, ...]) -> bool:
        return all(
            self.original[n] <= MAX_VALUE_LEFT_ALONE and "batch" not in n.lower() for n in names
        )

    def _is_size(self, cost: ReferenceCost, leaders: tuple[str, ...]) -> bool:
        """Returns True if the amount of computation changed, judged by a dry run in which `leaders`
        changed."""
        at_base = self.at_base
        assert at_base is not None
        if not same_form(at_base, cost) or (cost.inputs, cost.weights) == (
            at_base.inputs,
            at_base.weights,
        ):
            return False
        if cost.inputs == at_base.inputs and _only_windows(at_base.weights, cost.weights):
            return False
        if any(b < a for a, b in zip(chain(*at_base.outputs), chain(*cost.outputs), strict=True)):
            return False  # what makes an output smaller is a window or a stride
        if self._is_small(leaders):
            extents = zip(chain(*at_base.inputs), chain(*cost.inputs), strict=True)
            direct = any(a == self.values[leaders[0]] and b == a + 1 for a, b in extents)
            return direct and (at_base.weights, at_base.init) == (cost.weights, cost.init)
        return True

    def _add(
        self,
        leaders: tuple[str, ...],
        followers: tuple[str, ...],
        base: int,
        tried: int,
        cost: ReferenceCost,
    ) -> None:
        assert self.at_base is not None
        index = len(self.names)
        self.names.append(leaders)
        self.multipliers.append(base)
        self.probes.append(measure_growth(self.at_base, cost, tried, base))
        for name in (*leaders, *followers):
            term = self.terms.get(name, Term(self.values[name], ()))
            self.terms[name] = Term(term.factor // base, (*term.dimensions, index))


def _is_light(problem: Problem, base: Mapping[str, int]) -> bool:
    """Returns True if inputs and weights are small enough to run with data."""
    try:
        return count_held_elements(problem.with_sizes(base)) <= REAL_ELEMENTS
    except Exception:
        return False


def _may_be_a_size(name: str) -> bool:
    root = name.partition("[")[0]
    if not root.isidentifier():
        return True  # named after an argument: the name was not the author's
    return (
        root not in AUTHOR_SHAPES
        and not NAMES_LEFT_ALONE.search(name)
        and not NAMES_OF_NO_SIZE.search(name)
    )


def _only_windows(
    at_base: Sequence[tuple[int, ...]], other_shapes: Sequence[tuple[int, ...]]
) -> bool:
    """Returns True if weights differ only in extents after the first two: the window of a
    convolution."""
    changed = [(a, b) for a, b in zip(at_base, other_shapes, strict=True) if a != b]
    return bool(changed) and all(a[:2] == b[:2] for a, b in changed)
