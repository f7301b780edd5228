"""Chooses the sizes that a candidate is traced and checked at, from the verdict's seed and from the numbers that its
text names.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from kernelwright.tools.judging.layouts.layout_draws import laid_out
from kernelwright.tools.judging.rules import AtSize
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.dry_run import DryRunFailed, measure_cost
from kernelwright.tools.references.input_spec import input_spec
from kernelwright.tools.report import Value
from kernelwright.tools.sizing.author_sizes import author_sizes
from kernelwright.tools.sizing.numbers_in_text import compared_in, divisors_in, numbers_in, powers_in, thresholds_in
from kernelwright.tools.sizing.scaled_down import scaled_down
from kernelwright.tools.sizing.size_draws import CPU_BUDGET, GPU_BUDGET, Budget, DrawnSize, draw_sizes, sizes_that_reach
from kernelwright.tools.sizing.size_search import changeable_integers
from kernelwright.tools.sizing.small_sizes import shrink
from kernelwright.tools.sizing.two_large_extents import two_large_extents
from kernelwright.tools.tracing.client import SizeRequest

MULTIPROCESSOR_COUNTS = (1, 2, 3)
"""Multiprocessors that the pretended GPU has at some sizes on a CPU, so that persistent kernels go through their loops.
"""
THIN_SIZES, FEW_THIN_SIZES, FEW_SIZES = 2, 1, 6
"""Sizes of a verdict in which one dimension has the problem's own extent and the others are small; where a verdict has
fewer than FEW_SIZES in all, the second number.
"""
MAX_INT16 = (1 << 15) - 1
"""The largest whole number of 16 bits with a sign."""
BROAD_BUDGET = Budget(elements=1 << 20, operations=20_000_000, rows=1 << 10)
"""The budget of the size without a GPU that is large in every dimension."""
BROAD_DIMENSIONS = 2
"""Dimensions of a problem up to which such a size is drawn: with more, work that grows with their product is too slow.
"""
CROSSING_SIZES = 2
"""Sizes of a verdict that cross a threshold of the candidate's text."""
MAX_SIZES_OF_A_NUMBER = 2
"""Sizes for each of them."""
MAX_REACHING_ROWS = 1 << 13
MAX_THIN_SIZES = 6
THIN_BUDGET = (1 << 16, 20_000_000)
"""Elements and operations of such a size."""
TABLE_BUDGET = (1 << 18, 1 << 13)
"""Elements of one whose outputs have no more than the second number: a table of which a few rows are read."""
MIN_EXTENT = 3
MAX_TIMES_LARGER = 2
"""Largest factor by which an extent may exceed the problem's own on a GPU."""
MIN_EXTENT_TO_CAP = 64
POOL_SIZES = 14
"""Sizes that the verdicts of one epoch choose from, at most; twice as many as one verdict tries where that is less."""
COMMON_BLOCKS = (16, 32, 64, 128, 256, 512, 1024, 2048)
MIN_OTHERS_OF_POOL = 1
"""Sizes that are drawn from the pool behind those that tell most, where a verdict has several broad ones."""
MAX_REACHING_SIZES = 6
"""Sizes tried for a kernel that is launched at full size only."""


class Selection(Value):
    """The sizes to trace; index 0 is the problem's own size."""

    base: AtSize
    others: tuple[AtSize, ...] = ()
    layouts: tuple[AtSize, ...] = ()
    """Variants of one of the sizes with inputs in other layouts."""
    notes: tuple[str, ...] = ()
    too_large: str = ""
    """The reason why no interpreter can run the problem on a CPU."""

    @property
    def every(self) -> tuple[AtSize, ...]:
        """Returns all sizes but the problem's own, in the order of their traces."""
        return (self.base, *self.others) if self.base.index else self.others

    @property
    def variants(self) -> tuple[AtSize, ...]:
        """Returns the sizes beside the base, and those with inputs in other layouts."""
        return (*self.others, *self.layouts)


