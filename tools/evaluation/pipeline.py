"""Judges candidates: `Evaluator.evaluate(problem, source)` returns a `Report`.

The evaluator holds the warm processes; `ladder.py` performs a single verdict.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from kernelwright.closing_context import ClosingContext
from kernelwright.tools.compiling.compiled import OUTPUT_FILE
from kernelwright.tools.compiling.compiler import Compiler
from kernelwright.tools.evaluation.ladder import Ladder
from kernelwright.tools.evaluation.report_parts import (
    failure_of_judge,
)
from kernelwright.tools.evaluation.shape_verdicts import judged_at_every_shape
from kernelwright.tools.evaluation.shared_resources import Progress, SharedResources
from kernelwright.tools.hardware.machine_info import evaluating_environment
from kernelwright.tools.hardware.open_files import raise_open_files_limit
from kernelwright.tools.judging.front import Front, TracesAndCompiles
from kernelwright.tools.judging.judge import Judge
from kernelwright.tools.judging.own_work import Rule
from kernelwright.tools.judging.trials import CompiledTexts, TrialTimes
from kernelwright.tools.judging.turns import Turns
from kernelwright.tools.options import TRACE_TARGET, Lane, Options
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.reference_trials.admission import admit
from kernelwright.tools.report import Environment, InfrastructureError, Report
from kernelwright.tools.sandbox import Limits, ProcessKind, Zygote
from kernelwright.tools.shapes.judged_shapes import judged_shapes
from kernelwright.tools.sizing.at_size import AtSize
from kernelwright.tools.source import candidate_hash
from kernelwright.tools.timing.baseline import Baselines
from kernelwright.tools.verdict_cache import VerdictCache

if TYPE_CHECKING:
    from kernelwright.tools.hardware.gpus import Gpu

log = logging.getLogger(__name__)
RESOURCE_ERRNOS = frozenset({errno.ENOSPC, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EDQUOT})
"""Errors of this machine when it runs out of a resource. A candidate that reaches its own limits
only ends its own processes.
"""
TIME_LIMITS = {"compile_seconds", "seconds", "lease_seconds"}
"""Options without influence on cached verdicts: a verdict ended by a time limit is judged again."""
COMPILE_PROCESSES = max(1, min(8, (os.cpu_count() or 2) // 2))
"""Number of processes which compile the kernels of a candidate."""
WARM_KINDS = {
    ProcessKind.COMPILE: "kernelwright.tools.evaluation.warming:warm",
    ProcessKind.INTERPRET: "kernelwright.tools.replaying.interpreter.process:warm",
    ProcessKind.CUDA: "kernelwright.tools.replaying.gpu.launching:warm",
}  # fmt: skip


def _quiet(_: str) -> None: ...


def new_zygote(kind: ProcessKind, gpu: int | None = None, limits: Limits | None = None) -> Zygote:
    """Makes a zygote as an evaluator has it: `ProcessKind.COMPILE` traces and compiles, the other kinds replay."""
    handed_out = (OUTPUT_FILE,) if kind is ProcessKind.COMPILE else ()
    return Zygote(
        kind,
        gpu=gpu,
        limits=limits,
        private_scratch=True,
        warm=WARM_KINDS[kind],
        handed_out=handed_out,
    )


def _unmetered(_: Lane) -> AbstractContextManager[None]:
    return nullcontext()


def _check_compiler() -> None:
    """Raises ModuleNotFoundError: without Triton every candidate would be told that it could not be judged."""
    for name in ("torch", "triton"):
        if find_spec(name) is None:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


class Evaluator(ClosingContext):
    """Judges candidates in warm processes.

    A context manager; thread-safe: CPU rungs run side by side, a GPU serves one verdict at a
    time.
    """

    def __init__(
        self, device: str = "cpu", workers: int = 2, cache_dir: Path | None = None, limits: Limits | None = None,
        lane: Callable[[Lane], AbstractContextManager[None]] = _unmetered, sharers: int = 1,
        elsewhere: Callable[[str], TracesAndCompiles] | None = None,
    ) -> None:  # fmt: skip
        """Prepares the warm processes of a device.

        device: cpu or cuda:N. cache_dir: folder for verdicts and compiled kernels; None: no
        cache. lane: context manager held while a verdict runs on that lane (CPU or GPU). sharers:
        number of processes with an evaluator on this device. elsewhere: returns the remote front
        end for a target, which occupies no lane; None: this process traces and compiles.

        Raises InfrastructureError if the sandbox cannot start, and ModuleNotFoundError if torch
        or Triton is not installed.
        """
        _check_compiler()
        raise_open_files_limit()
        self.device = device
        self._sharers = sharers
        self._limits = limits
        self._baselines = Baselines(device, cache_dir)
        self._cache = VerdictCache(cache_dir) if cache_dir else None
        self._cache_dir = cache_dir
        self._workers = workers
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="evaluate")
        self._zygotes: dict[ProcessKind, Zygote] = {}
        self._texts = CompiledTexts()
        self._compiler: Compiler | None = None
        self._fronts: dict[str, Front] = {}
        """Fronts by the device that they trace for."""
        self._elsewhere = elsewhere
        self._turns = Turns(lane, self._own_gpu)
        self._gpu_judge: Judge | None = None
        self._judges: list[Judge] = []
        """CPU judges."""
        self._free: list[Judge] = []
        """Judges on a CPU that no verdict has."""
        self._lock = threading.Lock()
        self._environment: Environment | None = None
        self._closed = False
        self._gpu: Gpu | None = None
        try:
            for kind in (
                ProcessKind.COMPILE,
                ProcessKind.INTERPRET,
                *([ProcessKind.CUDA] if self.on_gpu else []),
            ):
                self._zygote(kind)
        except BaseException:  # Ctrl-C between the two
            self.close()
            raise

    @property
    def on_gpu(self) -> bool:
        """Whether this judges on a GPU."""
        return self.device.startswith("cuda")

    @property
    def target(self) -> str:
        """Returns the target of the judging GPU; else (no GPU, or unknown) the default target."""
        from kernelwright.tools.hardware.targets import TARGETS

        self.environment()
        return self._gpu.target if self._gpu and self._gpu.target in TARGETS else TRACE_TARGET

    def _zygote(self, kind: ProcessKind) -> Zygote:
        with self._lock:
            if kind not in self._zygotes:
                gpu = int(self.device.partition(":")[2] or 0) if kind is ProcessKind.CUDA else None
                self._zygotes[kind] = new_zygote(kind, gpu, self._limits)
            return self._zygotes[kind]

    def front(self) -> Front:
        """Returns the front end which traces and compiles for this device.

        Its compiler is shared: a kernel compiled for a candidate is cached for all.
        """
        return self._front_for(self.device)

    def _front_for(self, device: str) -> Front:
        target, zygote = self.target, self._zygote(ProcessKind.COMPILE)
        with self._lock:
            if device not in self._fronts:
                if self._compiler is None:
                    folder = self._cache_dir / "compiled" if self._cache_dir else None
                    self._compiler = Compiler(zygote, folder=folder, processes=COMPILE_PROCESSES)
                self._fronts[device] = Front(zygote, self._compiler, device, target)
            return self._fronts[device]

    @contextmanager
    def _judge(self, problem: Problem) -> Iterator[Judge]:
        """Lends the GPU's only judge; on a CPU a judge for this verdict alone."""
        if not self.on_gpu:
            with self._interpreting_judge(problem) as judge:
                yield judge
            return
        with self._lock:
            if self._gpu_judge is None:
                self._gpu_judge = Judge(
                    self.device, self._zygotes[ProcessKind.CUDA], gpu=self._gpu, sharers=self._sharers,
                    give_way=self._turns.give_way,
                )  # fmt: skip
                self._turns.give_memory_by(self._gpu_judge.give_memory, self._sharers)
        yield self._gpu_judge

    @contextmanager
    def _interpreting_judge(self, problem: Problem) -> Iterator[Judge]:
        """Lends a CPU judge for this verdict alone, preferably one that knows the problem."""
        zygote = self._zygote(ProcessKind.INTERPRET)
        with self._lock:
            slot = next(
                (i for i, j in enumerate(self._free) if problem.hash in j.problems),
                len(self._free) - 1,
            )
            judge = (
                self._free.pop(slot)
                if self._free
                else Judge("cpu", zygote, sharers=self._sharers * self._workers)
            )
            if judge not in self._judges:
                self._judges.append(judge)
            judge.problems.add(problem.hash)
        try:
            yield judge
        finally:
            with self._lock:
                self._free.append(judge)

    # -------------------------------------------------------------- verdicts
    def submit(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Progress = _quiet,
    ) -> Future[Report]:
        """Runs `evaluate` in the pool: CPU rungs of a candidate run while the GPU serves another."""
        return self._pool.submit(self.evaluate, problem, source, options, progress)

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Judges a candidate; returns the complete report.

        A problem that names shapes gets a verdict at each of them.

        Raises: ProblemError if the reference itself cannot be used; InfrastructureError for
        trouble of the machine. A broken
        candidate is a value.
        """
        judge_options, say, start = options or Options(), progress or _quiet, time.monotonic()
        if shapes := judged_shapes(problem):
            judge = partial(self._evaluate_at_shape, judge_options)
            return judged_at_every_shape(problem, source, shapes, judge, say)
        if self.on_gpu and judge_options.torch_compile:
            self._baselines.start()
        self._turns.begin()
        rule = Rule.parse(judge_options.own_work)
        source_digest, key = candidate_hash(source), ""
        if self._cache:
            rules = judge_options.model_dump_json(exclude=TIME_LIMITS)
            key = self._cache.key(source_digest, problem.hash, self.environment(), rules)
            if cached_report := self._cache.find(key):
                return cached_report
        report = Report(
            problem=problem.name, problem_hash=problem.hash, candidate_hash=source_digest
        )
        try:
            report = Ladder(
                self._shared_resources(), problem, source, judge_options, rule, say
            ).climb(report)
        except (ProblemError, InfrastructureError):
            raise
        except Exception as error:  # an exception inside the judge is a verdict on this candidate, and ends no batch
            if self._closed or getattr(error, "errno", None) in RESOURCE_ERRNOS:
                raise InfrastructureError(
                    f"the verdict was not made: {type(error).__name__}: {error}"
                ) from error
            log.exception("the judge failed on a candidate of %s", problem.name)
            report = report.with_(
                failure=failure_of_judge(error), environment=self.environment(), correct=False
            )
        self._zygote(ProcessKind.COMPILE).settle()
        report = report.with_(seconds=time.monotonic() - start - self._turns.waited)
        if self._cache:
            self._cache.keep(key, report)
        return report

    def _evaluate_at_shape(
        self, options: Options, problem: Problem, source: str, progress: Progress
    ) -> Report:
        return self.evaluate(problem, source, options, progress)

    async def evaluate_async(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Progress = _quiet,
    ) -> Report:
        """The same as `submit`, for asyncio: the event loop goes on while the verdict is made.

        A cancelled task gives up its place in the queue; a verdict that has begun is made to its
        end, unseen.
        """
        return await asyncio.wrap_future(self.submit(problem, source, options, progress))

    # -------------------------------------------------------------- beside verdicts
    def trial(
        self, problem: Problem, source: str, calls: int, options: Options | None = None
    ) -> TrialTimes:
        """Times a few calls at the problem's own size on the GPU, without a verdict.

        Raises as `evaluate`.
        """
        judge_options, front = options or Options(), self.front()
        problem = admit(problem, train_mode=judge_options.train_mode).problem
        text = self._texts.get(front, problem, source, self.target, judge_options)
        if text.failure:
            return TrialTimes(failure=text.failure)
        lane = self._turns.at(Lane.GPU, judge_options.lease_seconds, _quiet)
        with self._judge(problem) as judge, lane:
            base = AtSize(index=0, problem=problem)
            return judge.trial(text.candidate, base, judge_options.seed or 0, text.binaries, calls)

    # -------------------------------------------------------------- surroundings
    def _shared_resources(self) -> SharedResources:
        return SharedResources(
            device=self.device, environment=self.environment(), turns=self._turns, baselines=self._baselines,
            judge_for=self._judge, interpreter_for=self._interpreting_judge, front=self.front,
            interpreter_front=partial(self._front_for, "cpu"),
            elsewhere=self._elsewhere and self._elsewhere(self.target),
        )  # fmt: skip

    def alone_on_the_gpu(
        self, seconds: float = 600.0, say: Progress | None = None
    ) -> AbstractContextManager[None]:
        """Keeps this process from judging, and others from measuring, on the GPU meanwhile.

        Raises InfrastructureError after so many seconds.
        """
        return self._turns.on_the_gpu(seconds, say or _quiet)

    def _own_gpu(self) -> Gpu | None:
        self.environment()
        return self._gpu

    def environment(self) -> Environment:
        """Returns the versions and the device which affect verdicts. Read once."""
        if self._environment is None:
            self._environment, self._gpu = evaluating_environment(self.device)
        return self._environment

    def close(self) -> None:
        """Ends every process. Verdicts that are under way raise InfrastructureError."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._baselines.close()
        self._turns.close()
        for judge in (*self._judges, *([self._gpu_judge] if self._gpu_judge else [])):
            judge.close()
        for zygote in self._zygotes.values():
            zygote.close()

    async def __aenter__(self) -> Evaluator:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)
