"""The strategies by which sizes are drawn; the purpose of each is in its function's docstring.

`OF_THE_PROBLEM` depend on the problem alone, so that the candidates of an epoch share sizes and
expected outputs; `OF_THE_CANDIDATE` and `COMPARISONS` depend on the candidate's source. To add a
strategy, write a function from a `Context` to goals, and list it in one of these.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from kernelwright.tools.sizing.arithmetic import (
    describe_number,
    is_power_of_two,
    prime_at_least,
    prime_between,
)
from kernelwright.tools.sizing.comparisons.solving import relation_goals
from kernelwright.tools.sizing.drawn_sizes import CPU_BUDGET
from kernelwright.tools.sizing.goals import Context, ExtentGoal, Extents, Strategy
from kernelwright.tools.sizing.structure import Budget

USUAL_BLOCKS = (16, 32, 64, 128, 256, 512, 1024)
"""Tried after a candidate's own blocks: it may compute its block sizes rather than write them."""
SMALL_BLOCKS = (32, 16, 8)
"""Blocks that every dimension should exceed if the budget admits no larger one."""
BLOCK_MULTIPLES = (3.4, 2.6, 2.0, 1.5, 1.1)
"""Multiples of a block at which a dimension is drawn, so that a loop has several iterations."""
EXTENT_SHARES = (
    (1, 1),
    (3, 4),
    (5, 8),
    (1, 2),
    (3, 8),
    (1, 4),
    (3, 16),
    (1, 8),
    (1, 16),
    (1, 32),
    (1, 64),
    (1, 128),
)
"""Parts of the problem's own extents that count as large, the largest first."""
MIN_TIMES_LARGER = 2
"""How many times its small extent a large dimension has at least."""
LARGE_PART = 2
"""A dimension is large in a size that has the problem's own extent divided by this."""
MAX_INT16 = (1 << 15) - 1
"""The largest signed 16-bit integer: extents beyond it come first."""
INDEX_BOUND = 1 << 16
"""Larger extents exceed a grid's second axis or 16-bit counters: each is tried at its own size."""
ALIGNED_RATIOS, ODD_RATIOS = (96, 48, 24, 12, 6), (67, 37, 33, 17, 5, 3)
"""The smaller of two extents in a given ratio: three times a power of two, or odd."""
LEAST_IN_RATIO = 3
"""Minimum of the smaller of two extents with a ratio: 1 and 2 occur in every ratio by chance."""
MAX_HALVINGS = 14
MAX_THRESHOLDS = 12
"""Numbers of a text, that are no power of two, which some extent crosses."""


def beyond(context: Context) -> Iterator[ExtentGoal]:
    """Every dimension is a prime beyond a block of the candidate, so that masks, grids and loops
    all have a remainder."""
    own_blocks = context.blocks[::-1]
    usual = tuple(b for b in USUAL_BLOCKS[::-1] if SMALL_BLOCKS[0] < b < context.blocks[-1])

    def proposals(_: Extents) -> Iterator[Extents]:
        every = context.dimensions
        inner = context.inner
        tiers = (
            (every, own_blocks),
            (every, usual),
            (inner, own_blocks),
            (inner, usual),
            (every, SMALL_BLOCKS),
            (inner, SMALL_BLOCKS),
        )
        for dimensions, tier in tiers:
            for block, times in itertools.product(tier, BLOCK_MULTIPLES):
                yield _all_beyond(context, dimensions, block, times)

    yield ExtentGoal("every extent beyond a block", proposals)


def _all_beyond(context: Context, dimensions: Iterable[int], block: int, times: float) -> Extents:
    """Returns different extents between the block and about `times` the block."""
    extents: dict[int, int] = {}
    for i in dimensions:
        unit = context.unit(i)
        target = prime_between(int(block * (times + 1) / 2), int(block * times), context.random)
        extent = max(target, block + 1) // unit * unit + (unit if unit > 1 else 0)
        while extent in extents.values():
            extent = prime_at_least(extent + 1) if unit == 1 else extent + unit
        extents[i] = extent
    return extents


