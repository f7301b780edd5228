"""Chooses the sizes of a verdict that are tried with every distribution beside the base size: those that go far beyond
it in one dimension, where kernels loop over several blocks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from kernelwright.tools.judging.rules import AtSize
from kernelwright.tools.tracing.trace import Choice, Launch, Trace

MAX_LONG_SIZES = 2
TIMES_LONGER = 4
"""Times the base's own extent that a dimension has at least at such a size."""
MAX_PROGRAMS = 48
"""Programs of one call at such a size under the interpreter, which runs one after the other; a dozen calls are made."""


def choose_long_sizes(sizes: Sequence[AtSize], base: AtSize, interpreted: Sequence[Trace | None]) -> tuple[AtSize, ...]:
    """Returns at most MAX_LONG_SIZES sizes, each the longest in one dimension, the longest dimensions first.

    interpreted: the traces by the sizes' indices where an interpreter runs them, which then must have few programs.
    """
    reached: dict[str, AtSize] = {}
    for size in sizes:
        if size.one_call or (interpreted and _programs_of(interpreted[size.index]) > MAX_PROGRAMS):
            continue
        for name, extent in size.sizes.items():
            least = max(
                TIMES_LONGER * base.sizes.get(name, extent), reached[name].sizes[name] if name in reached else 0
            )
            if extent >= least:
                reached[name] = size
    names = sorted(reached, key=lambda name: reached[name].sizes[name], reverse=True)
    by_index = {reached[name].index: reached[name] for name in names}
    return tuple(by_index.values())[:MAX_LONG_SIZES]


def _programs_of(trace: Trace | None) -> int:
    """Returns the number of programs of all launches of a first call, autotuned ones in their first configuration."""
    steps = [
        one
        for step in (trace.first if trace else ())
        for one in (step.alternatives[0] if isinstance(step, Choice) and step.alternatives else [step])
    ]
    return sum(math.prod(step.grid) for step in steps if isinstance(step, Launch))
