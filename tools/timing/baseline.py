"""torch.compile's time for a reference, beside eager's, in a process of its own: the compiler's workers and caches stay
out of the judge.

    python -m kernelwright.tools.timing.baseline DESCRIPTOR DEVICE

The process is a `kernelwright.worker_process.WorkerProcess` that serves one problem after another: torch's compiler
takes up to a quarter of a minute to import. It says READY_MESSAGE when it has imported that, then answers each
BaselineRequest with a Baseline (both as JSON).

Compiling takes from a second to a minute. A reference's first graph is compiled ahead on tensors without data
(tools/timing/compile_ahead.py), in processes of the same kind, while others are judged. What is left of compiling, and
timing, is done where nobody else is on the GPU. Kept by problem, GPU and versions.
"""

from __future__ import annotations

import gc
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Environment, Number, Timing, Value
from kernelwright.worker_process import (
    WorkerDied,
    WorkerProcess,
    WorkerTimedOut,
    connection_to_parent,
    end_with_parent,
)

BASELINE_SECONDS = 180.0
"""Seconds for compiling and timing one problem, and for starting the process."""
TIMED_CALLS = 50
READY_MESSAGE = b"ready"
MAX_PROBLEMS_PER_PROCESS = 64
"""Number of problems that one process compiles before another replaces it: compiled code stays loaded in
the process.
"""
CORES_PER_AHEAD_PROCESS = 8
MAX_AHEAD_PROCESSES = 4
"""Processes that compile ahead: each keeps half a gigabyte of the GPU, and has compilers of its own for kernels."""


class BaselineRequest(Value):
    """The request to the process."""

    problem: Problem
    ahead: bool = False
    """Whether it is only compiled, and without the GPU; the answer's note says what was in the way."""


class Baseline(Value):
    """The times of the reference: eager, and compiled by torch.compile."""

    compiled: Timing | None = None
    eager: Timing | None = None
    note: str = ""

    @property
    def ratio(self) -> Number | None:
        """torch.compile's median over eager's, measured side by side."""
        return self.compiled.median / self.eager.median if self.compiled and self.eager else None


class Baselines:
    """The torch.compile baselines of one device. Thread-safe; each problem is compiled once."""

    def __init__(self, device: str, cache_dir: Path | None = None) -> None:
        """cache_dir: folder where baselines are kept between processes; None keeps them for the life of this object."""
        self._device, self._folder = device, cache_dir / "baselines" if cache_dir else None
        self._known: dict[str, Baseline] = {}
        self._lock = threading.Lock()
        self._compiler: _Compiler | None = None
        self._ahead = _Ahead(device)

    def start(self) -> None:
        """Starts the process where there is none, and does not wait for it."""
        if self._lock.acquire(blocking=False):  # else one is there, at work
            try:
                self._compiler = self._compiler or _Compiler(self._device)
            finally:
                self._lock.release()

    def get_ready(self, problem: Problem, environment: Environment) -> None:
        """Waits until `timed` has little more to do than to time: the problem is compiled, the process has started."""
        key = _key(problem, environment)
        with self._lock:
            if self._find(key) is not None:
                return
        self._ahead.compile(key, problem)
        with self._lock:
            self._compiler = self._compiler or _Compiler(self._device)
            self._compiler.get_ready()

    def timed(self, problem: Problem, environment: Environment) -> Baseline:
        """Compiles and times the reference. Call it where no other process uses the GPU. Never raises: an error is in
        `note`.
        """
        key = _key(problem, environment)
        with self._lock:
            if known := self._find(key):
                return known
            self._compiler = self._compiler or _Compiler(self._device)
            found = self._compiler.answer(problem)
            if not self._compiler.usable:
                self._compiler.close()
                self._compiler = None
            return self._keep(key, found)

    def close(self) -> None:
        """Ends the process, whatever it is doing; callers that wait for an answer get one that says so."""
        self._ahead.close()
        if (compiler := self._compiler) is not None:
            compiler.end()

    def _find(self, key: str) -> Baseline | None:
        path = self._folder / f"{key}.json" if self._folder else None
        if key not in self._known and path and path.is_file():
            try:
                self._known[key] = Baseline.model_validate_json(path.read_bytes())
            except ValidationError:
                path.unlink()
        return self._known.get(key)

    def _keep(self, key: str, found: Baseline) -> Baseline:
        """A failure is kept as long as this object lives."""
        self._known[key] = found
        if self._folder and found.compiled:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(handle, "w") as file:
                file.write(found.model_dump_json())
            os.replace(name, self._folder / f"{key}.json")
        return found


def _key(problem: Problem, environment: Environment) -> str:
    versions = environment.model_dump_json(include={"torch", "triton", "gpu", "driver"})
    return hashlib.sha256((problem.hash + versions).encode()).hexdigest()


