"""Compiles the kernels of a trace, trusted side: what is known already is taken from the cache, the rest is made in a
sandboxed process and checked for its form.

A compiler that crashes, aborts or hangs costs the kernel that it was at; the others are compiled by the next process.
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
from pathlib import Path

from pydantic import ValidationError

from kernelwright.tools.compiling.cache import Cache
from kernelwright.tools.compiling.compiled import TEXTS, VERSION, Compiled, CompileOutcome, Place
from kernelwright.tools.compiling.program_order import kernels_with_shared_memory
from kernelwright.tools.compiling.text.closure import Contents
from kernelwright.tools.compiling.text.kernel_text import place as place_in_text
from kernelwright.tools.hardware.targets import parse_target
from kernelwright.tools.report import Failure, Fault, SourceLine, clean_text
from kernelwright.tools.sandbox import BadMessage, Process, ProcessDied, ProcessTimedOut, Zygote
from kernelwright.tools.sandbox.run_queue import RemainingSeconds
from kernelwright.tools.trace.trace import Function, Kernel, Traced

WORKER_ENTRY = "kernelwright.tools.compiling.worker:serve"
OUTPUT_FILE = "compiler_says"
"""The file in the process's folder that holds what the compiler printed last (`tools.compiling.worker`)."""
FP_FUSION = "1"
"""TRITON_DEFAULT_FP_FUSION of the sandbox; its default flips in Triton 3.10."""
_CACHED_FAULTS = (Fault.COMPILE, Fault.RESOURCES, Fault.CHEAT)
"""Failures that the next attempt would meet again: they are cached. A crash or a timeout is not."""
_MAX_KERNELS_OF_ONE_PROCESS = 1 if (os.cpu_count() or 1) >= 8 else 3
"""Kernels that are not worth a second process: one of a product takes up to seconds, and a process 30 milliseconds."""


@functools.cache
def _version() -> str:
    return f"{importlib.metadata.version('triton')}/{FP_FUSION}/{VERSION}"


