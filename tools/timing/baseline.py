"""Baselines of torch.compile: compiled references are timed in a process of their own, so that
the compiler's workers and caches stay out of the judge. tools/timing/compiled_reference.py does
the timing.

    python -m kernelwright.tools.timing.baseline DESCRIPTOR DEVICE

The process is a `kernelwright.worker_process.WorkerProcess` which serves a problem after another:
importing torch's compiler takes up to a quarter of a minute. The process sends READY_MESSAGE
after the import, then answers each BaselineRequest with BaselineTimes (both as JSON).

Compiling takes from a second to a minute. A reference's first graph is compiled ahead on tensors
without data (tools/timing/compile_ahead.py), in processes of the same kind, while other
candidates are judged. The remaining compilation, and timing, run while nobody else uses the GPU.
Results are cached by problem, GPU and versions.
"""

from __future__ import annotations

import gc
import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Environment, TimingMethod, Value
from kernelwright.tools.timing.compiled_reference import Baseline
from kernelwright.worker_process import (
    WorkerDied,
    WorkerProcess,
    WorkerTimedOut,
    connection_to_parent,
    end_with_parent,
)

BASELINE_SECONDS = 180.0
"""Time limit in seconds for compiling and timing a problem, and for starting the process."""
READY_MESSAGE = b"ready"
MAX_PROBLEMS_PER_PROCESS = 64
"""Number of problems after which a process is replaced: compiled code stays loaded in the
process.
"""
CORES_PER_AHEAD_PROCESS = 8
MAX_AHEAD_PROCESSES = 4
"""Processes that compile ahead: each keeps half a gigabyte of the GPU, and has compilers of its own for kernels."""


class BaselineRequest(Value):
    """The request to the process."""

    problem: Problem
    methods: tuple[TimingMethod, ...] = ()
    """Timing methods, with a baseline each. None: only compile the reference, without the GPU."""


class BaselineTimes(Value):
    """The answer of the process."""

    baselines: tuple[Baseline, ...] = ()
    """Baselines, in the order of the request's methods."""
    note: str = ""
    """Why the reference could not be compiled or timed."""


class Baselines:
    """The torch.compile baselines of a device. Thread-safe; each problem is compiled once."""

    def __init__(
        self, device: str, cache_dir: Path | None = None, processes: int | None = None
    ) -> None:
        """Starts no process yet.

        cache_dir: folder which keeps baselines between processes; None: in memory only.
        processes: number of processes which compile ahead; None: as many as the cores allow
        beside verdicts.
        """
        self._device, self._folder = device, cache_dir / "baselines" if cache_dir else None
        self._baselines: dict[str, Baseline] = {}
        self._lock = threading.Lock()
        self._compiler: _Compiler | None = None
        self._ahead = _Ahead(device, processes or _ahead_processes())

    def start(self) -> None:
        """Starts the process if there is none, without waiting."""
        if self._lock.acquire(blocking=False):  # else one is there, at work
            try:
                self._compiler = self._compiler or _Compiler(self._device)
            finally:
                self._lock.release()

    def get_ready(
        self, problem: Problem, environment: Environment, method: TimingMethod = TimingMethod.GRAPH
    ) -> None:
        """Waits until `timed` has little more to do than to time: the problem is compiled, the process has started."""
        key = _key(problem, environment, method)
        with self._lock:
            if self._find(key) is not None:
                return
        self._ahead.compile(problem)
        with self._lock:
            self._compiler = self._compiler or _Compiler(self._device)
            self._compiler.get_ready()

    def timed(
        self, problem: Problem, environment: Environment, method: TimingMethod = TimingMethod.GRAPH
    ) -> Baseline:
        """Compiles and times the reference. No other process may use the GPU. Never raises:
        `note` holds an error.

        method: how the compared candidate was timed.
        """
        return self.timed_by_each(problem, environment, (method,))[0]

    def timed_by_each(
        self, problem: Problem, environment: Environment, methods: Sequence[TimingMethod]
    ) -> tuple[Baseline, ...]:
        """The baselines by several methods, for which the reference is compiled once. As `timed`."""
        keys = [_key(problem, environment, method) for method in methods]
        with self._lock:
            cached_baselines = [self._find(key) for key in keys]
            missing = [
                method
                for method, baseline in zip(methods, cached_baselines, strict=True)
                if baseline is None
            ]
            if missing:
                answer = self._ask(problem, missing)
                for method, baseline in zip(missing, answer, strict=True):
                    self._keep(_key(problem, environment, method), baseline)
            return tuple(self._baselines[key] for key in keys)

    def _ask(self, problem: Problem, methods: Sequence[TimingMethod]) -> tuple[Baseline, ...]:
        self._compiler = self._compiler or _Compiler(self._device)
        answer = self._compiler.answer(BaselineRequest(problem=problem, methods=tuple(methods)))
        if not self._compiler.usable:
            self._compiler.close()
            self._compiler = None
        return answer.baselines or tuple(Baseline(note=answer.note) for _ in methods)

    def close(self) -> None:
        """Ends the process at once; waiting callers get an answer which says so."""
        self._ahead.close()
        if (compiler := self._compiler) is not None:
            compiler.end()

    def _find(self, key: str) -> Baseline | None:
        path = self._folder / f"{key}.json" if self._folder else None
        if key not in self._baselines and path and path.is_file():
            try:
                self._baselines[key] = Baseline.model_validate_json(path.read_bytes())
            except ValidationError:
                path.unlink()
        return self._baselines.get(key)

    def _keep(self, key: str, baseline: Baseline) -> None:
        """A failure is kept as long as this object lives."""
        self._baselines[key] = baseline
        if self._folder and baseline.compiled:
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._folder)
            with os.fdopen(handle, "w") as file:
                file.write(baseline.model_dump_json())
            os.replace(name, self._folder / f"{key}.json")