def select_sizes(problem: Problem, source: str, device: str, seed: int, count: int) -> Selection:
    """The base size and `count` others.

    On a GPU the base is the problem's own size; on a CPU a small one that an interpreter can run.
    """
    on_cpu = device == "cpu"
    small = shrink(problem) if on_cpu else None
    if small is not None and not small.fits:
        own = AtSize(index=0, problem=problem, sizes={})
        return Selection(base=own, too_large=small.note)
    sizes = small.sizes if small else {}
    first = 1 if on_cpu else 0
    base = AtSize(
        index=first, problem=problem.with_sizes(sizes), sizes=sizes, why="small" if sizes else "the problem's own"
    )
    notes = [small.note] if small and small.note else []
    if count <= 0:
        return Selection(base=base, notes=tuple(notes))
    chosen = _drawn(problem, source, sizes, on_cpu, seed, count)
    others = [
        AtSize(
            index=first + 1 + i, problem=d.applied(problem), sizes=d.sizes, why=d.why,
            required=d in chosen.must, one_call=d in chosen.broad,
        )
        for i, d in enumerate(chosen.every)
    ]  # fmt: skip
    return Selection(base=base, others=tuple(others), notes=(*notes, *chosen.notes))


class _Chosen(NamedTuple):
    """The sizes of a verdict beside its base."""

    must: Sequence[DrawnSize]
    """The author's own."""
    every: list[DrawnSize]
    """All of them, the author's first."""
    broad: Sequence[DrawnSize]
    """Those that are large in two dimensions at once, or in all, and one that is like the problem's own."""
    notes: tuple[str, ...]