class Compiler:
    """Thread-safe. Its cache lives as long as it does, and in `folder` where one is given."""

    def __init__(
        self,
        zygote: Zygote,
        *,
        folder: Path | None = None,
        kernel_seconds: float = 30.0,
        processes: int = 4,
    ) -> None:
        """zygote: of kind COMPILE.

        kernel_seconds: that one kernel may take. processes: that one call of `compile` uses at once.
        """
        self._zygote, self._kernel_seconds, self._processes = zygote, kernel_seconds, processes
        self._cache = Cache(folder)
        self._under_way: dict[tuple[str, tuple[str, ...]], Future[CompileOutcome | None]] = {}
        """What other threads compile at this moment, by the kernel's address and the texts that are wanted of it."""
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
        """Every kernel, by its key in the trace, in the order given.

        source: the candidate's text, for the lines of errors. seconds: bounds them all together. texts: stages whose
        text is wanted (`ptx`, `amdgcn` ...).
        Raises: KeyError for a key that is not in the trace; ValueError for an unknown target; InfrastructureError where
        no process starts.
        """
        name = parse_target(target).name
        contents = Contents(traced.functions)
        shared = kernels_with_shared_memory(traced)
        addresses = {
            k: contents.address(
                traced.kernels[k], name, f"{_version()}{'/shared' if k in shared else ''}"
            )
            for k in dict.fromkeys(kernels)
        }
        known = {
            a: found for a in addresses.values() if (found := self._cache.get(a, texts)) is not None
        }
        missing = {a: k for k, a in reversed(addresses.items()) if a not in known}
        job = _Job(
            self._zygote,
            traced,
            contents,
            name,
            time.monotonic() + seconds,
            self._kernel_seconds,
            tuple(texts),
            shared,
        )
        made = self._each_once(job, missing)
        told = {k: (made.get(a) or known[a], a) for k, a in addresses.items()}
        lines = source.splitlines()
        return {
            k: _describe_compiled(traced, contents, k, name, outcome, a, a in known, lines)
            for k, (outcome, a) in told.items()
        }

    def _each_once(self, job: _Job, missing: Mapping[str, str]) -> dict[str, CompileOutcome]:
        """The outcomes by address; what another thread compiles already is waited for.

        missing: address -> key of a kernel.
        """
        with self._lock:
            others = {
                a: self._under_way[a, job.texts]
                for a in missing
                if (a, job.texts) in self._under_way
            }
            own = {a: k for a, k in missing.items() if a not in others}
            promised: dict[str, Future[CompileOutcome | None]] = {a: Future() for a in own}
            self._under_way |= {(a, job.texts): promise for a, promise in promised.items()}
        made: dict[str, CompileOutcome] = {}
        try:
            made = self._kept(self._in_processes(job, own))
        finally:
            with self._lock:
                for a in own:
                    del self._under_way[a, job.texts]
            for a, promise in promised.items():
                promise.set_result(made.get(a))
        found = {a: _promised(other, job.deadline) for a, other in others.items()}
        made |= {a: outcome for a, outcome in found.items() if outcome is not None}
        return made | self._kept(
            self._in_processes(job, {a: missing[a] for a, one in found.items() if one is None})
        )

    def _kept(self, made: dict[str, CompileOutcome]) -> dict[str, CompileOutcome]:
        """The same, once what the next attempt would meet again is in the cache."""
        for address, outcome in made.items():
            if outcome.fault is None or outcome.fault in _CACHED_FAULTS:
                self._cache.put(address, outcome)
        return made

    def _in_processes(self, job: _Job, missing: Mapping[str, str]) -> dict[str, CompileOutcome]:
        """missing: address -> key of a kernel. The outcomes by address."""
        count = min(self._processes, -(-len(missing) // _MAX_KERNELS_OF_ONE_PROCESS))
        shares = [list(missing)[::-1][number::count] for number in range(count)]
        if count < 2:
            return job.run({a: missing[a] for share in shares for a in share})
        with ThreadPoolExecutor(count) as pool:
            results = pool.map(lambda share: job.run({a: missing[a] for a in share}), shares)
            return {a: outcome for result in results for a, outcome in result.items()}


def _promised(other: Future[CompileOutcome | None], deadline: float) -> CompileOutcome | None:
    """What another thread made of a kernel; None where that says nothing of this attempt, or is not there in time."""
    try:
        outcome = other.result(max(deadline - time.monotonic(), 0.0))
    except TimeoutError:
        return None
    return (
        outcome
        if outcome is not None and (outcome.fault is None or outcome.fault in _CACHED_FAULTS)
        else None
    )


class _Job:
    """Kernels of one trace, compiled one after the other; a process that dies is replaced by another."""

    def __init__(
        self,
        zygote: Zygote,
        traced: Traced,
        contents: Contents,
        target: str,
        deadline: float,
        kernel_seconds: float,
        texts: tuple[str, ...],
        shared: Collection[str],
    ) -> None:
        """shared: keys of the kernels that a launch gives two tensors in the same memory."""
        self._zygote, self._traced, self._contents, self._target = zygote, traced, contents, target
        self.deadline, self._kernel_seconds, self.texts, self._shared = (
            deadline,
            kernel_seconds,
            texts,
            shared,
        )

    def run(self, wanted: Mapping[str, str]) -> dict[str, CompileOutcome]:
        """wanted: address -> key of a kernel. The outcomes by address."""
        done: dict[str, CompileOutcome] = {}
        seconds = self.deadline - time.monotonic()
        while left := {a: k for a, k in wanted.items() if a not in done}:
            if seconds <= 0:
                return done | {a: self._late(k, 0.0) for a, k in left.items()}
            with self._zygote.start(WORKER_ENTRY, self._payload(left)) as process:
                allowed = RemainingSeconds(process, seconds)
                self._listen(process, allowed, left, done)
                seconds = allowed.left
        return done

    def _payload(self, left: Mapping[str, str]) -> dict[str, object]:
        kernels = {a: self._traced.kernels[k] for a, k in left.items()}
        keys = dict.fromkeys(key for k in kernels.values() for key in self._contents.closure(k))
        return {
            "functions": {key: _to_json(self._traced.functions[key]) for key in keys},
            "kernels": {a: _to_json(k) for a, k in kernels.items()},
            "target": self._target,
            "texts": [t for t in self.texts if t in TEXTS],
            "shared": [a for a, k in left.items() if k in self._shared],
        }

    def _listen(
        self,
        process: Process,
        allowed: RemainingSeconds,
        left: Mapping[str, str],
        done: dict[str, CompileOutcome],
    ) -> None:
        """Takes outcomes until the process is done.

        What ends it early becomes the outcome of the kernel that it was at.
        """
        at, begun = next(iter(left)), time.monotonic()
        ended: CompileOutcome | None = None
        while ended is None and any(a not in done for a in left):
            try:
                message = allowed.receive(begun + self._kernel_seconds - time.monotonic())
                if "begun" in message and message["begun"] in left:
                    at, begun = message["begun"], time.monotonic()
                elif message["made"] == at and at not in done:
                    done[at], begun = _read_outcome(message["outcome"]), time.monotonic()
                else:
                    raise ValueError("an outcome that was not asked for")
            except ProcessTimedOut:
                ended = self._late(left[at], time.monotonic() - begun)
            except ProcessDied as death:
                ended = self._death(left[at], death, process)
            except (
                BadMessage,
                KeyError,
                TypeError,
                ValueError,
                ValidationError,
                RecursionError,
            ) as error:
                words = f"what the compiler says of {self._name(left[at])} has not the form of an outcome"
                ended = CompileOutcome(
                    fault=Fault.CRASH, message=f"{words}: {type(error).__name__}"
                )
        if ended is not None:
            stuck = at if at not in done else next(a for a in left if a not in done)
            done[stuck] = ended

    def _late(self, key: str, seconds: float) -> CompileOutcome:
        words = f"{self._name(key)} is not compiled for {self._target} within {seconds:.0f} s"
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
        message = f"{death.describe()} while compiling {self._name(key)} for {self._target}{tail}"
        return CompileOutcome(fault=fault, message=message)

    def _name(self, key: str) -> str:
        return f"kernel {self._traced.functions[self._traced.kernels[key].function].name}"


def _to_json(part: Function | Kernel) -> str:
    """Writes a part of a trace as JSON in which an infinity is an infinity: pydantic's own writing makes it null,
    another constant than the one that was read.
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
    """The last line that a compiler printed before it died. The file was written in the sandbox: it may be anything."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return ""
    with os.fdopen(handle, "rb") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            return ""
        lines = file.read(1 << 14).decode("utf-8", "replace").strip().splitlines()
    said = [
        line for line in lines if "ERROR" in line or "error" in line or "Assertion" in line
    ] or lines[-1:]
    return clean_text(said[0], 200).strip() if said else ""


def _describe_compiled(
    traced: Traced,
    contents: Contents,
    key: str,
    target: str,
    outcome: CompileOutcome,
    where: str,
    cached: bool,
    lines: Sequence[str],
) -> Compiled:
    """The outcome as one of this trace, whose functions have lines of their own."""
    kernel = traced.kernels[key]
    failure = None
    if outcome.fault is not None:
        functions = [traced.functions[k] for k in contents.closure(kernel)]
        found = (_in_file(functions, each, lines) for each in outcome.places)
        line = next((each for each in found if each is not None), None)
        failure = Failure(
            fault=outcome.fault, cheat=outcome.cheat, message=outcome.message, where=line
        )
    return Compiled(
        name=traced.functions[kernel.function].name, target=target, key=where, failure=failure,
        resources=outcome.resources, signature=dict(kernel.signature),
        metadata=outcome.metadata, binary=outcome.binary, reversed=outcome.reversed, texts=outcome.texts,
        seconds=outcome.seconds, cached=cached,
    )  # fmt: skip


def _in_file(
    functions: Sequence[Function], place: Place, lines: Sequence[str]
) -> SourceLine | None:
    """The place in the candidate's file; None where its function lies elsewhere."""
    if not 0 <= place.function < len(functions):
        return None
    found = place_in_text(functions[place.function], place.line, place.column)
    if (
        found is None
        or not 0 < found.line <= len(lines)
        or lines[found.line - 1].strip() != found.text.strip()
    ):
        return found
    return found.with_(text=clean_text(lines[found.line - 1], 400))