class _Compiler:
    """The process that compiles and times references."""

    def __init__(self, device: str) -> None:
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._worker = WorkerProcess("kernelwright.tools.timing.baseline", device, errors=self._said)
        self._trouble, self._ready, self._problems = "", False, 0

    @property
    def usable(self) -> bool:
        """Whether it can be given another problem."""
        return not self._trouble and self._problems < MAX_PROBLEMS_PER_PROCESS

    def get_ready(self) -> None:
        """Waits until the process has imported its libraries."""
        if not self._ready:
            self._ready = True
            self._received(lambda: self._worker.receive(BASELINE_SECONDS))

    def answer(self, problem: Problem, *, ahead: bool = False) -> Baseline:
        """Returns the process's answer; where the process has ended, or is ended for being late, the note says why.
        ahead: the reference is only compiled, not timed.
        """
        self.get_ready()
        self._problems += 1
        message = BaselineRequest(problem=problem, ahead=ahead).model_dump_json().encode()
        answer = b"" if self._trouble else self._received(lambda: self._worker.ask(message, BASELINE_SECONDS))
        return Baseline(note=self._trouble) if self._trouble else Baseline.model_validate_json(answer)

    def _received(self, ask: Callable[[], bytes]) -> bytes:
        try:
            return ask()
        except WorkerTimedOut:
            self._trouble = f"torch.compile was ended: it took longer than {BASELINE_SECONDS:g} s"
        except WorkerDied as death:
            self._trouble = f"torch.compile failed: {self._last_words() or death}"
            if death.killed:
                self._trouble = "torch.compile was ended from outside: most often memory ran out"
        return b""

    def _last_words(self) -> str:
        self._said.seek(0)
        said = self._said.read().decode("utf-8", "replace").strip().splitlines()
        return said[-1][:200] if said else ""

    def end(self) -> None:
        """Ends the process with the compiler's own workers. May be called from any thread."""
        self._worker.end()

    def close(self) -> None:
        """Ends the process; no caller may wait for an answer."""
        self._worker.close()
        self._said.close()


class _Ahead:
    """Processes that compile without timing: nobody holds the GPU meanwhile. Thread-safe."""

    def __init__(self, device: str) -> None:
        self._device = device
        self._places = threading.BoundedSemaphore(_ahead_processes())
        self._lock = threading.Lock()
        self._idle: list[_Compiler] = []
        self._busy: list[_Compiler] = []
        self._by_key: dict[str, threading.Lock] = {}
        self._done: set[str] = set()
        self._closed = False

    def compile(self, key: str, problem: Problem) -> None:
        """Returns when the problem is compiled, or cannot be; each is tried once."""
        with self._lock:
            turn = self._by_key.setdefault(key, threading.Lock())
        with turn:
            if key in self._done:
                return
            with self._places, self._borrowed() as compiler:
                compiler.answer(problem, ahead=True)
            self._done.add(key)

    @contextmanager
    def _borrowed(self) -> Iterator[_Compiler]:
        with self._lock:
            compiler = self._idle.pop() if self._idle else _Compiler(self._device)
            self._busy.append(compiler)
            if self._closed:
                compiler.end()
        try:
            yield compiler
        finally:
            with self._lock:
                self._busy.remove(compiler)
                again = compiler.usable and not self._closed
                if again:
                    self._idle.append(compiler)
            if not again:
                compiler.close()

    def close(self) -> None:
        """Ends every process, whatever it is doing."""
        with self._lock:
            self._closed = True
            for compiler in (*self._idle, *self._busy):
                compiler.end()


def _ahead_processes() -> int:
    return max(1, min(MAX_AHEAD_PROCESSES, (os.cpu_count() or 1) // CORES_PER_AHEAD_PROCESS))


def measure(problem: Problem, device: str) -> Baseline:
    """Times both on the same inputs, call by call in turns, and writes over the L2 cache before each."""
    import torch

    from kernelwright.tools.references.reference import Reference
    from kernelwright.tools.timing.measurement import summarise_samples

    torch.cuda.set_device(device)
    reference = Reference(problem, device)
    model, inputs = reference.model(0), reference.arguments(reference.inputs(0))
    flush = torch.empty(1 << 26, dtype=torch.int32, device=device)
    times: dict[str, list[float]] = {"eager": [], "compiled": []}
    with reference.settings(), torch.no_grad():
        compiled = torch.compile(model)
        for _ in range(4):
            compiled(*inputs), model(*inputs)
        for _ in range(TIMED_CALLS):
            for name, call in (("eager", model), ("compiled", compiled)):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                flush.zero_()
                start.record()
                call(*inputs)
                end.record()
                torch.cuda.synchronize()
                times[name].append(start.elapsed_time(end))
    return Baseline(compiled=summarise_samples(times["compiled"]), eager=summarise_samples(times["eager"]))


def _compiled_ahead(problem: Problem, device: str) -> Baseline:
    from kernelwright.tools.timing.compile_ahead import compile_ahead

    return Baseline(note=compile_ahead(problem, device))


def _forget_compiled() -> None:
    """What was compiled for one reference is of no use to the next."""
    import torch

    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def main() -> None:
    """Measures the baselines of one problem after another in a process of its own, and sends them to the parent."""
    connection, (device,) = connection_to_parent()
    end_with_parent()
    os.dup2(2, 1)
    import torch
    import torch._inductor.compile_fx

    if torch.cuda.is_available():
        torch.cuda.init()
    connection.send_bytes(READY_MESSAGE)
    while True:
        try:
            asked = BaselineRequest.model_validate_json(connection.recv_bytes())
        except EOFError:
            return
        answer = _compiled_ahead if asked.ahead else measure
        found = answer(asked.problem, device)
        _forget_compiled()
        connection.send_bytes(found.model_dump_json().encode())


if __name__ == "__main__":
    main()
