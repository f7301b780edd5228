"""Draws sizes at which a candidate must be right: anew from a seed, and those that reach a kernel which small sizes
do not launch.

Which numbers of a reference may change, and together with which, is learned once for each problem (`learning.py`).
Weights change with the sizes, so widths and constructor arguments are free too. Numbers written inside `Model`, and
what is computed (windows, strides, axes, layers), stay as they are.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from random import Random

from kernelwright.bindings import bound_names
from kernelwright.tools.problem import Problem, parse
from kernelwright.tools.references.dry_run import ReferenceCost
from kernelwright.tools.report import Value
from kernelwright.tools.sizing.learning import learn_structure
from kernelwright.tools.sizing.multipliers import Chooser, usable_blocks, widen_budget
from kernelwright.tools.sizing.primes_and_divisors import describe_number
from kernelwright.tools.sizing.size_search import changeable_integers
from kernelwright.tools.sizing.small_sizes import shrink
from kernelwright.tools.sizing.structure import Budget, SizeStructure, same_form
from kernelwright.tools.sizing.trial import Trials

__all__ = [
    "CPU_BUDGET",
    "GPU_BUDGET",
    "Budget",
    "DrawnSize",
    "DrawnSizes",
    "draw_sizes",
    "functions_of",
    "sizes_that_reach",
]

CPU_BUDGET = Budget(elements=1 << 16, operations=10_000_000, rows=512)
"""The budget of one size under Triton's interpreter."""
GPU_BUDGET = Budget(elements=1 << 24, operations=20_000_000_000)
DRAWING_CALLS = 8_000
"""aten calls of all dry runs of one call of `draw_sizes` or `sizes_that_reach`."""
MAX_ATTEMPTS_PER_SIZE = 3
"""Sets of multipliers that are tried for each size that is wanted."""
COST_SLACK = 1.5
"""How many times its estimated cost a dry run may have, where sizes are over the budget in any case."""
MAX_DESCRIBED_DIMENSIONS = 4
"""Dimensions that a size's description names."""


class DrawnSize(Value):
    """One set of sizes."""

    sizes: dict[str, int]
    """What `Problem.with_sizes` takes; the base's too."""
    why: str
    """What is special about them: "rows one more than 64, columns prime"."""
    inputs: str = ""
    """The function of the reference that gives the inputs, where it is not get_inputs."""

    def applied(self, problem: Problem) -> Problem:
        """The problem at these sizes."""
        resized = problem.with_sizes(self.sizes)
        if not self.inputs:
            return resized
        text = f"{resized.source}\n\nget_inputs = {self.inputs}\n"
        init = self.inputs.replace("get_inputs", "get_init_inputs")
        if init in bound_names(parse(problem.source)):
            text += f"get_init_inputs = {init}\n"
        return resized.model_copy(update={"source": text})


class DrawnSizes(Value):
    """The sizes at which a candidate is checked."""

    sizes: tuple[DrawnSize, ...]
    notes: tuple[str, ...] = ()
    """Why there are fewer than asked for, and what stays as it is."""


def draw_sizes(
    problem: Problem,
    base: Mapping[str, int],
    blocks: Iterable[int],
    seed: int,
    count: int,
    budget: Budget,
    must: Sequence[DrawnSize] = (),
) -> DrawnSizes:
    """Up to `count` distinct sizes, none of them the base's or the written ones: the same on every machine for the same
    arguments.

    base: as for Problem.with_sizes; on a CPU `shrink(problem).sizes`, on a GPU {}. blocks: the candidate's block sizes,
    and numbers that its text compares with.
    must: sizes that come first, as they are, and count. The first drawn is beyond one block in every dimension, the
    third a multiple of blocks; any few of them straddle the largest blocks that the budget admits, and each dimension
    is once as large as it is written. Where the smallest sizes of a reference are over the budget, sizes stay near
    them.
    """
    structure, notes = _structure(problem, base)
    room = widen_budget(budget, structure)
    wide = (room.elements, room.operations) != (budget.elements, budget.operations)
    if wide and structure.dimensions:
        notes.append("the smallest sizes that the reference takes are over the budget")
    random = Random(f"{seed}/{problem.hash}")
    drawing = _Drawing(problem, structure, usable_blocks(blocks, random), room, must, [base])
    drawing.most = room.times(COST_SLACK) if wide else room
    drawing.draw(max(0, count - len(must)), random)
    if len(drawing.found) < count:
        notes.append(f"{len(drawing.found)} of {count} sizes: {_why_few(problem, structure)}")
    return DrawnSizes(sizes=tuple(drawing.found[: max(count, len(must))]), notes=tuple(notes))


