"""The trusted side of tracing: starts a sandboxed process, enforces its deadline, and parses its
answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from pydantic import ValidationError

from kernelwright.tools.host_choices import HostChoice
from kernelwright.tools.references.input_spec import InputSpec
from kernelwright.tools.report import Cheat, Failure, Fault, Isolation, Value, clean_text
from kernelwright.tools.sandbox import BadMessage, Process, ProcessDied, ProcessTimedOut, Zygote
from kernelwright.tools.sandbox.run_queue import RemainingSeconds
from kernelwright.tools.trace.trace import Change, Traced, TraceError, read_traced
from kernelwright.tools.tracing.host_code.choices import MAX_CHOICES
from kernelwright.tools.tracing.host_code.coverage import one_sided_choices

TRACER_ENTRY = "kernelwright.tools.tracing.tracer:serve"
MAX_MESSAGES = 5_000
CALLS_AT_FIRST_SIZE = 12
"""Calls of forward at the first size, to observe host code that changes its behaviour after several
calls."""


class SizeRequest(Value):
    """A size to trace at."""

    spec: InputSpec
    multiprocessors: int | None = None
    """Multiprocessors of the pretended GPU; None for the target's own number.

    With few of them a persistent kernel loops.
    """
    reuse: bool = False
    """Calls the model of an earlier size if its constructor's arguments are equal."""
    surroundings: tuple[Change, ...] = ()
    """Changes of surroundings compared to KernelBench's."""
    replayed: bool = True
    """The trace is replayed, so that the host code's choices at the size are judged."""
    variants_seed: int | None = None
    """Seed of the changed surroundings in which the size is traced additionally; None for no
    further trace."""


class TracedCandidate(Value):
    """Traces of a candidate at every size, or the failures."""

    traced: Traced = Traced()
    failures: tuple[Failure | None, ...] = ()
    """A failure per size. A failure of the whole (an import that raises, a dead process) is
    repeated for all."""
    changed: tuple[tuple[Change, ...], ...] = ()
    """Changed surroundings of the last traces, which are further traces of a single size."""
    host_outcomes: tuple[int, ...] = ()
    """Outcomes recorded for each choice of the host code."""
    host_choices: tuple[HostChoice, ...] = ()
    """Choices with a single outcome at every size; empty if no size was traced in changed
    surroundings."""
    notes: tuple[str, ...] = ()
    output: str = ""
    isolation: Isolation | None = None
    seconds: float = 0.0


def trace_candidate(
    zygote: Zygote,
    source: str,
    target: str,
    sizes: Sequence[SizeRequest],
    *,
    seconds: float = 30.0,
    allow_import: Sequence[str] = (),
    decided: Callable[[TracedCandidate], bool] = lambda _: False,
    complete: Callable[[TracedCandidate], None] = lambda _: None,
) -> TracedCandidate:
    """Runs the candidate's host code at every size in a sandboxed process. Never raises for
    behaviour of the candidate.

    seconds: time limit in total. allow_import: packages whose kernels count as the candidate's own.
    decided: called with the first of several sizes once traced, in parallel to the others; if it
    returns True, the first size alone is returned. complete: called with all sizes, possibly while
    `decided` is running. Raises InfrastructureError if no process can be started, and errors of the
    two callbacks.
    """
    start = time.monotonic()
    size_messages = [
        {
            "spec": s.spec.model_dump(mode="json"),
            "multiprocessors": s.multiprocessors,
            "calls": CALLS_AT_FIRST_SIZE if i == 0 else 2,
            "reuse": s.reuse,
            "surroundings": [change.value for change in s.surroundings],
            "replayed": s.replayed,
            "variants_seed": s.variants_seed,
        }
        for i, s in enumerate(sizes)
    ]
    with zygote.start(
        TRACER_ENTRY, {"source": source, "target": target, "sizes": size_messages}
    ) as process:
        first = _FirstSize(process, decided, allow_import)
        answer, failure = _listen(process, seconds - (time.monotonic() - start), seconds, first)
        candidate = (
            _failed(failure, len(sizes)) if failure else _checked(answer, len(sizes), allow_import)
        )
        if any(s.variants_seed is not None for s in sizes) and any(candidate.traced.traces):
            choices = one_sided_choices(
                source, candidate.host_outcomes, [s.spec.init for s in sizes]
            )
            candidate = candidate.with_(host_choices=choices)
        complete(candidate)
        candidate = first.alone() or candidate
        complete_candidate: TracedCandidate = candidate.with_(
            output=process.output, isolation=process.isolation, seconds=time.monotonic() - start
        )
    return complete_candidate


