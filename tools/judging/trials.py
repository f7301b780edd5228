"""Trials of a tuner: one configuration of a kernel is timed with a few calls at one size, and its answer is compared
once. A text is traced and compiled once for all its trials, since successive halving asks for it in several rounds.

A trial is no verdict: what wins is judged in full afterwards.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.tools.judging.compile_report import kernels_of
from kernelwright.tools.judging.front import Front, without_failed_configurations
from kernelwright.tools.judging.size_checks import POISON_BYTES, SizeChecks
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Failed, Number, Timing, Value
from kernelwright.tools.sizing.at_size import AtSize
from kernelwright.tools.timing.measuring import Measuring
from kernelwright.tools.tracing.client import TracedCandidate

if TYPE_CHECKING:
    from kernelwright.tools.judging.judge import Judge

TRIAL_SECONDS = 60.0
"""Seconds for everything that the process of the kernels does in one trial."""
MAX_KEPT_TEXTS = 128
"""Compiled texts that are kept: those that were used last."""


class TrialTimes(Value):
    """What one trial gave."""

    milliseconds: tuple[Number, ...] = ()
    """The time of each timed call."""
    eager: Timing | None = None
    """The reference's time of record on the same inputs."""
    failure: str = ""
    """Why it was not timed, one line: wrong, or it cannot be launched."""
    seconds: Number = 0.0
    """Seconds of the GPU for this text, without compiling it, waiting for a turn, and what the reference's first trial
    needs.
    """


def time_trial(
    judge: Judge,
    candidate: TracedCandidate,
    base: AtSize,
    seed: int,
    binaries: Mapping[str, Any],
    calls: int,
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
        checks = SizeChecks(
            prepared, candidate.traced, base.index, judge.replayer, judge.buffers, []
        )
        checks.calls.open(prepared.weights_seed, TRIAL_SECONDS, binaries)
        judge.replayer.set_up()
        checks.check(timed.expected[0], POISON_BYTES[0], 1, name="trial")
        choices = profiler.choices(judge, checks, timed)
        measuring = Measuring(profiler.clock, judge.replayer, timed.clock, timed.sets, choices)
        samples = measuring.time_candidate(calls)
        eager = (
            timed.clock.record
        )  # measured now where it never was, so before its graphs are given back
        timed.clock.release_if_large()
        return TrialTimes(
            milliseconds=tuple(samples), eager=eager, seconds=time.monotonic() - begun
        )
    except Failed as failed:
        message = " ".join(failed.failure.message.split())[:300]
        return TrialTimes(
            failure=f"{failed.failure.fault}: {message}", seconds=time.monotonic() - begun
        )


class CompiledText(NamedTuple):
    """One text traced and compiled for a trial."""

    candidate: TracedCandidate
    binaries: Mapping[str, Any]
    failure: str
    """Why it cannot be launched, one line; empty where it can."""


class CompiledTexts:
    """Texts at one size of their problem, traced and compiled once for all their trials. Thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, ...], CompiledText] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, front: Front, problem: Problem, source: str, target: str, asked: Options
    ) -> CompiledText:
        """What is launched by a text; made where it is not known yet. A failure that may pass is not kept."""
        key = (problem.hash, source, target, asked.model_dump_json())
        with self._lock:
            if (known := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
                return known
        made = _compile_text(front, problem, source, target, asked)
        with self._lock:
            if not made.failure:
                self._kept[key] = made
            while len(self._kept) > MAX_KEPT_TEXTS:
                self._kept.popitem(last=False)
        return made


def _compile_text(
    front: Front, problem: Problem, source: str, target: str, asked: Options
) -> CompiledText:
    """Configurations of an autotune list that do not compile are left out, as Triton leaves them out."""
    candidate = front.traced_at_own_size(problem, source, target, asked)
    binaries = front.compiled_at_own_size(candidate, target, source, asked)
    candidate = without_failed_configurations(candidate, binaries)
    used = kernels_of(candidate.traced, range(1)) if candidate.traced.traces else []
    failures = [*candidate.failures, *(one.failure for key, one in binaries.items() if key in used)]
    told = next((f for f in failures if f is not None), None)
    return CompiledText(
        candidate, binaries, f"{told.fault}: {told.message[:300]}" if told is not None else ""
    )