def _structure(problem: Problem, base: Mapping[str, int]) -> tuple[SizeStructure, list[str]]:
    """Around the base, or around small sizes where the reference cannot be tried at the base."""
    structure = learn_structure(problem, base)
    if structure.own is None and (small := shrink(problem).sizes) and small != dict(base):
        other = learn_structure(problem, small)
        if other.own is not None:
            return other, [*other.notes, "learned at small sizes: the reference cannot be tried at its own"]
    return structure, list(structure.notes)


def _why_few(problem: Problem, structure: SizeStructure) -> str:
    if structure.own is None:
        return "the reference does not run without data"
    if structure.dimensions:
        return "no more distinct ones within the budget"
    if not changeable_integers(problem):
        return "no size is written where it could be changed"
    return "the reference runs with no other sizes that were tried"


class _Drawing:
    """Sizes found so far, each confirmed by a dry run."""

    def __init__(
        self,
        problem: Problem,
        structure: SizeStructure,
        blocks: Sequence[int],
        budget: Budget,
        must: Sequence[DrawnSize],
        taken: Sequence[Mapping[str, int]],
    ) -> None:
        self.structure, self.blocks, self.budget = structure, blocks, budget
        self.most = budget
        self.trials = Trials(problem, {}, DRAWING_CALLS, structure.real)
        self.found = list(must)
        written = changeable_integers(problem)
        known = [structure.base, written, *taken, *(d.sizes for d in must if not d.inputs)]
        self.seen = {self._values(sizes, written) for sizes in known}
        self.written = written

    def _values(self, sizes: Mapping[str, int], written: Mapping[str, int]) -> tuple[int, ...]:
        return tuple(sizes.get(n, written.get(n, 0)) for n in self.structure.terms)

    def draw(self, wanted: int, random: Random) -> None:
        """Adds up to `wanted` sizes to those found so far."""
        if not self.structure.dimensions or not wanted:
            return
        most = len(self.found) + wanted
        chooser = Chooser(self.structure, self.blocks, self.written, self.budget, random)
        for multipliers, _ in zip(chooser, range(MAX_ATTEMPTS_PER_SIZE * wanted + MAX_ATTEMPTS_PER_SIZE), strict=False):
            self.take(multipliers)
            if len(self.found) >= most or self.trials.left <= 0:
                return

    def take(self, multipliers: list[int]) -> bool:
        """Whether a choice, or one like it, runs within the budget and is new."""
        structure = self.structure
        for choice in self._choices(multipliers):
            sizes = structure.sizes(choice)
            values = self._values(sizes, self.written)
            if values in self.seen:
                continue
            self.seen.add(values)
            cost = self.trials.at(sizes)
            if cost is not None and self._good(cost):
                self.found.append(DrawnSize(sizes=sizes, why=self._why(choice)))
                return True
        return False

    def _choices(self, multipliers: list[int]) -> Iterator[list[int]]:
        """The choice itself; then smaller ones; then ones nearer to the base."""
        structure, floors = self.structure, self.structure.floors
        yield multipliers
        for share in (0.7, 0.4):
            yield [max(f, int(f + (m - f) * share) | 1) for f, m in zip(floors, multipliers, strict=True)]
        for index in range(len(floors)):
            near = [m if i == index else b for i, (m, b) in enumerate(zip(multipliers, structure.bases, strict=True))]
            if self.budget.admits(structure.load(near)):
                yield near

    def _good(self, cost: ReferenceCost) -> bool:
        own = self.structure.own
        if own is None or not same_form(own, cost):
            return False
        return self.most.holds(cost)

    def _why(self, multipliers: Sequence[int]) -> str:
        structure = self.structure
        values = {d.name: structure.value(i, multipliers) for i, d in enumerate(structure.dimensions)}
        telling = sorted(values.items(), key=lambda item: -item[1])[:MAX_DESCRIBED_DIMENSIONS]
        return ", ".join(f"{name} {describe_number(value, self.blocks)}" for name, value in telling)


