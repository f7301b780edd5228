"""Draws sizes that meet goals: the one loop of this room.

Each size begins with the first goal that is still open. Further open goals are met by the same size where they agree
with it and the budget allows; what is left is filled with irregular numbers. A dry run of the reference says whether
the size is legal and what it costs. All goals that the drawn size meets are closed.
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
from kernelwright.tools.sizing.goals import Context, Extents, Goal, Strategy
from kernelwright.tools.sizing.structure import Budget, same_form
from kernelwright.tools.sizing.trial import Trials

DRAWING_CALLS = 8_000
"""aten calls of all dry runs of one `Covering`."""
MAX_PROPOSALS = 400
"""Proposals of one goal that are looked at for one size."""
MAX_GOALS_IN_WORDS = 4
"""Goals of a size that its description names."""
MAX_DRY_RUNS = 5
"""Proposals for the first goal of one size that come to a dry run."""
SMALLER_PART = 0.75
"""After one that is no size, the next proposal has at most this part of its operations: an estimate may be wrong."""
COST_SLACK = 1.5
"""How many times its budget a dry run may cost: what is admitted before it is an estimate."""
MAX_MULTIPLIER = 1 << 26
PRECISION_BITS = 6
"""Binary digits to which the largest affordable multiplier is sought."""
FRESH_DRAWS = 4
"""Draws of a number that should differ from those of the other dimensions."""
FILLED_SHARE = 0.75
"""Extents that no goal asks for are at most the largest affordable ones to this power."""
LARGEST_SMALL = 7
"""Extents that no goal asks for are at most this where they should be small."""
MAX_TIMES_LARGER, MIN_EXTENT_TO_CAP = 2, 64
"""On a GPU no extent is larger than the problem's own times the first number, unless it is at most the second: a head
of 5,000 where there are 64 takes a compiler minutes and tells nothing.
"""


@dataclass(frozen=True, eq=False)
class _OpenGoal:
    """A goal that no size meets so far."""

    strategy: Strategy
    goal: Goal


class Covering:
    """Sizes drawn so far for one problem, each confirmed by a dry run."""

    def __init__(
        self,
        problem: Problem,
        context: Context,
        checked: Iterable[Mapping[str, int]],
        excluded: Iterable[Mapping[str, int]],
    ) -> None:
        """checked: sizes of the verdict, whose goals are met. excluded: further sizes that are not drawn."""
        self._context, self._structure = context, context.structure
        self._trials = Trials(problem, {}, DRAWING_CALLS, self._structure.real)
        self._checked = [self._extents_of(sizes) for sizes in checked]
        self._seen = {*self._checked, *map(self._extents_of, excluded)}
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
        while waiting and len(drawn) < count and self._trials.left > 0:
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
        self, first: _OpenGoal, others: Sequence[_OpenGoal]
    ) -> tuple[DrawnSize, list[_OpenGoal]] | None:
        """Returns a size that meets a goal, with the further goals that it meets; None where none is legal."""
        dry_runs = 0
        too_large = math.inf
        for start in self._choices(first, {}):
            operations = self._structure.load(self._multipliers(start)).operations
            if operations > too_large * SMALLER_PART:
                continue
            dry_runs += 1
            if dry_runs > MAX_DRY_RUNS:
                break
            chosen, met = start, [first]
            for other in others if not first.strategy.by_itself else ():
                tiny = sum(m.strategy.tiny for m in met)
                if other.strategy.by_itself or (other.strategy.tiny and tiny >= self._most_tiny):
                    continue
                more = next(self._choices(other, chosen, first.strategy.budget), chosen)
                if len(more) > len(chosen):
                    chosen, met = more, [*met, other]
            for extents, goals in ((chosen, met), (start, [first])):
                size = self._confirmed(extents, goals)
                if size is not None:
                    return size, goals
            too_large = operations
        return None

    def _choices(
        self, wanted: _OpenGoal, chosen: Extents, budget: Budget | None = None
    ) -> Iterator[dict[int, int]]:
        """Yields the chosen extents together with those that a goal proposes, where they agree and are affordable.

        budget: of the goal with which the size began, where it is another one: the smaller of both holds.
        """
        for proposal in itertools.islice(wanted.goal.proposals(chosen), MAX_PROPOSALS):
            if any(chosen.get(i, value) != value for i, value in proposal.items()):
                continue
            merged = {**chosen, **proposal}
            values = [merged[i] for i in proposal if i not in chosen]
            if not wanted.strategy.equals and (
                len({*values}) < len(values) or any(merged[i] in values for i in chosen)
            ):
                continue
            if self._is_possible(merged) and all(
                self._admits(merged, each)
                for each in (wanted.strategy.budget, budget)
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
        """Returns a size with these extents, and others where none is asked for, if the reference takes it."""
        strategy = goals[0].strategy
        multipliers = self._filled(extents, small=strategy.by_itself)
        sizes = self._structure.sizes(multipliers)
        values = self._extents_of(sizes)
        if values in self._seen:
            return None
        cost = self._trials.at(sizes)
        if cost is None or not self._is_good(cost, strategy.budget):
            return None
        self._seen.add(values)
        self._checked.append(values)
        names = tuple(dict.fromkeys(g.strategy.name for g in goals))
        words = ", ".join([g.goal.words for g in goals][:MAX_GOALS_IN_WORDS])
        return DrawnSize(
            sizes=sizes, why=words, strategy=", ".join(names), one_call=strategy.one_call
        )

    def _is_good(self, cost: ReferenceCost, budget: Budget) -> bool:
        own = self._structure.own
        return (
            own is not None
            and same_form(own, cost)
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
        self, chosen: list[int], dimension: int, others: Iterable[int], small: bool
    ) -> int:
        """Draws a multiplier between the smallest and the largest affordable one, small ones as likely as large ones,
        such that the extent differs from all others.
        """
        random, structure = self._context.random, self._structure
        floor, cap = structure.dimensions[dimension].floor, self._cap(chosen, dimension)
        if small:
            cap = min(cap, max(floor, LARGEST_SMALL // self._context.unit(dimension)))
        taken = {structure.value(i, chosen) for i in others if i != dimension}
        drawn = floor
        for _ in range(FRESH_DRAWS):
            target = int(floor * max(1.0, cap / floor) ** (FILLED_SHARE * random.random()))
            drawn = min(irregular_number(max(target, floor), floor, random), cap)
            if structure.value(dimension, _with(chosen, dimension, drawn)) not in taken:
                break
        return drawn

    def _cap(self, chosen: list[int], dimension: int) -> int:
        """Returns the largest multiplier that the usual budget admits beside those chosen; the smallest where none."""
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
