"""One configuration of a kernel timed for a tuner: a few calls at one size, its answer compared once.

It is no verdict: what wins is judged in full afterwards.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernelwright.tools.judging.rules import AtSize
from kernelwright.tools.judging.size_checks import POISON_BYTES, SizeChecks
from kernelwright.tools.report import Failed, Number, Timing, Value
from kernelwright.tools.timing.measuring import Measuring
from kernelwright.tools.tracing.client import TracedCandidate

if TYPE_CHECKING:
    from kernelwright.tools.judging.judge import Judge

SECONDS = 60.0
"""For everything that the kernels' process does in one trial."""


class TrialTimes(Value):
    """What one trial gave."""

    milliseconds: tuple[Number, ...] = ()
    """Of each timed call."""
    eager: Timing | None = None
    """The reference's time of record on the same inputs."""
    failure: str = ""
    """Why it was not timed, one line: wrong, or it cannot be launched."""
    seconds: Number = 0.0
    """Of the GPU, for this text: without compiling it, waiting for a turn, and what the reference's first needs."""


def time_trial(
    judge: Judge, candidate: TracedCandidate, base: AtSize, seed: int, binaries: Mapping[str, Any], calls: int
) -> TrialTimes:
    """Times `calls` calls of a traced and compiled text on the judge's GPU.

    A wrong answer is a value. Raises what the judge raises for trouble that is not the candidate's.
    """
    profiler = judge.profiler
    assert profiler is not None
    begun = time.monotonic()
    try:
        prepared = judge.prepared(base.problem, seed)
        timed = profiler.reference(judge, base.problem, prepared, seed)
        begun = time.monotonic()  # what is above is made for the problem's first text, and kept
        checks = SizeChecks(prepared, candidate.traced, base.index, judge.replayer, judge.buffers, [])
        checks.open(prepared.weights_seed, SECONDS, binaries)
        judge.replayer.set_up()
        checks.check(timed.expected[0], POISON_BYTES[0], 1, name="trial")
        choices = profiler.choices(judge, checks, timed)
        measuring = Measuring(profiler.clock, judge.replayer, timed.clock, timed.sets, choices)
        samples = measuring.alone(calls)
        eager = timed.clock.record  # measured now where it never was, so before its graphs are given back
        timed.clock.release_if_large()
        return TrialTimes(milliseconds=tuple(samples), eager=eager, seconds=time.monotonic() - begun)
    except Failed as failed:
        message = " ".join(failed.failure.message.split())[:300]
        return TrialTimes(failure=f"{failed.failure.fault}: {message}", seconds=time.monotonic() - begun)