def sizes_that_reach(
    problem: Problem, base: Mapping[str, int], thresholds: Iterable[int], budget: Budget, count: int = 16
) -> DrawnSizes:
    """Up to `count` sizes at which host code may take the way that it takes at full size, the likeliest first.

    No random numbers are used.

    thresholds: numbers that the candidate's text compares with. First as many dimensions as possible at their written
    values, then one dimension at its written value with small ones beside it, then sizes that cross each threshold: in
    the elements of all tensors, or in one dimension (one more than it, or a multiple of it). What it does not do: reach
    a threshold that is beyond the budget.
    """
    structure, notes = _structure(problem, base)
    room = widen_budget(budget, structure)
    drawing = _Drawing(problem, structure, usable_blocks(thresholds, Random(0)), room, (), [base])
    if structure.dimensions:
        chooser = Chooser(structure, drawing.blocks, drawing.written, room, Random(0))
        for multipliers in _reaching(structure, chooser, sorted({t for t in thresholds if t > 1})):
            drawing.take(multipliers)
            if len(drawing.found) >= count or drawing.trials.left <= 0:
                break
    if not drawing.found:
        notes.append(f"no size can be tried: {_why_few(problem, structure)}")
    return DrawnSizes(sizes=tuple(drawing.found), notes=tuple(notes))


def _reaching(structure: SizeStructure, chooser: Chooser, thresholds: Sequence[int]) -> Iterator[list[int]]:
    """Multipliers in the order in which they are tried."""
    written, floors, everything = chooser.written, structure.floors, list(chooser.all)
    full = [max(1, written[i] * d.base // structure.value(i, structure.bases)) for i,
        d in enumerate(structure.dimensions)]  # fmt: skip
    for order in (sorted(everything, key=lambda i: structure.dimensions[i].batch),
        sorted(everything, key=lambda i: full[i])):  # fmt: skip
        chosen = list(floors)
        for index in order:
            cap = chooser.cap(chosen, index)
            chosen[index] = full[index] if full[index] <= cap else max(floors[index], 1 << max(cap, 1).bit_length() - 1)
        yield chosen
    for index in sorted(everything, key=lambda i: -full[i]):
        if full[index] <= chooser.caps[index]:
            yield [full[index] if i == index else f for i, f in enumerate(floors)]
    for threshold in thresholds:
        yield from _crossing(structure, chooser, threshold)


def _crossing(structure: SizeStructure, chooser: Chooser, threshold: int) -> Iterator[list[int]]:
    """Yields multipliers with one dimension over the threshold, or at a multiple of it; then with all dimensions
    together over it.
    """
    floors = structure.floors
    for index in chooser.order:
        unit = structure.value(index, [1 if i == index else f for i, f in enumerate(floors)])
        for value in (threshold + 1, 2 * threshold):
            if floors[index] <= (multiplier := -(-value // unit)) <= chooser.caps[index]:
                yield [multiplier if i == index else f for i, f in enumerate(floors)]
    own = structure.load(structure.bases).elements
    for factor in (2, 4, 8):
        share = max(1.0, factor * threshold / max(1.0, own)) ** (1 / len(floors))
        yield [max(f, int(b * share)) for f, b in zip(floors, structure.bases, strict=True)]


def functions_of(problem: Problem) -> list[str]:
    """The names of the functions of a reference, in the order of its text."""
    return [node.name for node in parse(problem.source).body if isinstance(node, ast.FunctionDef)]
