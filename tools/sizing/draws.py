"""Draws sizes for a problem: by all strategies for a verdict, or by some of them.

Which numbers of a reference may change, and which change together, is learned once per problem
(`learning.py`). Weights change with the sizes, so widths and constructor arguments are free, too.
Numbers written inside `Model`, and numbers that determine the kind of computation (windows,
strides, axes, layers), are fixed.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from random import Random

from kernelwright.tools.problem import Problem
from kernelwright.tools.references.size_search import changeable_integers
from kernelwright.tools.references.small_sizes import shrink
from kernelwright.tools.sizing.arithmetic import is_power_of_two
from kernelwright.tools.sizing.comparisons.relations import (
    extents_beyond_types,
    numbers_in,
    relations_in,
)
from kernelwright.tools.sizing.covering import Covering
from kernelwright.tools.sizing.drawn_sizes import DrawnSize, DrawnSizes
from kernelwright.tools.sizing.goals import Context, Strategy
from kernelwright.tools.sizing.learning import learn_structure
from kernelwright.tools.sizing.strategies import (
    FURTHER,
    OF_THE_CANDIDATE,
    OF_THE_PROBLEM,
    REACHING,
    USUAL_BLOCKS,
)
from kernelwright.tools.sizing.structure import SizeStructure

MAX_BLOCKS = 24
MAX_DRAWN_BLOCK_SIZE = 1 << 20
COMMON_BLOCKS = (16, 32, 64, 128, 256, 512, 1024, 2048)
"""Assumed block sizes of candidates whose source is not read."""


def draw_sizes(
    problem: Problem,
    base: Mapping[str, int],
    strategies: Sequence[Strategy],
    seed: int,
    count: int,
    *,
    source: str = "",
    blocks: Iterable[int] = (),
    on_cpu: bool = True,
    earlier: Iterable[DrawnSize] = (),
) -> DrawnSizes:
    """Draws up to `count` distinct sizes, other than the base, the written ones and those drawn
    before.

    Deterministic for equal arguments. base: as for Problem.with_sizes; on a CPU
    `shrink(problem).sizes`, on a GPU {}. source: the candidate's source. blocks: block sizes in
    addition to those of the source. earlier: sizes whose goals are met already. If the smallest
    sizes of a reference exceed a strategy's budget, sizes stay near them.
    """
    structure, notes = _structure(problem, base)
    if not structure.dimensions or count <= 0:
        return DrawnSizes(sizes=(), notes=(*notes, *_note_of_few(problem, structure, 0, count)))
    context = _context(problem, structure, source, blocks, Random(f"{seed}/{problem.hash}"), on_cpu)
    written = changeable_integers(problem)
    checked = [base, *(size.sizes for size in earlier if not size.inputs)]
    sizes = Covering(problem, context, checked, (structure.base, written)).draw(strategies, count)
    return DrawnSizes(
        sizes=tuple(sizes), notes=(*notes, *_note_of_few(problem, structure, len(sizes), count))
    )


def draw_varied(
    problem: Problem, base: Mapping[str, int], blocks: Iterable[int], seed: int, count: int
) -> DrawnSizes:
    """Draws up to `count` sizes for an interpreter by the strategies of candidates and of blocks."""
    return draw_sizes(problem, base, (*OF_THE_CANDIDATE, *FURTHER), seed, count, blocks=blocks)


@functools.lru_cache(maxsize=256)
def draw_pool(
    problem: Problem, base: tuple[tuple[str, int], ...], on_cpu: bool, epoch: int, count: int
) -> tuple[DrawnSize, ...]:
    """Draws the sizes from which all verdicts of an epoch choose, so that the reference's outputs
    are shared by candidates."""
    strategies = (*OF_THE_PROBLEM, *FURTHER)
    return draw_sizes(
        problem, dict(base), strategies, epoch, count, blocks=COMMON_BLOCKS, on_cpu=on_cpu
    ).sizes


def sizes_that_reach(
    problem: Problem, base: Mapping[str, int], source: str, count: int, *, on_cpu: bool = True
) -> DrawnSizes:
    """Draws up to `count` sizes at which host code may take its full-size branch, the likeliest
    first."""
    return draw_sizes(problem, base, REACHING, 0, count, source=source, on_cpu=on_cpu)


def _structure(problem: Problem, base: Mapping[str, int]) -> tuple[SizeStructure, list[str]]:
    """Returns the structure around the base, or around small sizes if the reference cannot be tried
    at the base."""
    structure = learn_structure(problem, base)
    if structure.at_base is None and (small := shrink(problem).sizes) and small != dict(base):
        other = learn_structure(problem, small)
        if other.at_base is not None:
            return other, [
                *other.notes,
                "learned at small sizes: the reference cannot be tried at its own",
            ]
    return structure, list(structure.notes)


def _context(
    problem: Problem,
    structure: SizeStructure,
    source: str,
    blocks: Iterable[int],
    random: Random,
    on_cpu: bool,
) -> Context:
    written, dimensions = changeable_integers(problem), structure.dimensions
    numbers = numbers_in(source)
    return Context(
        structure=structure,
        names=tuple(d.name for d in dimensions),
        full=tuple(written[d.name] for d in dimensions),
        small=tuple(structure.value(i, structure.bases) for i in range(len(dimensions))),
        blocks=_usable_blocks((*numbers, *blocks), random),
        numbers=(*numbers, *extents_beyond_types(source)),
        relations=relations_in(source),
        random=random,
        on_cpu=on_cpu,
    )


def _usable_blocks(numbers: Iterable[int], random: Random) -> tuple[int, ...]:
    """Returns distinct block sizes, the smallest first.

    A candidate's source may name any number of them: of too many, powers of two are kept, and a
    sample of the others.
    """
    usable = sorted({n for n in numbers if 4 <= n <= MAX_DRAWN_BLOCK_SIZE})
    if len(usable) > MAX_BLOCKS:
        powers = [n for n in usable if is_power_of_two(n)]
        other_sizes = [n for n in usable if n not in powers]
        usable = sorted(
            powers
            + random.sample(other_sizes, min(len(other_sizes), max(0, MAX_BLOCKS - len(powers))))
        )
    return tuple(usable or USUAL_BLOCKS)


def _note_of_few(problem: Problem, structure: SizeStructure, drawn: int, count: int) -> list[str]:
    if drawn >= count:
        return []
    return [f"{drawn} of {count} sizes: {_why_few(problem, structure)}"]


def _why_few(problem: Problem, structure: SizeStructure) -> str:
    if structure.at_base is None:
        return "the reference does not run without data"
    if structure.dimensions:
        return "no more distinct ones within the budget"
    if not changeable_integers(problem):
        return "no size is written where it could be changed"
    return "the reference runs with no other sizes that were tried"