def own_extent(context: Context) -> Iterator[ExtentGoal]:
    """Each extent is once the problem's own, or as near as an interpreter permits, with small ones
    beside it."""
    growth = {i: int(math.log2(context.full[i] / context.small[i])) for i in context.dimensions}
    by_chance = context.random.sample(context.dimensions, len(context.dimensions))
    for i in sorted(by_chance, key=lambda i: (context.full[i] <= MAX_INT16, -growth[i])):
        if context.full[i] > context.small[i]:
            extents = [_step_down(context, i, context.full[i] * a // b) for a, b in EXTENT_SHARES]
            large = [e for e in extents if e > MIN_TIMES_LARGER * context.small[i]] or extents[:1]
            words = f"{context.names[i]} as large as in the problem"
            yield ExtentGoal(
                words,
                partial(_beside_ones, context, i, large),
                partial(_at_least, i, context.full[i]),
            )


def larger(context: Context) -> Iterator[ExtentGoal]:
    """An extent is once beyond the problem's own: fixed buffers and grids are too small there."""
    for i in context.random.sample(context.inner, len(context.inner)):
        extent = prime_between(
            context.full[i] * 9 // 8 + 1, context.full[i] * 11 // 8 + 1, context.random
        )
        beyond_own = [_step_up(context, i, extent)]
        words = f"{context.names[i]} larger than in the problem"
        yield ExtentGoal(words, partial(_beside_ones, context, i, beyond_own))


def many(context: Context) -> Iterator[ExtentGoal]:
    """Each extent above 65536 in the problem is once its own, or just beyond 65536, however small
    the others."""
    for i in context.dimensions:
        if context.full[i] > INDEX_BOUND:
            just_beyond = prime_at_least(INDEX_BOUND + context.random.randrange(1 << 12))
            yield ExtentGoal(
                f"{context.names[i]} beyond 65536",
                partial(_beside_ones, context, i, [context.full[i], just_beyond]),
                partial(_at_least, i, INDEX_BOUND + 1),
            )


def _beside_ones(
    context: Context, dimension: int, extents: Iterable[int], _: Extents
) -> Iterator[Extents]:
    """Yields an extent by itself, and with all others as small as the smallest step."""
    for extent in extents:
        yield {dimension: extent}
        yield {i: extent if i == dimension else context.unit(i) for i in context.dimensions}


def one(context: Context) -> Iterator[ExtentGoal]:
    """Each extent is once 1: a loop with a single iteration, a row without neighbours."""
    yield from _exactly(context, 1)


def two(context: Context) -> Iterator[ExtentGoal]:
    """Each extent is once 2: the first and the last, with nothing between them."""
    yield from _exactly(context, 2)


def _exactly(context: Context, steps: int) -> Iterator[ExtentGoal]:
    for i in context.dimensions:
        extent = steps * context.unit(i)
        yield ExtentGoal(
            f"{context.names[i]} {extent}",
            partial(_each, i, [extent]),
            partial(_is_tiny, i, extent),
        )


def ratio(context: Context) -> Iterator[ExtentGoal]:
    """Each extent is once equal to another, twice another, half of another, and three times a power
    of two."""
    smaller = _extents_in_ratio(context)
    for i in context.random.sample(context.dimensions, len(context.dimensions)):
        other_dimensions = [j for j in context.dimensions if j != i]
        context.random.shuffle(other_dimensions)
        name = context.names[i]
        for words, pairs, times in (
            (f"{name} twice another", [(i, j) for j in other_dimensions], 2),
            (f"{name} half of another", [(j, i) for j in other_dimensions], 2),
            (f"{name} equal to another", [(i, j) for j in other_dimensions], 1),
        ):
            if pairs:
                yield ExtentGoal(
                    words,
                    partial(_any_multiple, pairs, times, smaller),
                    partial(_has_multiple, pairs, times),
                )
    for i in context.dimensions:
        thrice = [e for e in smaller if _is_thrice(0, (e,))]
        yield ExtentGoal(
            f"{context.names[i]} 3 * 2**k", partial(_each, i, thrice), partial(_is_thrice, i)
        )


def each_ratio(context: Context) -> Iterator[ExtentGoal]:
    """Every pair of extents is once equal, and once in the ratio 2."""
    smaller = _extents_in_ratio(context)
    pairs = [(i, j) for i in context.dimensions for j in context.dimensions if i != j]
    for i, j in context.random.sample(pairs, len(pairs)):
        first, second = context.names[i], context.names[j]
        for times, words in ((2, f"{first} twice {second}"), (1, f"{first} equal to {second}")):
            pair = [(i, j)]
            if times == 2 or i < j:
                yield ExtentGoal(
                    words,
                    partial(_any_multiple, pair, times, smaller),
                    partial(_has_multiple, pair, times),
                )


def _extents_in_ratio(context: Context) -> list[int]:
    """Returns the smaller of two extents in the order in which they are tried: aligned and odd ones in turn."""
    aligned, odd = (
        context.random.sample(ALIGNED_RATIOS[:3], 2),
        context.random.sample(ODD_RATIOS[:3], 2),
    )
    return [*aligned, *odd, *ALIGNED_RATIOS, *ODD_RATIOS]


def large_pair(context: Context) -> Iterator[ExtentGoal]:
    """Every two extents are once large together: some kernels fail only if two indices are both
    large.

    Of two dimensions both are about equally large; of more, the larger one is random.
    """
    large = [
        i for i in context.dimensions if context.full[i] >= MIN_TIMES_LARGER * context.small[i]
    ]
    pairs = list(itertools.combinations(large, 2))
    is_balanced = len(context.names) == 2

    def rank(extents: tuple[int, int]) -> float:
        """Orders pairs by their product, and roughly by balance or by chance."""
        imbalance = abs(math.log2(extents[0] / extents[1]))
        return (imbalance if is_balanced else context.random.random()) / 2 - math.log2(
            math.prod(extents)
        )

    for i, j in context.random.sample(pairs, len(pairs)):
        extents = [
            (_large(context, i, a), _large(context, j, b))
            for a, b in itertools.product(EXTENT_SHARES, EXTENT_SHARES)
        ]
        far = [
            e
            for e in extents
            if all(e[n] > MIN_TIMES_LARGER * context.small[d] for n, d in enumerate((i, j)))
        ]
        yield ExtentGoal(
            f"{context.names[i]} and {context.names[j]} both large",
            partial(_both, context, i, j, sorted(far, key=rank)),
            partial(_are_large, [(d, context.full[d] // LARGE_PART) for d in (i, j)]),
        )


def _large(context: Context, dimension: int, share: tuple[int, int]) -> int:
    """Returns a part of the problem's own extent, or a prime near it."""
    extent = _step_down(context, dimension, context.full[dimension] * share[0] // share[1])
    if context.unit(dimension) == 1 and context.random.random() < 0.5:
        return prime_between(extent * 7 // 8, extent, context.random)
    return extent


def scaled(context: Context) -> Iterator[ExtentGoal]:
    """The problem's own size divided by a power of two: equal, even and divisible extents keep
    these properties."""
    full = context.full
    if len({*full}) == len(full) and all(extent % 2 for extent in full):
        return
    sizes = [
        {i: max(full[i] >> halvings, min(full[i], 2)) for i in context.dimensions}
        for halvings in range(1, MAX_HALVINGS + 1)
    ]
    yield ExtentGoal("the problem's own divided by a power of two", partial(_listed, sizes))


def edge(context: Context) -> Iterator[ExtentGoal]:
    """Each extent is once one more or one less than a block, the largest affordable blocks first."""
    for i in context.dimensions:
        blocks = (*context.blocks[::-1], *USUAL_BLOCKS[::-1])
        sides = context.random.sample((1, -1), 2)
        extents = [block + side for block in blocks for side in sides]
        yield ExtentGoal(f"{context.names[i]} at the edge of a block", partial(_each, i, extents))


def blocks(context: Context) -> Iterator[ExtentGoal]:
    """Further extents around blocks: far beyond, at both edges, at a multiple; the candidate's
    blocks come first."""
    tiers = (context.blocks[-1:-4:-1], context.blocks[-4::-1], USUAL_BLOCKS[::-1])
    for tier in tiers:
        extents = [
            extent
            for block in tier
            for extent in (
                prime_between(2 * block + 1, int(block * 3.4), context.random),
                block + 1,
                block - 1,
                block,
            )
        ]
        for extent in context.random.sample(extents, len(extents)):
            for i in context.random.sample(context.dimensions, len(context.dimensions)):
                words = f"{context.names[i]} {describe_number(extent, context.blocks)}"
                yield ExtentGoal(words, partial(_each, i, [extent]), partial(_equals, i, extent))


def number(context: Context) -> Iterator[ExtentGoal]:
    """Every two extents, and each by itself, are once just beyond a number in the source that is no
    power of two, those of comparisons first.

    Example: `(row >= 700) & (column >= 700)` is true nowhere while one of the extents is small.
    """
    compared = {n for relation in context.relations for n in relation.numbers}
    numbers = context.random.sample(context.numbers, len(context.numbers))
    numbers.sort(key=lambda n: n not in compared)
    thresholds = [n for n in numbers if n > 16 and not is_power_of_two(n)]
    for threshold in thresholds[:MAX_THRESHOLDS]:
        below = [i for i in context.dimensions if context.small[i] <= threshold]
        below.sort(key=lambda i: -context.full[i])
        for i, j in itertools.combinations(below, 2):
            both = (_step_up(context, i, threshold + 1), _step_up(context, j, threshold + 3))
            yield ExtentGoal(
                f"{context.names[i]} and {context.names[j]} just beyond {threshold}",
                partial(_both, context, i, j, [both]),
                partial(_are_just_beyond, (i, j), threshold),
            )
        for i in below:
            extents = [_step_up(context, i, n) for n in (threshold + 1, threshold * 9 // 8)]
            is_met = partial(_are_just_beyond, (i,), threshold)
            name = f"{context.names[i]} just beyond {threshold}"
            yield ExtentGoal(name, partial(_each, i, extents), is_met)


def reaching(context: Context) -> Iterator[ExtentGoal]:
    """As many extents as possible are the problem's own; then each number in the source is crossed
    by an extent, or by the elements of all tensors.

    For kernels that no other size launches.
    """
    largest_first = sorted(context.dimensions, key=lambda i: -context.full[i])
    for order in (
        sorted(context.dimensions, key=lambda i: i not in context.inner),
        largest_first[::-1],
    ):
        sizes = [{i: context.full[i] for i in order[:count]} for count in range(len(order), 0, -1)]
        yield ExtentGoal("as near to the problem's own as there is room", partial(_listed, sizes))
    for i in largest_first:
        yield ExtentGoal(
            f"{context.names[i]} as in the problem", partial(_each, i, [context.full[i]])
        )
    elements = context.structure.load(context.structure.bases).elements
    for threshold in context.numbers:
        for i in largest_first:
            for extent in (
                _step_up(context, i, threshold + 1),
                _step_up(context, i, 2 * threshold),
            ):
                yield ExtentGoal(f"{context.names[i]} {extent}", partial(_each, i, [extent]))
        factors = [
            max(1.0, times * threshold / elements) ** (1 / len(context.names))
            for times in (2, 4, 8)
        ]
        sizes = [
            {i: _step_up(context, i, int(context.small[i] * f)) for i in context.dimensions}
            for f in factors
        ]
        yield ExtentGoal(f"more than {threshold} elements", partial(_listed, sizes))


# -------------------------------------------------------------- proposals and conditions
def _step_up(context: Context, dimension: int, extent: int) -> int:
    """Returns the smallest multiple of the dimension's step that is not below the extent."""
    unit = context.unit(dimension)
    return -(-extent // unit) * unit


def _listed(sizes: Iterable[Extents], _: Extents) -> Iterator[Extents]:
    return iter(sizes)


def _step_down(context: Context, dimension: int, extent: int) -> int:
    """Returns the largest multiple of the dimension's step that is not beyond the extent."""
    unit = context.unit(dimension)
    return max(unit, extent // unit * unit)


def _each(dimension: int, extents: Iterable[int], _: Extents) -> Iterator[Extents]:
    return ({dimension: extent} for extent in extents)


def _both(
    context: Context, first: int, second: int, extents: Iterable[tuple[int, int]], _: Extents
) -> Iterator[Extents]:
    """Yields two extents by themselves, and beside batches of one."""
    batches = [i for i in context.dimensions if i not in context.inner and i not in (first, second)]
    for a, b in extents:
        yield {first: a, second: b}
        if batches:
            yield {**dict.fromkeys(batches, 1), first: a, second: b}


def _any_multiple(
    pairs: Iterable[tuple[int, int]], times: int, smaller: Sequence[int], chosen: Extents
) -> Iterator[Extents]:
    """Yields extents of which the first of some pair is a multiple of the second; chosen ones are kept."""
    for first, second in pairs:
        if second in chosen:
            candidates: Sequence[int] = (chosen[second],)
        elif first in chosen:
            candidates = (chosen[first] // times,)
        else:
            candidates = smaller
        for extent in candidates:
            if extent >= LEAST_IN_RATIO:
                yield {first: times * extent, second: extent}


def _equals(dimension: int, extent: int, extents: Sequence[int]) -> bool:
    return extents[dimension] == extent


def _is_tiny(dimension: int, extent: int, extents: Sequence[int]) -> bool:
    """Returns True for an extent of this tiny value beside others that are larger: a row of a
    single number hides most errors."""
    other_extents = [e for i, e in enumerate(extents) if i != dimension]
    return (
        extents[dimension] == extent
        and max(other_extents, default=extent + LEAST_IN_RATIO) >= extent + LEAST_IN_RATIO
    )


def _at_least(dimension: int, least: int, extents: Sequence[int]) -> bool:
    return extents[dimension] >= least


def _are_just_beyond(dimensions: Iterable[int], threshold: int, extents: Sequence[int]) -> bool:
    return all(threshold < extents[i] <= threshold + threshold // 4 + 1 for i in dimensions)


def _are_large(least: Iterable[tuple[int, int]], extents: Sequence[int]) -> bool:
    return all(extents[i] >= extent for i, extent in least)


def _has_multiple(pairs: Iterable[tuple[int, int]], times: int, extents: Sequence[int]) -> bool:
    return any(extents[i] == times * extents[j] >= times * LEAST_IN_RATIO for i, j in pairs)


def _is_thrice(dimension: int, extents: Sequence[int]) -> bool:
    return extents[dimension] % 3 == 0 and is_power_of_two(extents[dimension] // 3)


THIN = Budget(elements=1 << 18, operations=60_000_000, rows=1 << 17)
MANY = Budget(elements=1 << 20, operations=20_000_000, rows=1 << 17)
WIDE = Budget(elements=1 << 17, operations=20_000_000, rows=1 << 10)
REACH = CPU_BUDGET.with_(elements=1 << 19)
BOTH_LARGE = Budget(elements=1 << 19, operations=60_000_000, rows=1 << 13)

OF_THE_PROBLEM = (
    Strategy("beyond 65536", many, MANY, by_itself=True, equals=True, one_call=True),
    Strategy("own extent", own_extent, THIN, by_itself=True, equals=True, most=2),
    Strategy("larger", larger, THIN, by_itself=True, equals=True, most=1),
    Strategy("one", one, CPU_BUDGET, tiny=True),
    Strategy("two", two, CPU_BUDGET, tiny=True),
    Strategy("ratio", ratio, WIDE, equals=True),
    Strategy("scaled", scaled, WIDE, by_itself=True, equals=True, one_call=True),
    Strategy("large pair", large_pair, BOTH_LARGE, equals=True, one_call=True),
    Strategy("each ratio", each_ratio, WIDE, equals=True),
)
OF_THE_CANDIDATE = (
    Strategy("beyond a block", beyond, CPU_BUDGET, most=1),
    Strategy("edge of a block", edge, CPU_BUDGET),
)
COMPARISON_STRATEGIES = (
    Strategy("comparison", relation_goals, MANY, equals=True),
    Strategy("number", number, MANY, most=2),
)
FURTHER = (Strategy("blocks", blocks, CPU_BUDGET),)
REACHING = (Strategy("reaching", reaching, REACH, by_itself=True, equals=True),)
