"""Compiles the kernels of a trace, trusted side: takes cached outcomes, compiles the others in a
sandboxed process, and validates the answers.

A compiler that crashes, aborts or hangs loses only the current kernel; the next process compiles
the others.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import stat
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from kernelwright.tools.compiling.cache import Cache
from kernelwright.tools.compiling.compiled import (
    OUTPUT_FILE,
    TEXTS,
    VERSION,
    Compiled,
    CompileOutcome,
    Place,
)
from kernelwright.tools.compiling.program_order import kernels_with_shared_memory
from kernelwright.tools.compiling.text.closure import Contents
from kernelwright.tools.compiling.text.kernel_text import candidate_line
from kernelwright.tools.hardware.targets import parse_target
from kernelwright.tools.report import Failure, Fault, SourceLine, clean_text
from kernelwright.tools.sandbox import BadMessage, Process, ProcessDied, ProcessTimedOut, Zygote
from kernelwright.tools.sandbox.run_queue import RemainingSeconds
from kernelwright.tools.trace.trace import Function, Kernel, Traced

WORKER_ENTRY = "kernelwright.tools.compiling.worker:serve"
FP_FUSION = "1"
"""TRITON_DEFAULT_FP_FUSION of the sandbox; its default flips in Triton 3.10."""
_CACHED_FAULTS = (Fault.COMPILE, Fault.RESOURCES, Fault.CHEAT)
"""Failures which the next attempt would repeat: they are cached. A crash or a timeout is not."""
_MAX_KERNELS_OF_ONE_PROCESS = 1 if (os.cpu_count() or 1) >= 8 else 3
"""Maximum number of kernels compiled by a single process: a matrix product compiles for up to
seconds, and a process starts in 30 milliseconds.
"""


@functools.cache
def _version() -> str:
    return f"{importlib.metadata.version('triton')}/{FP_FUSION}/{VERSION}"


class Compiler:
    """Compiles kernels in sandboxed processes, with a cache in memory and optionally in `folder`.
    Thread-safe.
    """

    def __init__(
        self,
        zygote: Zygote,
        *,
        folder: Path | None = None,
        kernel_seconds: float = 30.0,
        processes: int = 4,
    ) -> None:
        """Opens the cache; processes start on demand.

        zygote: of kind COMPILE. kernel_seconds: time limit per kernel. processes: maximum number
        of processes per call of `compile`.
        """
        self._zygote = zygote
        self._kernel_seconds = kernel_seconds
        self._processes = processes
        self._cache = Cache(folder)
        self._under_way: dict[tuple[str, tuple[str, ...]], Future[CompileOutcome | None]] = {}
        """Compilations running in other threads, by the kernel's address and the requested texts.
        """
        self._lock = threading.Lock()

    def compile(
        self,
        traced: Traced,
        kernels: Sequence[str],
        target: str,
        *,
        source: str,
        seconds: float,
        texts: Collection[str] = (),
    ) -> dict[str, Compiled]:
        """Compiles kernels and returns them by their keys in the trace, in the order of
        `kernels`.

        source: the candidate's text, for the lines of errors. seconds: limit for all kernels
        together. texts: requested
        stages (`ptx`, `amdgcn` ...).
        Raises: KeyError for a key missing in the trace; ValueError for an unknown target;
        InfrastructureError if no process
        starts.
        """
        name = parse_target(target).name
        contents = Contents(traced.functions)
        shared = kernels_with_shared_memory(traced)
        addresses: dict[str, str] = {}
        for key in dict.fromkeys(kernels):
            # With shared memory the outcome holds a second binary (programs in reverse order).
            version = f"{_version()}{'/shared' if key in shared else ''}"
            addresses[key] = contents.address(traced.kernels[key], name, version)
        cached: dict[str, CompileOutcome] = {}
        for address in addresses.values():
            outcome = self._cache.get(address, texts)
            if outcome is not None:
                cached[address] = outcome
        missing = {a: k for k, a in reversed(addresses.items()) if a not in cached}
        job = _Job(
            zygote=self._zygote,
            traced=traced,
            contents=contents,
            target=name,
            deadline=time.monotonic() + seconds,
            kernel_seconds=self._kernel_seconds,
            texts=tuple(texts),
            shared=shared,
        )
        outcomes = self._each_once(job, missing)
        lines = source.splitlines()
        result: dict[str, Compiled] = {}
        for key, address in addresses.items():
            outcome = outcomes.get(address) or cached[address]
            compiled = _describe_compiled(job, key, outcome, lines)
            result[key] = compiled.with_(key=address, cached=address in cached)
        return result

    def _each_once(self, job: _Job, missing: Mapping[str, str]) -> dict[str, CompileOutcome]:
        """Returns the outcomes by address; waits for kernels which another thread is compiling.

        missing: address -> key of a kernel.
        """
        with self._lock:
            promised_elsewhere = {
                a: self._under_way[a, job.texts]
                for a in missing
                if (a, job.texts) in self._under_way
            }
            keys_to_compile = {a: k for a, k in missing.items() if a not in promised_elsewhere}
            promised: dict[str, Future[CompileOutcome | None]] = {
                a: Future() for a in keys_to_compile
            }
            self._under_way |= {(a, job.texts): promise for a, promise in promised.items()}
        outcomes: dict[str, CompileOutcome] = {}
        try:
            outcomes = self._cached(self._in_processes(job, keys_to_compile))
        finally:
            with self._lock:
                for a in keys_to_compile:
                    del self._under_way[a, job.texts]
            for a, promise in promised.items():
                promise.set_result(outcomes.get(a))
        awaited = {a: _promised(other, job.deadline) for a, other in promised_elsewhere.items()}
        outcomes |= {a: outcome for a, outcome in awaited.items() if outcome is not None}
        return outcomes | self._cached(
            self._in_processes(
                job, {a: missing[a] for a, outcome in awaited.items() if outcome is None}
            )
        )

    def _cached(self, outcomes: dict[str, CompileOutcome]) -> dict[str, CompileOutcome]:
        """Caches the outcomes which the next attempt would repeat, and returns all outcomes."""
        for address, outcome in outcomes.items():
            if outcome.fault is None or outcome.fault in _CACHED_FAULTS:
                self._cache.put(address, outcome)
        return outcomes

    def _in_processes(self, job: _Job, missing: Mapping[str, str]) -> dict[str, CompileOutcome]:
        """Shares the kernels between processes; returns the outcomes by address.

        missing: address -> key of a kernel.
        """
        count = min(self._processes, -(-len(missing) // _MAX_KERNELS_OF_ONE_PROCESS))
        shares = [list(missing)[::-1][number::count] for number in range(count)]
        if count < 2:
            return job.run({a: missing[a] for share in shares for a in share})
        with ThreadPoolExecutor(count) as pool:
            results = pool.map(lambda share: job.run({a: missing[a] for a in share}), shares)
            return {a: outcome for result in results for a, outcome in result.items()}


def _promised(other: Future[CompileOutcome | None], deadline: float) -> CompileOutcome | None:
    """Returns another thread's outcome for a kernel; None if late, or if this attempt may end
    differently.
    """
    try:
        outcome = other.result(max(deadline - time.monotonic(), 0.0))
    except TimeoutError:
        return None
    return (
        outcome
        if outcome is not None and (outcome.fault is None or outcome.fault in _CACHED_FAULTS)
        else None
    )


@dataclass(frozen=True)
class _Job:
    """Compilation of kernels of a trace, one after the other; a dead process is replaced."""

    zygote: Zygote
    traced: Traced
    contents: Contents
    target: str
    deadline: float
    kernel_seconds: float
    texts: tuple[str, ...]
    shared: Collection[str]
    """Keys of kernels launched with two tensors in the same memory."""

    def run(self, keys: Mapping[str, str]) -> dict[str, CompileOutcome]:
        """Compiles kernels until done or out of time; returns the outcomes by address.

        keys: address -> key of a kernel.
        """
        done: dict[str, CompileOutcome] = {}
        seconds = self.deadline - time.monotonic()
        while remaining := {a: k for a, k in keys.items() if a not in done}:
            if seconds <= 0:
                return done | {a: self._late(k, 0.0) for a, k in remaining.items()}
            with self.zygote.start(WORKER_ENTRY, self._payload(remaining)) as process:
                allowed = RemainingSeconds(process, seconds)
                self._listen(process, allowed, remaining, done)
                seconds = allowed.remaining
        return done

    def _payload(self, remaining: Mapping[str, str]) -> dict[str, object]:
        kernels = {a: self.traced.kernels[k] for a, k in remaining.items()}
        keys = dict.fromkeys(key for k in kernels.values() for key in self.contents.closure(k))
        return {
            "functions": {key: _to_json(self.traced.functions[key]) for key in keys},
            "kernels": {a: _to_json(k) for a, k in kernels.items()},
            "target": self.target,
            "texts": [t for t in self.texts if t in TEXTS],
            "shared": [a for a, k in remaining.items() if k in self.shared],
        }

    def _listen(
        self,
        process: Process,
        allowed: RemainingSeconds,
        keys: Mapping[str, str],
        done: dict[str, CompileOutcome],
    ) -> None:
        """Receives outcomes until the process is done.

        A process which ends early sets the outcome of its current kernel.
        """
        at = next(iter(keys))
        begun = time.monotonic()
        ended: CompileOutcome | None = None
        while ended is None and any(a not in done for a in keys):
            try:
                message = allowed.receive(begun + self.kernel_seconds - time.monotonic())
                if "begun" in message and message["begun"] in keys:
                    at = message["begun"]
                    begun = time.monotonic()
                elif message["made"] == at and at not in done:
                    done[at], begun = _read_outcome(message["outcome"]), time.monotonic()
                else:
                    raise ValueError("an outcome that was not asked for")
            except ProcessTimedOut:
                ended = self._late(keys[at], time.monotonic() - begun)
            except ProcessDied as death:
                ended = self._death(keys[at], death, process)
            except (
                BadMessage,
                KeyError,
                TypeError,
                ValueError,
                ValidationError,
                RecursionError,
            ) as error:
                words = f"what the compiler says of {self._name(keys[at])} has not the form of an outcome"
                ended = CompileOutcome(
                    fault=Fault.CRASH, message=f"{words}: {type(error).__name__}"
                )
        if ended is not None:
            stuck = at if at not in done else next(a for a in keys if a not in done)
            done[stuck] = ended

    def _late(self, key: str, seconds: float) -> CompileOutcome:
        words = f"{self._name(key)} is not compiled for {self.target} within {seconds:.0f} s"
        return CompileOutcome(fault=Fault.TIMEOUT, message=words, seconds=seconds)

    def _death(self, key: str, death: ProcessDied, process: Process) -> CompileOutcome:
        printed = process.output.strip().splitlines()
        words = _last_words(process.scratch / OUTPUT_FILE) or clean_text("".join(printed[-1:]), 200)
        fault = (
            Fault.MEMORY
            if "out of memory" in words.lower() or "bad_alloc" in words
            else Fault.CRASH
        )
        tail = f": {words}" if words else ""
        message = f"{death.describe()} while compiling {self._name(key)} for {self.target}{tail}"
        return CompileOutcome(fault=fault, message=message)

    def _name(self, key: str) -> str:
        return f"kernel {self.traced.functions[self.traced.kernels[key].function].name}"


def _to_json(part: Function | Kernel) -> str:
    """Serialises a part of a trace with infinities as infinities: pydantic writes null, which
    would be a different constant.
    """
    return json.dumps(part.model_dump())


def _read_outcome(message: object) -> CompileOutcome:
    """An outcome from the compiler's process, its texts capped and cleaned. Raises ValidationError."""
    outcome = CompileOutcome.model_validate_json(json.dumps(message))
    if outcome.fault is None and (
        not outcome.binary or outcome.resources is None or "name" not in outcome.metadata
    ):
        raise ValueError("neither a failure nor a kernel")
    resources = outcome.resources and outcome.resources.with_(
        name=clean_text(outcome.resources.name, 200)
    )
    return outcome.with_(
        message=clean_text(outcome.message, 1200), resources=resources, places=outcome.places[:20]
    )


