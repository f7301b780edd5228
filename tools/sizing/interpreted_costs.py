"""Estimates the cost of sizes under the interpreter: long sizes for every distribution, and
expected seconds."""

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
"""Minimum extent of every dimension at a long size, unless the base's is 1: a softmax over a single
key, or a mean over a single column, has special cases for infinities and offsets."""
MAX_INTERPRETED_PROGRAMS = 48
"""Programs of one call at a long size under the interpreter: a dozen calls are made there."""
LEAST_SECONDS = 0.005
"""Seconds that a call is taken to last at least: shorter ones say nothing about larger ones."""
HANG_FACTOR = 1000
"""Factor over the estimated time above which a call counts as a hang. Honest loops took more than
20 times their estimate on a busy machine: the interpreter replays programs of one kernel in a batch
and those of another singly."""


def choose_long_sizes(
    sizes: Sequence[AtSize], base: AtSize, interpreted: Sequence[Trace | None]
) -> tuple[AtSize, ...]:
    """Returns at most MAX_LONG_SIZES sizes for every distribution: those far beyond the base in a
    dimension, longest first.

    There kernels loop over several blocks. interpreted: traces by size index if an interpreter runs
    them; such sizes must have few programs.
    """
    longest: dict[str, AtSize] = {}
    for size in sizes:
        if size.one_call or (
            interpreted and programs_of(interpreted[size.index]) > MAX_INTERPRETED_PROGRAMS
        ):
            continue
        if any(
            extent < min(LEAST_EXTENT, base.sizes.get(name, extent))
            for name, extent in size.sizes.items()
        ):
            continue
        for name, extent in size.sizes.items():
            longest_extent = longest[name].sizes[name] if name in longest else 0
            if extent >= max(TIMES_LONGER * base.sizes.get(name, extent), longest_extent):
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
    """Work of a call."""

    programs: int
    extents: dict[str, int]

    def times(self, other: CallWork) -> float:
        """Returns the factor of time over another call: by programs or, if these do not grow, by
        the extents."""
        programs = max(self.programs / max(other.programs, 1), 1.0)
        larger = [
            extent / other.extents[n]
            for n, extent in self.extents.items()
            if other.extents.get(n, extent) < extent
        ]
        return max(programs, math.prod(larger) / programs)


@dataclass
class MeasuredCalls:
    """Measured calls of a candidate, from which the seconds of a larger call are estimated."""

    measured: list[tuple[CallWork, float]] = field(default_factory=list)

    def note(self, work: CallWork, seconds: float) -> None:
        """Notes the seconds of one call."""
        self.measured.append((work, seconds))

    def estimate(self, work: CallWork) -> float:
        """Returns the estimated seconds of a call, from the nearest measured call; 0 without any."""
        return min(
            (
                work.times(measured_work) * max(seconds, LEAST_SECONDS)
                for measured_work, seconds in self.measured
            ),
            default=0.0,
        )
