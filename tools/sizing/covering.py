"""Draws sizes that meet goals: the main loop of this room.

Each size starts with the first open goal. Further open goals that agree with this size and fit the
budget are added; remaining extents are irregular numbers. A dry run of the reference shows whether
the size is legal, and its cost. All goals that the drawn size meets are closed.

Example: a matmul over m, k, n with the open goals "m is 1", "k one more than 64" and "n twice k".
The size starts with {m: 1}; "k one more than 64" agrees: {m: 1, k: 65}; "n twice k" agrees: {m: 1,
k: 65, n: 130}. The dry run succeeds, and three goals are closed. With "n is 1" instead, a second
tiny extent would be refused, and that goal would start the next size.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernelwright.tools.problem import Problem
from kernelwright.tools.references.dry_run import ReferenceCost
from kernelwright.tools.sizing.arithmetic import irregular_number
from kernelwright.tools.sizing.drawn_sizes import CPU_BUDGET, GPU_BUDGET, DrawnSize
from kernelwright.tools.sizing.goals import Context, ExtentGoal, Extents, Strategy
from kernelwright.tools.sizing.structure import Budget, same_form
from kernelwright.tools.sizing.trial import Trials

DRAWING_CALLS = 8_000
"""aten calls of all dry runs of one `Covering`."""
MAX_PROPOSALS = 400
"""Maximum number of proposals considered per goal and size."""
MAX_GOALS_IN_WORDS = 4
"""Goals of a size that its description names."""
MAX_DRY_RUNS = 5
"""Maximum number of dry runs for the first goal of a size."""
SMALLER_PART = 0.75
"""After a failed proposal, the next has at most this share of its operations: an estimate may be
wrong."""
COST_SLACK = 1.5
"""Factor by which the cost in a dry run may exceed the budget, since proposals are admitted by an
estimate."""
MAX_MULTIPLIER = 1 << 26
PRECISION_BITS = 6
"""Binary digits to which the largest affordable multiplier is sought."""
FRESH_DRAWS = 4
"""Draws of a number that should differ from those of the other dimensions."""
FILLED_SHARE = 0.75
"""Extents that no goal asks for are at most the largest affordable ones to this power."""
LARGEST_SMALL = 7
"""Maximum extent without a goal, if such extents should be small."""
MAX_TIMES_LARGER, MIN_EXTENT_TO_CAP = 2, 64
"""On a GPU, maximum factor over the problem's own extent, for extents above the second number: a
head of 5,000 instead of 64 takes a compiler minutes and shows nothing."""


@dataclass(frozen=True, eq=False)
class _OpenGoal:
    """A goal that no size meets so far."""

    strategy: Strategy
    goal: ExtentGoal


class Covering:
    """Sizes drawn so far for one problem, each confirmed by a dry run."""

    def __init__(
        self,
        problem: Problem,
        context: Context,
        checked: Iterable[Mapping[str, int]],
        excluded: Iterable[Mapping[str, int]],
    ) -> None:
        """Stores the sizes already drawn.

        checked: sizes of the verdict, whose goals are met. excluded: further sizes that may not be
        drawn.
        """
        self._context = context
        self._structure = context.structure
        self._trials = Trials(problem, {}, DRAWING_CALLS, self._structure.real)
        self._checked = [self._extents_of(sizes) for sizes in checked]
        self._drawn_extents = {*self._checked, *map(self._extents_of, excluded)}
        self._most_tiny = (len(context.names) + 1) // 2
        self._limit = CPU_BUDGET if context.on_cpu else GPU_BUDGET

    def _extents_of(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(
            sizes.get(n, full)
            for n, full in zip(self._context.names, self._context.full, strict=True)
        )

    def draw(self, strategies: Sequence[Strategy], count: int) -> list[DrawnSize]:
        """Draws up to `count` sizes for the goals of some strategies, the first strategy's goals first."""
        drawn: list[DrawnSize] = []
        begun: dict[str, int] = {}
        waiting = [_OpenGoal(s, g) for s in strategies for g in s.goals(self._context)]
        while waiting and len(drawn) < count and self._trials.remaining_calls > 0:
            waiting = [
                w for w in waiting if not any(w.goal.holds(extents) for extents in self._checked)
            ]
            if not waiting:
                break
            first = waiting.pop(0)
            if begun.get(first.strategy.name, 0) >= first.strategy.most:
                continue
            size = self._size_for(first, waiting)
            if size is not None:
                begun[first.strategy.name] = begun.get(first.strategy.name, 0) + 1
                drawn.append(size[0])
                waiting = [w for w in waiting if w not in size[1]]
        return drawn

    def _size_for(
        self, first: _OpenGoal, further_goals: Sequence[_OpenGoal]
    ) -> tuple[DrawnSize, list[_OpenGoal]] | None:
        """Returns a legal size that meets a goal, with all goals that it meets; None if there is
        none."""
        dry_runs = 0
        # Operations of the last refused size. After it only clearly smaller sizes are tried.
        too_large = math.inf
        for start in self._choices(first, {}):
            operations = self._structure.load(self._multipliers(start)).operations
            if operations > too_large * SMALLER_PART:
                continue
            dry_runs += 1
            if dry_runs > MAX_DRY_RUNS:
                break
            chosen, met = start, [first]
            # The size also meets further goals whose extents agree with the chosen ones.
            for further in further_goals if not first.strategy.by_itself else ():
                tiny = sum(m.strategy.tiny for m in met)
                if further.strategy.by_itself or (
                    further.strategy.tiny and tiny >= self._most_tiny
                ):
                    continue
                more = next(self._choices(further, chosen, first.strategy.budget), chosen)
                if len(more) > len(chosen):
                    chosen, met = more, [*met, further]
            # The reference may refuse the combination and accept the size for the first goal alone.
            for extents, goals in ((chosen, met), (start, [first])):
                size = self._confirmed(extents, goals)
                if size is not None:
                    return size, goals
            too_large = operations
        return None

    def _choices(
        self, goal: _OpenGoal, chosen: Extents, budget: Budget | None = None
    ) -> Iterator[dict[int, int]]:
        """Yields the chosen extents extended by a goal's proposals that agree with them and are
        affordable.

        budget: that of the size's first goal, if different: the smaller of both applies.
        """
        for proposal in itertools.islice(goal.goal.proposals(chosen), MAX_PROPOSALS):
            if any(chosen.get(i, value) != value for i, value in proposal.items()):
                continue
            merged = {**chosen, **proposal}
            values = [merged[i] for i in proposal if i not in chosen]
            # With equal extents a candidate that mistakes one dimension for the other is right.
            if not goal.strategy.equals and (
                len({*values}) < len(values) or any(merged[i] in values for i in chosen)
            ):
                continue
            if self._is_possible(merged) and all(
                self._admits(merged, each)
                for each in (goal.strategy.budget, budget)
                if each is not None
            ):
                yield merged

    def _is_possible(self, extents: Extents) -> bool:
        """Says whether each extent is a whole number of steps within the bounds of its dimension."""
        if any(value < 1 for value in extents.values()):
            return False
        multipliers = self._multipliers(extents)
        for i, value in extents.items():
            ceiling = self._structure.dimensions[i].ceiling
            if ceiling is not None and multipliers[i] > ceiling:
                return False
            if not self._context.on_cpu and value > max(
                MAX_TIMES_LARGER * self._context.full[i], MIN_EXTENT_TO_CAP
            ):
                return False
        return all(self._structure.value(i, multipliers) == value for i, value in extents.items())

    def _multipliers(self, extents: Extents) -> list[int]:
        """Returns the multipliers of all dimensions, the smallest for those without an extent."""
        multipliers = list(self._structure.floors)
        for i, value in extents.items():
            multipliers[i] = 1
            multipliers[i] = max(1, value // self._structure.value(i, multipliers))
        return multipliers

    def _admits(self, extents: Extents, budget: Budget, slack: float = 1.0) -> bool:
        room = self._room(budget).times(slack)
        return room.admits(self._structure.load(self._multipliers(extents)))

    def _room(self, budget: Budget) -> Budget:
        """Returns the budget of a strategy on this device, at least several times the smallest sizes."""
        return self._structure.widened(budget if self._context.on_cpu else GPU_BUDGET)

    # -------------------------------------------------------------- one size
    def _confirmed(self, extents: Extents, goals: Sequence[_OpenGoal]) -> DrawnSize | None:
        """Returns a size with these extents, the others being filled, if the reference accepts it."""
        strategy = goals[0].strategy
        multipliers = self._filled(extents, small=strategy.by_itself)
        sizes = self._structure.sizes(multipliers)
        values = self._extents_of(sizes)
        if values in self._drawn_extents:
            return None
        cost = self._trials.at(sizes)
        if cost is None or not self._is_good(cost, strategy.budget):
            return None
        self._drawn_extents.add(values)
        self._checked.append(values)
        names = tuple(dict.fromkeys(g.strategy.name for g in goals))
        words = ", ".join([g.goal.words for g in goals][:MAX_GOALS_IN_WORDS])
        return DrawnSize(
            sizes=sizes, why=words, strategy=", ".join(names), one_call=strategy.one_call
        )

    def _is_good(self, cost: ReferenceCost, budget: Budget) -> bool:
        own_cost = self._structure.at_base
        return (
            own_cost is not None
            and same_form(own_cost, cost)
            and self._room(budget).times(COST_SLACK).holds(cost)
        )

    def _filled(self, extents: Extents, small: bool) -> list[int]:
        """Returns multipliers of all dimensions: those asked for, and irregular ones."""
        multipliers = self._multipliers(extents)
        missing = [i for i in self._context.dimensions if i not in extents]
        self._context.random.shuffle(missing)
        for i in missing:
            multipliers[i] = self._irregular(multipliers, i, {*extents, *missing}, small)
        return multipliers

    def _irregular(
        self, chosen: list[int], dimension: int, other_dimensions: Iterable[int], small: bool
    ) -> int:
        """Draws a multiplier between the smallest and the largest affordable, log-uniformly, whose
        extent differs from all others."""
        random = self._context.random
        structure = self._structure
        floor, cap = structure.dimensions[dimension].floor, self._cap(chosen, dimension)
        if small:
            cap = min(cap, max(floor, LARGEST_SMALL // self._context.unit(dimension)))
        used_extents = {structure.value(i, chosen) for i in other_dimensions if i != dimension}
        drawn = floor
        for _ in range(FRESH_DRAWS):
            target = int(floor * max(1.0, cap / floor) ** (FILLED_SHARE * random.random()))
            drawn = min(irregular_number(max(target, floor), floor, random), cap)
            if structure.value(dimension, _with(chosen, dimension, drawn)) not in used_extents:
                break
        return drawn

    def _cap(self, chosen: list[int], dimension: int) -> int:
        """Returns the largest multiplier that the usual budget admits beside those chosen; the
        smallest if none."""
        room = self._room(self._limit)
        low = self._structure.dimensions[dimension].floor
        high = max(
            low, min(room.elements, self._structure.dimensions[dimension].ceiling or MAX_MULTIPLIER)
        )
        if not self._context.on_cpu:
            full = max(MAX_TIMES_LARGER * self._context.full[dimension], MIN_EXTENT_TO_CAP)
            high = max(low, min(high, full // max(1, self._context.unit(dimension))))
        while high - low > low >> PRECISION_BITS:
            middle = (low + high + 1) // 2 if high < 2 * low else min(high, 2 * low)
            if room.admits(self._structure.load(_with(chosen, dimension, middle))):
                low = middle
            else:
                high = middle - 1
        return low


def _with(multipliers: list[int], dimension: int, multiplier: int) -> list[int]:
    return [*multipliers[:dimension], multiplier, *multipliers[dimension + 1 :]]
