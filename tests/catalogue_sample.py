"""Which entries of a catalogue of candidates the default run of the tests judges.

A catalogue holds hundreds of candidates, each a verdict. The default run takes a sample of it, stratified so
that each kind is in it; `pytest --whole-catalogue` takes all. CI takes all exploits.
"""

import itertools
import zlib
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

import pytest

E = TypeVar("E")
SAMPLE_SIZE = 60


def stratified(
    entries: Sequence[E], name: Callable[[E], str], stratum: Callable[[E], Hashable], count: int
) -> list[E]:
    """Draws entries from each stratum in turn, in an order that only their names decide.

    With strata {a: [1, 2, 3], b: [4]} and a count of 3 the draw is [1, 4, 2] up to the order within a stratum.
    """
    strata: dict[Hashable, list[E]] = defaultdict(list)
    for entry in sorted(entries, key=lambda entry: zlib.crc32(name(entry).encode())):
        strata[stratum(entry)].append(entry)
    rounds = itertools.chain.from_iterable(itertools.zip_longest(*strata.values()))
    return [entry for entry in rounds if entry is not None][:count]


def parameters(
    entries: Sequence[E],
    name: Callable[[E], str],
    stratum: Callable[[E], Hashable],
    count: int = SAMPLE_SIZE,
) -> list[object]:
    """Returns a pytest parameter for each entry; those outside of the sample are marked `whole_catalogue`."""
    sampled = {name(entry) for entry in stratified(entries, name, stratum, count)}
    return [
        pytest.param(
            entry,
            id=name(entry),
            marks=() if name(entry) in sampled else pytest.mark.whole_catalogue,
        )
        for entry in entries
    ]
