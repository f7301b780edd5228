"""The trusted side of tracing: starts a sandboxed process, keeps its deadline, and reads what it says as a value."""

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
"""Calls of forward at the first size: host code that changes what it does after some calls is seen here."""


class SizeRequest(Value):
    """One size to trace at."""

    spec: InputSpec
    multiprocessors: int | None = None
    """What the pretended GPU says it has; None for the target's own number.

    Few of them make a persistent kernel loop.
    """
    reuse: bool = False
    """Whether the model of an earlier size is called, where its constructor's arguments are the same."""
    surroundings: tuple[Change, ...] = ()
    """What surrounds the calls otherwise than KernelBench has it."""
    replayed: bool = True
    """Whether the trace is replayed, so that what the host code chooses there is judged."""
    variants_seed: int | None = None
    """Seed of the changes of surroundings in which this size is traced besides; None for no further trace."""


class TracedCandidate(Value):
    """What one candidate asked for at every size, or why not."""

    traced: Traced = Traced()
    failures: tuple[Failure | None, ...] = ()
    """One for each size. A failure of the whole (an import that raises, a process that died) is the failure of all."""
    changed: tuple[tuple[Change, ...], ...] = ()
    """What surrounds the last so many traces, which are further ones of one size."""
    host_outcomes: tuple[int, ...] = ()
    """What was noted of each choice of the host code."""
    host_choices: tuple[HostChoice, ...] = ()
    """Choices with one outcome at every size; none where no size was traced in changed surroundings."""
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
    """Runs the candidate's host code at every size in one sandboxed process. Never raises for what a candidate does.

    seconds: for everything together. allow_import: packages whose kernels count as the candidate's own. decided: is
    told the first size of several as soon as it is traced, and is at work while the others are; where it gives True,
    the first size alone is given back. complete: is told all sizes while `decided` may still be at work. Raises
    InfrastructureError where no process could be started, and what the two raise.
    """
    start = time.monotonic()
    asked = [
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
        TRACER_ENTRY, {"source": source, "target": target, "sizes": asked}
    ) as process:
        first = _FirstSize(process, decided, allow_import)
        answer, failure = _listen(process, seconds - (time.monotonic() - start), seconds, first)
        found = (
            _failed(failure, len(sizes)) if failure else _checked(answer, len(sizes), allow_import)
        )
        if any(s.variants_seed is not None for s in sizes) and any(found.traced.traces):
            choices = one_sided_choices(source, found.host_outcomes, [s.spec.init for s in sizes])
            found = found.with_(host_choices=choices)
        complete(found)
        found = first.alone() or found
        told: TracedCandidate = found.with_(
            output=process.output, isolation=process.isolation, seconds=time.monotonic() - start
        )
    return told


class _FirstSize:
    """The first size of several, looked at in a thread of its own while the others are traced."""

    def __init__(
        self,
        process: Process,
        decided: Callable[[TracedCandidate], bool],
        allow_import: Sequence[str],
    ) -> None:
        self._process, self._decided, self._allow_import = process, decided, allow_import
        self._thread: threading.Thread | None = None
        self._found = TracedCandidate()
        self._is_enough = False
        self._error: BaseException | None = None

    def begin(self, answer: Any) -> None:
        """answer: what the process says of it.

        Heard once; where it is no trace, the whole answer will not be one either.
        """
        found = _read(answer, 1) if isinstance(answer, dict) and self._thread is None else None
        if (
            isinstance(found, TracedCandidate)
            and _foreign_kernel(found.traced, self._allow_import) is None
        ):
            self._found, self._thread = found, threading.Thread(target=self._decide, daemon=True)
            self._thread.start()

    def _decide(self) -> None:
        try:
            self._is_enough = self._decided(self._found)
        except BaseException as error:
            self._error = error
        if self._is_enough or self._error is not None:
            self._process.stop()

    def alone(self) -> TracedCandidate | None:
        """The first size where that is enough. Waits for `decided`, and raises what it raised."""
        if self._thread is not None:
            self._thread.join()
        if self._error is not None:
            raise self._error
        return self._found if self._is_enough else None


def _failed(failure: Failure, count: int) -> TracedCandidate:
    return TracedCandidate(failures=(failure,) * count)


def _checked(answer: dict[str, Any], count: int, allow_import: Sequence[str]) -> TracedCandidate:
    """The answer as a value, with kernels that count as the candidate's own; else one failure for all sizes."""
    found = _read(answer, count)
    if isinstance(found, Failure):
        return _failed(found, count)
    if (foreign := _foreign_kernel(found.traced, allow_import)) is not None:
        return _failed(foreign, count).with_(notes=found.notes)
    return found


def _foreign_kernel(traced: Traced, allowed: Sequence[str]) -> Failure | None:
    """A kernel whose text lies in a package that may not be imported for its kernels."""
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
    process: Process, left: float, seconds: float, first: _FirstSize
) -> tuple[dict[str, Any], Failure | None]:
    """The last message, or the failure that came in its place. left: of `seconds`."""
    doing, allowed = "starting", RemainingSeconds(process, left)
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
    """The answer as values; a Failure where it has not the form of one."""
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
    """The candidate with its traces in changed surroundings after those of the sizes."""
    traced = candidate.traced
    traces = (*traced.traces, *(variant.trace for variant in traced.variants))
    joined: TracedCandidate = candidate.with_(
        traced=traced.with_(traces=traces, variants=()),
        failures=(*candidate.failures, *(None for _ in traced.variants)),
        changed=tuple(variant.changes for variant in traced.variants),
    )
    return joined


def _cap_failure(failure: Failure) -> Failure:
    """What a candidate's process says of itself is data: a fault of its own choosing, but capped text, and no claim
    to be a mismatch.
    """
    where = failure.where
    if where is not None:
        where = where.with_(
            text=clean_text(where.text, 300).replace("\n", " "), line=max(0, min(where.line, 10**6))
        )
    return Failure(
        fault=failure.fault, cheat=failure.cheat, message=clean_text(failure.message, 700).replace("\n", " "),
        where=where, trace=clean_text(failure.trace, 2000),
    )  # fmt: skip
