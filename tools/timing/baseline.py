"""torch.compile's time for a reference, beside eager's, in a process of its own: the compiler's workers and caches stay
out of the judge.

    python -m kernelwright.tools.timing.baseline DESCRIPTOR DEVICE

The process is a `kernelwright.worker_process.WorkerProcess`: it reads the problem as JSON, says COMPILED_MESSAGE,
waits for another message, and answers with a Baseline as JSON.

Compiling takes seconds in which the GPU could serve somebody else; only the timing needs it alone. Kept by problem, GPU
and versions.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

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
"""For compiling, and again for timing."""
TIMED_CALLS = 50
COMPILED_MESSAGE = b"compiled"
MOST_AT_ONCE = 4
"""Each holds a CUDA context, the weights and the inputs."""


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
    """Of one device.

    Thread-safe: a few references are compiled side by side, each problem once, and nobody needs the GPU for himself
    meanwhile.
    """

    def __init__(self, device: str, cache_dir: Path | None = None) -> None:
        """cache_dir: where they are kept for another day; None keeps them as long as this object lives."""
        self._device, self._folder = device, cache_dir / "baselines" if cache_dir else None
        self._known: dict[str, Baseline] = {}
        self._one_each: dict[str, threading.Lock] = {}
        self._places = threading.BoundedSemaphore(max(1, min(MOST_AT_ONCE, (os.cpu_count() or 1) // 4)))

    @contextmanager
    def compiled(
        self, problem: Problem, environment: Environment, ahead: bool = True
    ) -> Iterator[Callable[[], Baseline]]:
        """Compiles the reference, and gives what is to be called where nobody else is on the GPU: it times.

        Never raises: what does not work is in `note`.

        ahead: what is compiled ahead holds its inputs and weights on the GPU until it is timed; without it both are
        done at the call.
        """
        versions = environment.model_dump_json(include={"torch", "triton", "gpu", "driver"})
        key = hashlib.sha256((problem.hash + versions).encode()).hexdigest()
        with self._one_each.setdefault(key, threading.Lock()):
            if known := self._find(key):
                yield lambda: known
                return
            if not ahead:
                yield lambda: self._keep(key, self._compiled_and_timed(problem))
                return
            with self._places, _Compiler(problem, self._device) as compiler:
                yield lambda: self._keep(key, compiler.timed())

    def _compiled_and_timed(self, problem: Problem) -> Baseline:
        with _Compiler(problem, self._device) as compiler:
            return compiler.timed()

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


class _Compiler:
    """The process. It says COMPILED_MESSAGE, waits for a message, times and answers."""

    def __init__(self, problem: Problem, device: str) -> None:
        self._problem, self._device = problem, device
        self._trouble = ""

    def __enter__(self) -> _Compiler:
        self._said = tempfile.TemporaryFile()
        self._worker = WorkerProcess("kernelwright.tools.timing.baseline", self._device, errors=self._said)
        self._ask(self._problem.model_dump_json().encode())
        return self

    def timed(self) -> Baseline:
        answer = b"" if self._trouble else self._ask(b"time")
        return Baseline(note=self._trouble) if self._trouble else Baseline.model_validate_json(answer)

    def _ask(self, message: bytes) -> bytes:
        """What it says; where it has ended, or is ended for being late, `_trouble` says why."""
        try:
            return self._worker.ask(message, BASELINE_SECONDS)
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

    def __exit__(self, *_: object) -> None:
        """With the compiler's own workers."""
        self._worker.close()
        self._said.close()


def measure(problem: Problem, device: str, ready: Callable[[], None]) -> Baseline:
    """Both on the same inputs, call by call in turns, the L2 cache written over before each.

    ready: called before anything runs that takes the GPU's time, as soon as the first graph is compiled.
    """
    import torch

    from kernelwright.tools.references.reference import Reference
    from kernelwright.tools.timing.measurement import timing

    torch.cuda.set_device(device)
    reference = Reference(problem, device)
    model, inputs = reference.model(0), reference.inputs(0)
    compiled = torch.compile(model, backend=_compiling(ready))
    flush = torch.empty(1 << 26, dtype=torch.int32, device=device)
    times: dict[str, list[float]] = {"eager": [], "compiled": []}
    with torch.no_grad():
        compiled(*inputs)
        ready()
        for _ in range(3):
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
    return Baseline(compiled=timing(times["compiled"]), eager=timing(times["eager"]))


def _compiling(ready: Callable[[], None]) -> Callable[..., Any]:
    """torch.compile's own backend, which says when a graph is compiled, before it runs."""
    from torch._inductor.compile_fx import compile_fx

    def compile_graph(graph: Any, inputs: Any) -> Any:
        compiled = compile_fx(graph, inputs)
        ready()
        return compiled

    return compile_graph


class _Gate:
    """Says COMPILED_MESSAGE the first time it is called, and waits for a message."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._open = connection, False

    def __call__(self) -> None:
        if not self._open:
            self._open = True
            self._connection.send_bytes(COMPILED_MESSAGE)
            self._connection.recv_bytes()


def main() -> None:
    """Measures the baselines of one problem in a process of its own, and sends them to the parent."""
    connection, (device,) = connection_to_parent()
    end_with_parent()
    os.dup2(2, 1)
    problem = Problem.model_validate_json(connection.recv_bytes())
    connection.send_bytes(measure(problem, device, _Gate(connection)).model_dump_json().encode())


if __name__ == "__main__":
    main()
