"""What sizes cost under the interpreter: which are short enough for every distribution, and how long one will take."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernelwright.tools.sizing.at_size import AtSize
from kernelwright.tools.trace.trace import Choice, Launch, Trace

MAX_LONG_SIZES = 2
TIMES_LONGER = 4
"""Times the base's own extent that a dimension has at least at a long size."""
LEAST_EXTENT = 2
"""Extent that every dimension has at a long size, unless the base's is 1: a softmax over one key, or a mean over
one column, has special cases of its own for infinities and offsets.
"""
MAX_PROGRAMS = 48
"""Programs of one call at a long size under the interpreter: a dozen calls are made there."""
LEAST_SECONDS = 0.005
"""Seconds that a call is taken to last at least: shorter ones say nothing about larger ones."""
HANG_FACTOR = 1000
"""A call that has taken so many times the estimated time, and has not ended, does not end. Honest loops were seen to
take more than 20 times their estimate on a busy machine: the interpreter replays the programs of one kernel at once and
those of another one by one.
"""


def choose_long_sizes(
    sizes: Sequence[AtSize], base: AtSize, interpreted: Sequence[Trace | None]
) -> tuple[AtSize, ...]:
    """Returns at most MAX_LONG_SIZES sizes that are tried with every distribution beside the base size: those that go
    far beyond it in one dimension, where kernels loop over several blocks, the longest dimensions first.

    interpreted: the traces by the sizes' indices where an interpreter runs them, which then must have few programs.
    """
    longest: dict[str, AtSize] = {}
    for size in sizes:
        if size.one_call or (interpreted and programs_of(interpreted[size.index]) > MAX_PROGRAMS):
            continue
        if any(
            extent < min(LEAST_EXTENT, base.sizes.get(name, extent))
            for name, extent in size.sizes.items()
        ):
            continue
        for name, extent in size.sizes.items():
            known = longest[name].sizes[name] if name in longest else 0
            if extent >= max(TIMES_LONGER * base.sizes.get(name, extent), known):
                longest[name] = size
    names = sorted(longest, key=lambda name: longest[name].sizes[name], reverse=True)
    by_index = {longest[name].index: longest[name] for name in names}
    return tuple(by_index.values())[:MAX_LONG_SIZES]


def programs_of(trace: Trace | None) -> int:
    """Returns the number of programs of all launches of a first call, autotuned ones in their first configuration."""
    programs = 0
    for step in trace.first if trace else ():
        if isinstance(step, Choice):
            alternatives = step.alternatives[0] if step.alternatives else ()
            programs += sum(
                math.prod(launch.grid) for launch in alternatives if isinstance(launch, Launch)
            )
        elif isinstance(step, Launch):
            programs += math.prod(step.grid)
    return programs


@dataclass(frozen=True)
class CallWork:
    """What one call has to do."""

    programs: int
    extents: dict[str, int]

    def times(self, other: CallWork) -> float:
        """Returns how many times as long as the other's it may take: in proportion to the programs, or, where these do
        not grow with the extents, to the trips of the loops inside of them.
        """
        programs = max(self.programs / max(other.programs, 1), 1.0)
        larger = [
            extent / other.extents[n]
            for n, extent in self.extents.items()
            if other.extents.get(n, extent) < extent
        ]
        return max(programs, math.prod(larger) / programs)


@dataclass
class MeasuredCalls:
    """Calls of one candidate so far, from which the seconds of a larger one are estimated."""

    measured: list[tuple[CallWork, float]] = field(default_factory=list)

    def note(self, work: CallWork, seconds: float) -> None:
        """Notes the seconds of one call."""
        self.measured.append((work, seconds))

    def estimate(self, work: CallWork) -> float:
        """Returns the seconds that a call may take, by the measured call that is nearest; 0 where none was measured."""
        return min(
            (work.times(known) * max(seconds, LEAST_SECONDS) for known, seconds in self.measured),
            default=0.0,
        )
