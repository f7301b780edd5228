"""Times trials of a tuner: a few calls of a configuration at a size, with the answer compared once.

A source is traced and compiled once for all its trials, since successive halving repeats it in
several rounds. A trial is no verdict: the winner is judged in full afterwards.
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

KERNEL_TRIAL_SECONDS = 60.0
"""Time limit, in seconds, of the kernels' process in a trial."""
MAX_KEPT_TEXTS = 128
"""Maximum number of cached compiled sources, least recently used first out."""


class TrialTimes(Value):
    """Result of a trial."""

    milliseconds: tuple[Number, ...] = ()
    """Time of each timed call."""
    eager: Timing | None = None
    """The reference's recorded time on the same inputs."""
    failure: str = ""
    """Reason without times, a single line: wrong answer, or no launch possible."""
    seconds: Number = 0.0
    """GPU seconds of this source, without compilation, waiting, and the first trial of the
    reference."""


def time_trial(
    judge: Judge,
    candidate: TracedCandidate,
    base: AtSize,
    seed: int,
    binaries: Mapping[str, Any],
    calls: int,
) -> TrialTimes:
    """Times `calls` calls of a traced and compiled source on the judge's GPU.

    A wrong answer is returned as a value. Raises the judge's errors that are not the candidate's.
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
        checks.calls.open(prepared.weights_seed, KERNEL_TRIAL_SECONDS, binaries)
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
    """A source traced and compiled for a trial."""

    candidate: TracedCandidate
    binaries: Mapping[str, Any]
    failure: str
    """Reason why the source cannot be launched, a single line; empty if it can."""


class CompiledTexts:
    """Cache of sources traced and compiled at a size of their problem. Thread-safe."""

    def __init__(self) -> None:
        self._cache: OrderedDict[tuple[str, ...], CompiledText] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, front: Front, problem: Problem, source: str, target: str, options: Options
    ) -> CompiledText:
        """Returns the compiled source, from the cache or new. Failures are not cached, since they
        may be temporary."""
        key = (problem.hash, source, target, options.model_dump_json())
        with self._lock:
            if (cached := self._cache.get(key)) is not None:
                self._cache.move_to_end(key)
                return cached
        compiled = _compile_text(front, problem, source, target, options)
        with self._lock:
            if not compiled.failure:
                self._cache[key] = compiled
            while len(self._cache) > MAX_KEPT_TEXTS:
                self._cache.popitem(last=False)
        return compiled


def _compile_text(
    front: Front, problem: Problem, source: str, target: str, options: Options
) -> CompiledText:
    """Compiles a source. Autotuned configurations that do not compile are skipped, as Triton does."""
    candidate = front.traced_at_own_size(problem, source, target, options)
    binaries = front.compiled_at_own_size(candidate, target, source, options)
    candidate = without_failed_configurations(candidate, binaries)
    used = kernels_of(candidate.traced, range(1)) if candidate.traced.traces else []
    failures = [
        *candidate.failures,
        *(kernel.failure for key, kernel in binaries.items() if key in used),
    ]
    first_failure = next((f for f in failures if f is not None), None)
    return CompiledText(
        candidate,
        binaries,
        f"{first_failure.fault}: {first_failure.message[:300]}"
        if first_failure is not None
        else "",
    )