class _FirstSize:
    """Runs `decided` on the first of several sizes, in a thread, while the others are traced."""

    def __init__(
        self,
        process: Process,
        decided: Callable[[TracedCandidate], bool],
        allow_import: Sequence[str],
    ) -> None:
        self._process = process
        self._decided = decided
        self._allow_import = allow_import
        self._thread: threading.Thread | None = None
        self._candidate = TracedCandidate()
        self._is_enough = False
        self._error: BaseException | None = None

    def begin(self, answer: object) -> None:
        """Starts the thread. answer: the process's message about the first size.

        Only the first message counts; if malformed, the whole answer will be malformed, too.
        """
        candidate = _read(answer, 1) if isinstance(answer, dict) and self._thread is None else None
        if (
            isinstance(candidate, TracedCandidate)
            and _foreign_kernel(candidate.traced, self._allow_import) is None
        ):
            self._candidate, self._thread = (
                candidate,
                threading.Thread(target=self._decide, daemon=True),
            )
            self._thread.start()

    def _decide(self) -> None:
        try:
            self._is_enough = self._decided(self._candidate)
        except BaseException as error:
            self._error = error
        if self._is_enough or self._error is not None:
            self._process.stop()

    def alone(self) -> TracedCandidate | None:
        """Returns the first size if it suffices. Waits for `decided`, and raises its error."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._candidate if self._is_enough else None


def _failed(failure: Failure, count: int) -> TracedCandidate:
    return TracedCandidate(failures=(failure,) * count)


def _checked(answer: dict[str, Any], count: int, allow_import: Sequence[str]) -> TracedCandidate:
    """Parses the answer and checks the origin of its kernels; otherwise a single failure for all
    sizes."""
    candidate = _read(answer, count)
    if isinstance(candidate, Failure):
        return _failed(candidate, count)
    if (foreign := _foreign_kernel(candidate.traced, allow_import)) is not None:
        return _failed(foreign, count).with_(notes=candidate.notes)
    return candidate


def _foreign_kernel(traced: Traced, allowed: Sequence[str]) -> Failure | None:
    """Returns the failure for a kernel from a package that is not allowed for its kernels."""
    for function in traced.functions.values():
        package = function.file.partition(".")[0]
        if package and package not in allowed:
            name, package = clean_text(function.name, 80), clean_text(package, 60)
            message = (
                f"kernel {name} is the package {package}'s, not the candidate's own (--allow-import "
                f"{package} allows it)"
            )
            return Failure(fault=Fault.FALLBACK, message=message)
    return None


def _listen(
    process: Process, seconds_left: float, seconds: float, first: _FirstSize
) -> tuple[dict[str, Any], Failure | None]:
    """Returns the last message, or the failure in its place. seconds_left: remainder of `seconds`."""
    doing, allowed = "starting", RemainingSeconds(process, seconds_left)
    for _ in range(MAX_MESSAGES):
        try:
            message = allowed.receive()
        except ProcessTimedOut:
            return {}, Failure(
                fault=Fault.TIMEOUT,
                message=f"no answer within {seconds:g} s while {doing}: an endless loop, or far too slow",
            )
        except ProcessDied as death:
            return {}, _death(process, death, doing)
        except BadMessage as error:
            return {}, _failure_of_forgery(
                f"the channel carried something that is no message: {error}"
            )
        if "first" in message:
            first.begin(message["first"])
            continue
        if "progress" not in message:
            return message, None
        doing = clean_text(message["progress"], 60).replace("\n", " ")
    return {}, _failure_of_forgery("endless messages")


def _death(process: Process, death: ProcessDied, doing: str) -> Failure:
    lines = process.output.strip().splitlines()
    tail = f"; last output: {clean_text(lines[-1], 200)}" if lines else ""
    fault = Fault.MEMORY if lines and "MemoryError" in lines[-1] else Fault.CRASH
    return Failure(fault=fault, message=f"{death.describe()} while {doing}{tail}")


def _failure_of_forgery(message: str) -> Failure:
    return Failure(
        fault=Fault.CHEAT, cheat=Cheat.FORGERY, message=clean_text(message, 300).replace("\n", " ")
    )


def _read(answer: dict[str, Any], count: int) -> TracedCandidate | Failure:
    """Parses the answer; returns a Failure if malformed."""
    try:
        failures = tuple(
            None if f is None else _cap_failure(Failure.model_validate(f))
            for f in answer["failures"]
        )
        notes = tuple(clean_text(n, 300) for n in list(answer["notes"])[:20])
        outcomes = tuple(int(n) for n in list(answer["host"])[: MAX_CHOICES + 1])
        traced = read_traced(answer["traced"])
    except TraceError as error:
        return _failure_of_forgery(str(error))
    except (KeyError, TypeError, ValueError, ValidationError, RecursionError) as error:
        return _failure_of_forgery(
            f"what came from the tracing process has not the form of a trace: {type(error).__name__}"
        )
    if len(failures) != count or len(traced.traces) != count:
        return _failure_of_forgery("a trace of other sizes than were asked for")
    if any((t is None) == (f is None) for t, f in zip(traced.traces, failures, strict=True)):
        return _failure_of_forgery("a size that is neither traced nor failed")
    return _with_variants(
        TracedCandidate(traced=traced, failures=failures, host_outcomes=outcomes, notes=notes)
    )


def _with_variants(candidate: TracedCandidate) -> TracedCandidate:
    """Appends traces in changed surroundings to those of the sizes."""
    traced = candidate.traced
    traces = (*traced.traces, *(variant.trace for variant in traced.variants))
    joined: TracedCandidate = candidate.with_(
        traced=traced.with_(traces=traces, variants=()),
        failures=(*candidate.failures, *(None for _ in traced.variants)),
        changed=tuple(variant.changes for variant in traced.variants),
    )
    return joined


def _cap_failure(failure: Failure) -> Failure:
    """Caps the text of a reported failure: a report is data, its fault freely chosen, and cannot
    claim a mismatch."""
    source_line = failure.where
    if source_line is not None:
        source_line = source_line.with_(
            text=clean_text(source_line.text, 300).replace("\n", " "),
            line=max(0, min(source_line.line, 10**6)),
        )
    return Failure(
        fault=failure.fault, cheat=failure.cheat, message=clean_text(failure.message, 700).replace("\n", " "),
        where=source_line, trace=clean_text(failure.trace, 2000),
    )  # fmt: skip