def _key(problem: Problem, environment: Environment, method: TimingMethod) -> str:
    versions = environment.model_dump_json(include={"torch", "triton", "gpu", "driver"})
    return hashlib.sha256((problem.hash + versions + method).encode()).hexdigest()


class _Compiler:
    """The process that compiles and times references."""

    def __init__(self, device: str) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in close)
        self._worker = WorkerProcess(
            "kernelwright.tools.timing.baseline", device, errors=self._errors
        )
        self._trouble = ""
        self._ready = False
        self._problems = 0

    @property
    def usable(self) -> bool:
        """Whether it can be given another problem."""
        return not self._trouble and self._problems < MAX_PROBLEMS_PER_PROCESS

    def get_ready(self) -> None:
        """Waits until the process has imported its libraries."""
        if not self._ready:
            self._ready = True
            self._received(lambda: self._worker.receive(BASELINE_SECONDS))

    def answer(self, request: BaselineRequest) -> BaselineTimes:
        """Returns the process's answer; a note gives the reason if the process died or was killed
        for being late.
        """
        self.get_ready()
        self._problems += 1
        message = request.model_dump_json().encode()
        answer = (
            b""
            if self._trouble
            else self._received(lambda: self._worker.ask(message, BASELINE_SECONDS))
        )
        return (
            BaselineTimes(note=self._trouble)
            if self._trouble
            else BaselineTimes.model_validate_json(answer)
        )

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
        self._errors.seek(0)
        output_lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        return output_lines[-1][:200] if output_lines else ""

    def end(self) -> None:
        """Ends the process with the compiler's own workers. May be called from any thread."""
        self._worker.end()

    def close(self) -> None:
        """Ends the process; no caller may wait for an answer."""
        self._worker.close()
        self._errors.close()


class _Ahead:
    """Processes that compile without timing: nobody holds the GPU meanwhile. Thread-safe."""

    def __init__(self, device: str, processes: int) -> None:
        self._device = device
        self._slots = threading.BoundedSemaphore(processes)
        self._lock = threading.Lock()
        self._idle: list[_Compiler] = []
        self._busy: list[_Compiler] = []
        self._by_problem: dict[str, threading.Lock] = {}
        self._done: set[str] = set()
        self._closed = False

    def compile(self, problem: Problem) -> None:
        """Returns when the problem is compiled, or cannot be; each is tried once."""
        with self._lock:
            turn = self._by_problem.setdefault(problem.hash, threading.Lock())
        with turn:
            if problem.hash in self._done:
                return
            with self._slots, self._borrowed() as compiler:
                compiler.answer(BaselineRequest(problem=problem))
            self._done.add(problem.hash)

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


def _answer(request: BaselineRequest, device: str) -> BaselineTimes:
    if not request.methods:
        from kernelwright.tools.timing.compile_ahead import compile_ahead

        return BaselineTimes(note=compile_ahead(request.problem, device))
    from kernelwright.tools.timing.compiled_reference import CompiledReference

    reference = CompiledReference(request.problem, device)
    return BaselineTimes(baselines=tuple(reference.time(method) for method in request.methods))


def _forget_compiled() -> None:
    """Clears compiled code, which is useless to the next reference."""
    import torch

    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()


def main() -> None:
    """Measures the baselines of each requested problem in a process of its own, and sends them to
    the parent.
    """
    connection, (device,) = connection_to_parent()
    end_with_parent()
    os.dup2(2, 1)
    import torch
    import torch._inductor.compile_fx

    if torch.cuda.is_available():
        torch.cuda.set_device(device)
    connection.send_bytes(READY_MESSAGE)
    while True:
        try:
            request = BaselineRequest.model_validate_json(connection.recv_bytes())
        except EOFError:
            return
        times = _answer(request, device)
        _forget_compiled()
        connection.send_bytes(times.model_dump_json().encode())


if __name__ == "__main__":
    main()