def _last_words(path: Path) -> str:
    """Returns the last line printed by a dead compiler. The sandbox wrote the file: its content
    is untrusted.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        lines = file.read(1 << 14).decode("utf-8", "replace").strip().splitlines()
    notes = [
        line for line in lines if "ERROR" in line or "error" in line or "Assertion" in line
    ] or lines[-1:]
    return clean_text(notes[0], 200).strip() if notes else ""


def _describe_compiled(
    job: _Job, key: str, outcome: CompileOutcome, lines: Sequence[str]
) -> Compiled:
    """Converts an outcome to a kernel of this trace, with lines of the candidate's file."""
    traced = job.traced
    kernel = traced.kernels[key]
    failure = None
    if outcome.fault is not None:
        functions = [traced.functions[k] for k in job.contents.closure(kernel)]
        candidate_places = (_in_file(functions, each, lines) for each in outcome.places)
        line = next((each for each in candidate_places if each is not None), None)
        failure = Failure(
            fault=outcome.fault, cheat=outcome.cheat, message=outcome.message, where=line
        )
    return Compiled(
        name=traced.functions[kernel.function].name,
        target=job.target,
        failure=failure,
        resources=outcome.resources,
        signature=dict(kernel.signature),
        metadata=outcome.metadata,
        binary=outcome.binary,
        reversed=outcome.reversed,
        texts=outcome.texts,
        seconds=outcome.seconds,
    )


def _in_file(
    functions: Sequence[Function], position: Place, lines: Sequence[str]
) -> SourceLine | None:
    """Converts a position to a line in the candidate's file; None for a function of a library."""
    if not 0 <= position.function < len(functions):
        return None
    source_line = candidate_line(functions[position.function], position.line, position.column)
    if (
        source_line is None
        or not 0 < source_line.line <= len(lines)
        or lines[source_line.line - 1].strip() != source_line.text.strip()
    ):
        return source_line
    return source_line.with_(text=clean_text(lines[source_line.line - 1], 400))
