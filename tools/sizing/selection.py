"""Chooses the sizes that a candidate is traced and checked at, from the verdict's seed and the candidate's text."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_spec import input_spec
from kernelwright.tools.references.size_search import changeable_integers
from kernelwright.tools.references.small_sizes import shrink
from kernelwright.tools.report import Value
from kernelwright.tools.sizing.at_size import AtSize
from kernelwright.tools.sizing.drawn_sizes import (
    CPU_BUDGET,
    GPU_BUDGET,
    DrawnSize,
    author_sizes,
    is_empty,
)
from kernelwright.tools.sizing.draws import draw_pool, draw_sizes, sizes_that_reach
from kernelwright.tools.sizing.layout_draws import laid_out
from kernelwright.tools.sizing.strategies import COMPARISON_STRATEGIES, FURTHER, OF_THE_CANDIDATE
from kernelwright.tools.trace.trace import Change
from kernelwright.tools.tracing.client import SizeRequest

WITHOUT_EFFECT = (
    Change.GRADIENTS,
    Change.CLOCK,
    Change.THREADS,
    Change.DETERMINISTIC,
    Change.ENVIRONMENT,
    Change.SEEDED,
)
"""Changes of the surroundings, beside the form of inputs, in which a size is called: no reference depends on them."""
MULTIPROCESSOR_COUNTS = (1, 2, 3)
"""Multiprocessors that the pretended GPU has at some sizes on a CPU, so that persistent kernels go through their loops.
"""
FRESH_DIVISOR = 4
"""One size in so many is drawn for this verdict alone, beyond and at the edges of the candidate's blocks."""
FEW_SIZES = 6
"""Sizes of a verdict from which on all of the problem's own strategies are served, not some by chance."""
POOL_SHARE = 1.5
"""Sizes of the pool that such a verdict takes without a GPU, as a multiple of the sizes asked for, at most."""
MAX_COMPARISON_SIZES = 4
"""Maximum number of sizes for the comparisons in the candidate's text, beside all others."""
SPARE_BLOCKS = (16, 32, 64)
"""Blocks around which the sizes are that take the places of refused ones: a guard seldom refuses them."""
LATE_SIZES = 2
"""Sizes of a verdict on a GPU in which one extent is the problem's own and the others are small: they come last."""
MAX_REACHING_SIZES = 6
"""Sizes tried for a kernel that is launched at full size only."""


class Selection(Value):
    """The sizes to trace, each with the index of its trace: 0 is the problem's own size.

    On a GPU the base is that size. On a CPU it is a small one, of index 1.
    """

    base: AtSize
    others: tuple[AtSize, ...] = ()
    layouts: tuple[AtSize, ...] = ()
    """Variants of one of the sizes with inputs in other layouts."""
    empty: tuple[AtSize, ...] = ()
    """Sizes of which one extent is zero."""
    surrounded: int | None = None
    """The index of the size that is traced in changed surroundings, too."""
    notes: tuple[str, ...] = ()
    too_large: str = ""
    """The reason why no interpreter can run the problem on a CPU."""

    @property
    def every(self) -> tuple[AtSize, ...]:
        """Returns the sizes that are traced beside index 0, in the order of their traces."""
        return (self.base, *self.others) if self.base.index else self.others

    @property
    def variants(self) -> tuple[AtSize, ...]:
        """Returns the sizes beside the base, those with inputs in other layouts, and those without elements."""
        return (*self.others, *self.layouts, *self.empty)