def _drawn(problem: Problem, source: str, base: dict[str, int], on_cpu: bool, seed: int, count: int) -> _Chosen:
    """A quarter is drawn for this verdict alone, from the numbers in the text of the candidate; the rest is from a pool
    that the verdicts of one epoch share, so that what the reference makes of them is computed once for several
    candidates.
    """
    budget = CPU_BUDGET if on_cpu else GPU_BUDGET
    must = author_sizes(problem, base, budget).sizes
    fresh = max(1, count // 4)
    own = draw_sizes(problem, base, numbers_in(source), seed, fresh + len(must), budget, must=must)
    if not on_cpu:
        own = own.with_(sizes=(*must, *_cap_extents(own.sizes[len(must) :], problem)))
    small = tuple(sorted(base.items()))
    thin: Sequence[DrawnSize] = _with_one_full_extent(problem, small if on_cpu else _small(problem))
    crossing = _crossing(problem, small, thresholds_in(source), budget)
    rng = random.Random(seed)
    thin = _some_of(thin, rng, THIN_SIZES if count >= FEW_SIZES else FEW_THIN_SIZES)
    more = [
        *(thin if on_cpu else ()),
        *(s for n in compared_in(source) for s in _just_beyond(problem, small, n, budget)[:MAX_SIZES_OF_A_NUMBER]),
        *(s for n in powers_in(source) for s in _just_beyond(problem, small, n + n // 2, budget)[:1]),
        *(s for n in divisors_in(source) for s in _multiples(problem, small, n, budget)[:MAX_SIZES_OF_A_NUMBER]),
        *rng.sample(crossing, min(len(crossing), CROSSING_SIZES)),
    ]
    own = own.with_(sizes=(*own.sizes, *(d for d in more if d.sizes not in [o.sizes for o in own.sizes])))
    broad: tuple[DrawnSize, ...] = ()
    like_own: tuple[DrawnSize, ...] = ()
    if on_cpu and count >= FEW_SIZES:  # beside all others
        broad = _broad(problem, small, seed >> 16) or two_large_extents(problem, small, seed)
        like_own = scaled_down(problem, small)
    late = [] if on_cpu else [d for d in thin if d.sizes not in [o.sizes for o in own.sizes]]
    wanted = max(0, count - len(own.sizes) - len(late))
    pool = (
        _draw_pool(problem, tuple(sorted(base.items())), on_cpu, seed >> 16, min(POOL_SIZES, 2 * count))
        if wanted
        else ()
    )
    left = [d for d in pool if d.sizes not in [o.sizes for o in own.sizes]]
    first, rest = left[: wanted // 2], left[wanted // 2 :]  # what tells most comes first
    more_of_them = max(MIN_OTHERS_OF_POOL, wanted - len(first) - len(broad) // 2)
    chosen = [*first, *random.Random(seed).sample(rest, min(len(rest), wanted - len(first), more_of_them))]
    chosen += [d for d in late if d.sizes not in [o.sizes for o in chosen]]
    broad = (*broad, *like_own)
    found = [*own.sizes, *chosen, *(d for d in broad if d.sizes not in [o.sizes for o in (*own.sizes, *chosen)])]
    return _Chosen(must, found, broad, own.notes if len(found) < count else ())


def _small(problem: Problem) -> tuple[tuple[str, int], ...]:
    """The sizes that an interpreter would run, as a place to begin with on a GPU: rows of a few numbers and tables of a
    few rows hide what thousands of them do, and the other way round.
    """
    small = shrink(problem)
    return tuple(sorted(small.sizes.items())) if small.fits else ()


def _some_of(thin: Sequence[DrawnSize], rng: random.Random, count: int) -> list[DrawnSize]:
    """Picks so many of the sizes with one full extent, those first that are beyond what 16 bits count."""
    beyond = [d for d in thin if max(d.sizes.values(), default=0) > MAX_INT16]
    first = rng.sample(beyond, min(len(beyond), count))
    rest = [d for d in thin if d not in first]
    return [*first, *rng.sample(rest, min(len(rest), count - len(first)))]


def _cap_extents(drawn: Iterable[DrawnSize], problem: Problem) -> tuple[DrawnSize, ...]:
    """On a GPU no extent is much beyond the problem's own: a head of 5,000 where there are 64 takes a compiler
    minutes and tells nothing.
    """
    full, found = changeable_integers(problem), dict[tuple[int, ...], DrawnSize]()
    for one in drawn:
        large = {n for n, v in one.sizes.items() if v > max(MAX_TIMES_LARGER * full.get(n, v), MIN_EXTENT_TO_CAP)}
        sizes = {n: full[n] if n in large else v for n, v in one.sizes.items()}
        if large and (sizes == {n: full[n] for n in sizes} or not _runs(problem, sizes)):
            continue
        why = f"{one.why}; {', '.join(sorted(large))} as in the problem" if large else one.why
        found.setdefault(tuple(sizes.values()), one.with_(sizes=sizes, why=why))
    return tuple(found.values())


def _runs(problem: Problem, sizes: dict[str, int]) -> bool:
    try:
        cost = measure_cost(problem.with_sizes(sizes))
    except (DryRunFailed, ProblemError):
        return False
    return cost.elements <= GPU_BUDGET.elements


@functools.lru_cache(maxsize=256)
def _crossing(
    problem: Problem, base: tuple[tuple[str, int], ...], thresholds: tuple[int, ...], budget: Budget
) -> tuple[DrawnSize, ...]:
    """Sizes on the other side of the numbers that a text compares with and that are no block sizes."""
    if not thresholds:
        return ()
    small = dict(base)
    found = sizes_that_reach(problem, small, thresholds, budget.with_(rows=MAX_REACHING_ROWS)).sizes
    beyond = [d for d in found if any(small.get(n, v) < t < v for n, v in d.sizes.items() for t in thresholds)]
    by_dimension = {tuple(n for n, v in d.sizes.items() if v > max(small.get(n, 0), 16)): d for d in reversed(beyond)}
    return tuple(by_dimension.values())[:MAX_REACHING_SIZES]


@functools.lru_cache(maxsize=256)
def _broad(problem: Problem, base: tuple[tuple[str, int], ...], epoch: int) -> tuple[DrawnSize, ...]:
    """One size that is large in every dimension at once: elsewhere two places are never both beyond something."""
    if len(base) > BROAD_DIMENSIONS:
        return ()
    return draw_sizes(problem, dict(base), COMMON_BLOCKS, epoch, 1, BROAD_BUDGET).sizes


@functools.lru_cache(maxsize=256)
def _just_beyond(
    problem: Problem, base: tuple[tuple[str, int], ...], number: int, budget: Budget
) -> tuple[DrawnSize, ...]:
    """Returns for each dimension the sizes in which it exceeds a number by least, the largest dimensions of a problem
    first.
    """
    small, full = dict(base), changeable_integers(problem)
    found = sizes_that_reach(problem, small, (number,), budget.with_(rows=MAX_REACHING_ROWS)).sizes
    nearest: dict[str, DrawnSize] = {}
    for drawn in found:
        for name in (n for n, v in drawn.sizes.items() if small.get(n, v) < number < v < full.get(n, v)):
            if name not in nearest or drawn.sizes[name] < nearest[name].sizes[name]:
                nearest[name] = drawn
    return tuple(nearest[n] for n in sorted(nearest, key=lambda n: -full.get(n, 0)))


@functools.lru_cache(maxsize=256)
def _multiples(
    problem: Problem, base: tuple[tuple[str, int], ...], number: int, budget: Budget
) -> tuple[DrawnSize, ...]:
    """Returns for each dimension a size in which it is a multiple of a number."""
    small = dict(base)
    found = sizes_that_reach(problem, small, (number,), budget.with_(rows=MAX_REACHING_ROWS)).sizes
    by_dimension = {n: d for d in reversed(found) for n, v in d.sizes.items() if v % number == 0 and v != small.get(n)}
    return tuple(d for i, d in enumerate(by_dimension.values()) if d not in list(by_dimension.values())[:i])


@functools.lru_cache(maxsize=256)
def _with_one_full_extent(problem: Problem, base: tuple[tuple[str, int], ...]) -> tuple[DrawnSize, ...]:
    """Small sizes but for one extent, which is the problem's own: a kernel that does something else just there is seen
    without a GPU.

    Names with equal extents keep them equal.
    """
    small, full = dict(base), changeable_integers(problem)
    found: list[DrawnSize] = []
    for extent in sorted({full[n] for n in small if full.get(n, 0) > small[n]}):
        names = [n for n in small if full.get(n) == extent]
        for chosen in ([[n] for n in names] if len(names) > 1 else []) + [names]:
            least = {name: min(value, MIN_EXTENT) for name, value in small.items()}
            for others in (small, least):
                sizes = {**others, **dict.fromkeys(chosen, extent)}
                if _is_light(problem.with_sizes(sizes)):
                    found.append(DrawnSize(sizes=sizes, why=f"{', '.join(chosen)} as in the problem, the rest small"))
                    break
    return tuple(found[:MAX_THIN_SIZES])


def _is_light(problem: Problem) -> bool:
    try:
        cost = measure_cost(problem)
    except (DryRunFailed, ProblemError):
        return False
    made = sum(math.prod(shape) for shape in cost.outputs)
    most = TABLE_BUDGET[0] if made <= TABLE_BUDGET[1] else THIN_BUDGET[0]
    return cost.elements <= most and cost.operations <= THIN_BUDGET[1]


@functools.lru_cache(maxsize=256)
def _draw_pool(
    problem: Problem, base: tuple[tuple[str, int], ...], on_cpu: bool, epoch: int, count: int
) -> tuple[DrawnSize, ...]:
    drawn = draw_sizes(problem, dict(base), COMMON_BLOCKS, epoch, count, CPU_BUDGET if on_cpu else GPU_BUDGET).sizes
    return drawn if on_cpu else _cap_extents(drawn, problem)


def trace_requests(problem: Problem, selection: Selection, device: str, seed: int) -> list[SizeRequest]:
    """Returns the requests for the tracer, the problem's own size first."""
    rng = random.Random(seed)
    asked = [SizeRequest(spec=input_spec(problem, as_it_is=device != "cpu"))]  # a GPU judges it at this very size
    for size in selection.every:
        few = rng.choice(MULTIPROCESSOR_COUNTS) if device == "cpu" and size.index % 2 == 0 else None
        reuse = size is not selection.base and size.index % 2 == 1
        spec = input_spec(size.problem, as_it_is=bool(size.sizes))
        asked.append(SizeRequest(spec=spec, multiprocessors=few, reuse=reuse))
    for size in selection.layouts:
        spec = laid_out(input_spec(size.problem, as_it_is=bool(size.sizes)), size.layouts)
        asked.append(SizeRequest(spec=spec, reuse=size.index % 2 == 1))
    return asked


def sizes_reaching_numbers(problem: Problem, source: str, selection: Selection, device: str) -> list[AtSize]:
    """Sizes that cross the thresholds which the candidate's text names, best first, for a kernel that no checked
    size launches.
    """
    base = selection.base.sizes
    budget = CPU_BUDGET.with_(elements=1 << 19) if device == "cpu" else GPU_BUDGET
    found = sizes_that_reach(problem, base, numbers_in(source), budget)
    return [
        AtSize(index=i + 1, problem=d.applied(problem), sizes=d.sizes, why=d.why)
        for i, d in enumerate(found.sizes[:MAX_REACHING_SIZES])
    ]