def select_sizes(problem: Problem, source: str, device: str, seed: int, count: int) -> Selection:
    """Selects the base size and about `count` others.

    On a GPU the base is the problem's own size; on a CPU a small one that an interpreter can run.
    """
    on_cpu = device == "cpu"
    small = shrink(problem) if on_cpu else None
    if small is not None and not small.fits:
        return Selection(base=AtSize(index=0, problem=problem, sizes={}), too_large=small.note)
    sizes = small.sizes if small else {}
    first = 1 if on_cpu else 0
    why = "small" if sizes else "the problem's own"
    base = AtSize(
        index=first, problem=problem.with_sizes(sizes), sizes=sizes, why=why, strategy="base"
    )
    notes = [small.note] if small and small.note else []
    if count <= 0:
        return Selection(base=base, notes=tuple(notes))
    by_author = author_sizes(problem, sizes, CPU_BUDGET if on_cpu else GPU_BUDGET).sizes
    required = [size for size in by_author if not is_empty(size)]
    draw = _drawn_without_gpu if on_cpu else _drawn_on_gpu
    drawn, drawing_notes = draw(problem, source, sizes, seed, count, required)
    other_sizes = tuple(
        _at_size(d, problem, first + number, d in required)
        for number, d in enumerate((*required, *drawn), 1)
    )
    other_sizes = _with_turns(other_sizes)
    if on_cpu:
        other_sizes += _spare_sizes(
            problem, sizes, seed, max(1, count // FRESH_DIVISOR), other_sizes
        )
    notes += drawing_notes if len(drawn) < count else ()
    return Selection(base=base, others=other_sizes, notes=tuple(notes))


def _with_turns(sizes: Sequence[AtSize]) -> tuple[AtSize, ...]:
    """Ranks sizes by the product of their extents, largest first.

    The first ranks are checked with rows that hold few numbers among zeros: at a large size an
    omitted element weighs least in any other draw.
    """
    largest_first = sorted(sizes, key=lambda size: math.prod(size.sizes.values()), reverse=True)
    turns = {size.index: turn for turn, size in enumerate(largest_first)}
    return tuple(size.with_(turn=turns[size.index]) for size in sizes)


def _spare_sizes(
    problem: Problem, base: dict[str, int], seed: int, count: int, other_sizes: Sequence[AtSize]
) -> tuple[AtSize, ...]:
    """Returns replacements for sizes that the candidate itself refuses."""
    drawn_before = [DrawnSize(sizes=size.sizes, why=size.why) for size in other_sizes]
    spare = draw_sizes(
        problem, base, FURTHER, seed, count, blocks=SPARE_BLOCKS, earlier=drawn_before
    ).sizes
    first = len(other_sizes) + 2
    return tuple(
        _at_size(s, problem, index, False).with_(spare=True) for index, s in enumerate(spare, first)
    )


def _at_size(drawn: DrawnSize, problem: Problem, index: int, required: bool) -> AtSize:
    return AtSize(
        index=index, problem=drawn.applied(problem), sizes=drawn.sizes, why=drawn.why, strategy=drawn.strategy,
        required=required, one_call=drawn.one_call,
    )  # fmt: skip


def _drawn_without_gpu(
    problem: Problem,
    source: str,
    base: dict[str, int],
    seed: int,
    count: int,
    required: Sequence[DrawnSize],
) -> tuple[list[DrawnSize], tuple[str, ...]]:
    """Draws sizes for the candidate's blocks, for the problem, and for comparisons in the
    candidate's source.

    For a small total, sizes for comparisons are part of the requested count; otherwise they are
    added.
    """
    fresh = max(1, count // FRESH_DIVISOR)
    is_few = count < FEW_SIZES
    pool_size = count if is_few else int(count * POOL_SHARE)
    pool = draw_pool(problem, tuple(sorted(base.items())), True, seed >> 16, pool_size + FEW_SIZES)
    shared = [size for size in pool if size.strategy != "blocks"][:pool_size]
    if is_few:
        shared = random.Random(seed).sample(pool, max(0, min(len(pool), count - fresh)))
    shared = [size for size in shared if size.sizes not in [r.sizes for r in required]]
    own_draw = draw_sizes(
        problem, base, OF_THE_CANDIDATE, seed, fresh, source=source, earlier=(*required, *shared)
    )
    drawn = [*own_draw.sizes, *shared]
    most = min(MAX_COMPARISON_SIZES, max(1, count // 2))
    compared = draw_sizes(
        problem, base, COMPARISON_STRATEGIES, seed, most, source=source, earlier=(*required, *drawn)
    ).sizes
    drawn = [*drawn[: count - len(compared)], *compared] if is_few else [*drawn, *compared]
    missing = count - len(required) - len(drawn)
    further = draw_sizes(
        problem, base, FURTHER, seed, missing, source=source, earlier=(*required, *drawn)
    ).sizes
    return [*drawn, *further], own_draw.notes


def _drawn_on_gpu(
    problem: Problem,
    source: str,
    base: dict[str, int],
    seed: int,
    count: int,
    required: Sequence[DrawnSize],
) -> tuple[list[DrawnSize], tuple[str, ...]]:
    """Draws the requested number of sizes, and further ones for comparisons in the candidate's
    source.

    Sizes with a single full extent beside small ones come last.
    """
    small = shrink(problem)
    around = tuple(sorted(small.sizes.items())) if small.fits else ()
    one_full = [
        s
        for s in draw_pool(problem, around, True, seed >> 16, count)
        if s.strategy.startswith("own extent")
    ]
    late = random.Random(seed).sample(one_full, min(len(one_full), LATE_SIZES))
    leading = next(
        (name for name in changeable_integers(problem) if late and name in late[0].sizes), ""
    )
    late.sort(
        key=lambda size: -size.sizes.get(leading, 0)
    )  # a model is called again with more rows than before
    fresh = max(1, count // FRESH_DIVISOR)
    earlier = (*required, *late)
    own_draw = draw_sizes(
        problem, base, OF_THE_CANDIDATE, seed, fresh, source=source, on_cpu=False, earlier=earlier
    )
    earlier = (*earlier, *own_draw.sizes)
    compared = draw_sizes(
        problem,
        base,
        COMPARISON_STRATEGIES,
        seed,
        MAX_COMPARISON_SIZES,
        source=source,
        on_cpu=False,
        earlier=earlier,
    ).sizes
    earlier = (*earlier, *compared)
    remaining = max(0, count - len(required) - len(late) - len(own_draw.sizes))
    pool = draw_pool(problem, tuple(sorted(base.items())), False, seed >> 16, count)
    unused = [size for size in pool if size.sizes not in [t.sizes for t in earlier]]
    shared = unused[: remaining // 2]
    shared += random.Random(seed).sample(
        unused[remaining // 2 :], min(len(unused) - len(shared), remaining - len(shared))
    )
    return [*own_draw.sizes, *compared, *shared, *late], own_draw.notes


def trace_requests(
    problem: Problem, selection: Selection, device: str, seed: int
) -> list[SizeRequest]:
    """Returns the requests for the tracer, the problem's own size first."""
    rng = random.Random(seed)
    on_gpu = device != "cpu"  # a GPU judges it at this very size
    requests = [SizeRequest(spec=input_spec(problem, as_it_is=on_gpu), replayed=on_gpu)]
    for size in selection.every:
        few = rng.choice(MULTIPROCESSOR_COUNTS) if device == "cpu" and size.index % 2 == 0 else None
        reuse = size is not selection.base and size.index % 2 == 1
        spec = input_spec(size.problem, as_it_is=bool(size.sizes))
        variants_seed = rng.getrandbits(32) if size.index == selection.surrounded else None
        around = () if size is selection.base or size.index % 2 == 0 else _changes(size.index, rng)
        requests.append(
            SizeRequest(
                spec=spec,
                multiprocessors=few,
                reuse=reuse,
                surroundings=around,
                variants_seed=variants_seed,
            )
        )
    for size in selection.layouts:
        spec = laid_out(input_spec(size.problem, as_it_is=bool(size.sizes)), size.layouts)
        requests.append(SizeRequest(spec=spec, reuse=size.index % 2 == 1))
    for size in selection.empty:
        requests.append(SizeRequest(spec=input_spec(size.problem, as_it_is=True)))
    return requests


def _changes(turn: int, rng: random.Random) -> tuple[Change, ...]:
    """Returns random changes of the surroundings of a size; parameters and views as inputs
    alternate."""
    drawn = [change for change in WITHOUT_EFFECT if rng.random() < 0.5]
    return (*drawn, Change.PARAMETERS if turn % 4 == 1 else Change.VIEWS)


def sizes_reaching_numbers(
    problem: Problem, source: str, selection: Selection, device: str
) -> list[AtSize]:
    """Returns sizes that cross the thresholds which the candidate's text names, best first, for a kernel that no
    checked size launches.
    """
    drawn = sizes_that_reach(
        problem, selection.base.sizes, source, MAX_REACHING_SIZES, on_cpu=device == "cpu"
    )
    return [_at_size(size, problem, number, False) for number, size in enumerate(drawn.sizes, 1)]
