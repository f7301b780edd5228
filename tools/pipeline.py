"""evaluate(problem, source) -> Report: the cheapest rung first, and no further than the first failure."""

from __future__ import annotations

import platform
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.baseline import Baseline, Baselines
from tools.descriptors import allow_many
from tools.handover import copy_new
from tools.judge import Judge, Judged, Rules
from tools.lease import gpu_lease
from tools.ownwork import Rule
from tools.physics import work_of
from tools.problem import Problem, check_form
from tools.results import CompileResult, Environment, InfrastructureError, Report, Rung, Value
from tools.sandbox import Kind, Limits, Zygote
from tools.source import advice, candidate_hash, read_source
from tools.verdict_cache import VerdictCache, evaluator_version

if TYPE_CHECKING:
    from tools.bare.compile import Bare

Progress = Callable[[str], None]


def _quiet(_: str) -> None: ...


class Lane(StrEnum):
    """Where a verdict is at work. Waiting for the GPU is neither."""

    CPU = "cpu"
    GPU = "gpu"


def _unmetered(_: Lane) -> AbstractContextManager[None]:
    return nullcontext()


class Options(Value):
    """What is asked of a verdict."""

    targets: tuple[str, ...] = ("sm_90",)
    """The first decides; the others make the portability matrix. None: nothing is compiled ahead (rollouts that the interpreter or the GPU judges)."""
    own_work: str = "strict"
    profile: bool = True
    torch_compile: bool = True
    ncu: bool = False
    sanitizer: bool = False
    hidden_shapes: bool = True
    interpret: bool | None = None
    """The interpreted rung; None: where there is no GPU."""
    compile_seconds: float = 60.0
    seconds: float = 120.0
    """For the conversation with one candidate at one rung."""
    lease_seconds: float = 600.0


class Evaluator:
    """Holds the warm processes. A context manager; thread-safe: CPU rungs run side by side, a GPU serves one at a time."""

    def __init__(
        self, device: str = "cpu", workers: int = 2, cache_dir: Path | None = None, limits: Limits | None = None,
        lane: Callable[[Lane], AbstractContextManager[None]] = _unmetered, sharers: int = 1,
    ) -> None:  # fmt: skip
        """device: cpu or cuda:N. cache_dir: where verdicts are kept; None keeps none. lane: entered for the time that a verdict works there. sharers: processes with an evaluator on this GPU.

        Raises InfrastructureError where the sandbox cannot start.
        """
        allow_many()
        self.device = device
        self._lane, self._sharers = lane, sharers
        self._limits = limits
        self._baselines = Baselines(device, cache_dir)
        self._cache = VerdictCache(cache_dir) if cache_dir else None
        self._ahead = ThreadPoolExecutor(workers, thread_name_prefix="compile-ahead")
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="evaluate")
        self._zygotes: dict[Kind, Zygote] = {}
        self._here = threading.local()
        self._all_judges: list[Judge] = []
        self._lock, self._gpu_lock = threading.Lock(), threading.Lock()
        self._gpu_judge: Judge | None = None
        self._environment: Environment | None = None
        self._gpu = ""
        """Its UUID, whatever this process calls it."""
        try:
            self._zygote(Kind.COMPILE)
            self._zygote(Kind.CUDA if self._on_gpu else Kind.INTERPRET)
        except BaseException:  # Ctrl-C between the two
            self.close()
            raise

    @property
    def _on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    def _zygote(self, kind: Kind) -> Zygote:
        with self._lock:
            if kind not in self._zygotes:
                gpu = int(self.device.partition(":")[2] or 0) if kind is Kind.CUDA else None
                self._zygotes[kind] = Zygote(kind, gpu=gpu, limits=self._limits)
            return self._zygotes[kind]

    def _cpu_judge(self) -> Judge:
        """One a thread: a judge holds a conversation at a time. The zygote is common."""
        if not hasattr(self._here, "judge"):
            self._here.judge = Judge("cpu", zygote=self._zygote(Kind.INTERPRET))
            self._all_judges.append(self._here.judge)
        return self._here.judge

    # -------------------------------------------------------------- the ladder
    def submit(
        self, problem: Problem, source: str, options: Options | None = None, progress: Progress = _quiet
    ) -> Future[Report]:
        """The same as `evaluate`, in the pool: CPU rungs of one candidate run while the GPU serves another."""
        return self._pool.submit(self.evaluate, problem, source, options, progress)

    def evaluate(
        self, problem: Problem, source: str, options: Options | None = None, progress: Progress | None = None
    ) -> Report:
        """Everything that can be found out about one candidate.

        Raises: ProblemError where the reference itself cannot be used; InfrastructureError for trouble of ours. A broken candidate is a value.
        """
        asked, say, start = options or Options(), progress or _quiet, time.monotonic()
        self._here.waited = 0.0
        rule = Rule.parse(asked.own_work)
        own, key = candidate_hash(source), ""
        if self._cache:
            key = self._cache.key(own, problem.hash, self.environment(), asked.model_dump_json())
            if known := self._cache.find(key):
                return known
        report = Report(
            problem=problem.name, problem_hash=problem.hash, candidate_hash=own, advice=advice(source)
        )  # fmt: skip
        if failure := read_source(source):
            return report.with_(failure=failure, environment=self.environment(), seconds=time.monotonic() - start)
        check_form(problem.source)
        report = report.with_(environment=self.environment(), degenerate=_degenerate(problem))
        report = self._climb(report, problem, source, asked, rule, say)
        report = report.with_(seconds=time.monotonic() - start - self._here.waited)
        if self._cache:
            self._cache.keep(key, report)
        return report

    def _climb(
        self, report: Report, problem: Problem, source: str, asked: Options, rule: Rule, say: Progress
    ) -> Report:
        say(f"compiling for {', '.join(asked.targets)}")
        inside = self._zygote(Kind.COMPILE).folder  # until the GPU rung has used what the compile rung made
        with tempfile.TemporaryDirectory("", "compiled-", inside, ignore_cleanup_errors=True) as folder:
            cache = Path(folder)
            with self._at(Lane.CPU, asked, say):
                compiles = self._compile(problem, source, asked, cache) if asked.targets else ()
            report = report.with_(
                rung=Rung.COMPILE, compiles=compiles, warnings=report.warnings + _compile_warnings(compiles)
            )
            if compiles and (failure := compiles[0].failure):
                return report.with_(failure=failure)
            if asked.interpret or (asked.interpret is None and not self._on_gpu):
                with self._at(Lane.CPU, asked, say):
                    report = self._interpreted(report, problem, source, asked, rule, say)
            if report.failure is None and self._on_gpu:
                report = self._on_the_gpu(report, problem, source, asked, rule, say, cache)
        return report

    def _compile(self, problem: Problem, source: str, asked: Options, cache: Path) -> tuple[CompileResult, ...]:
        from tools.compile import compile_candidate
        from tools.spec import input_spec

        return compile_candidate(
            self._zygote(Kind.COMPILE),
            input_spec(problem),
            source,
            asked.targets,
            seconds=asked.compile_seconds,
            cache_dir=cache,
        )

    def compile_bare(self, source: str, targets: Sequence[str], seconds: float = 60.0) -> Bare:
        """Of kernels that nobody launches. Raises InfrastructureError."""
        from tools.bare.compile import compile_bare

        return compile_bare(self._zygote(Kind.COMPILE), source, targets, seconds=seconds)

    def _interpreted(
        self, report: Report, problem: Problem, source: str, asked: Options, rule: Rule, say: Progress
    ) -> Report:
        from tools.shrink import hidden_sizes, shrink

        small = shrink(problem)
        if not small.fits:
            return report.with_(warnings=(*report.warnings, f"not interpreted: {small.note}"))
        hidden = tuple(hidden_sizes(problem, small.sizes))[:2] if asked.hidden_shapes else ()
        rules = Rules(own_work=rule, hidden=_over(small.sizes, hidden), seconds=asked.seconds)
        say("interpreting at small sizes")
        judged = self._cpu_judge().judge(problem.with_sizes(small.sizes), source, rules, progress=say)
        note = (small.note,) if small.note else ()
        result = judged.correctness.with_(sizes=small.sizes, notes=judged.correctness.notes + note)
        return _with_verdict(report, judged, Rung.INTERPRETED, interpreted=result)

    def _on_the_gpu(
        self, report: Report, problem: Problem, source: str, asked: Options, rule: Rule, say: Progress, cache: Path
    ) -> Report:
        from tools.shrink import hidden_on_gpu

        hidden = hidden_on_gpu(problem) if asked.hidden_shapes else ()
        ahead = self._compile_ahead(problem, source, asked, hidden, cache)
        if asked.profile:
            self._ahead.submit(work_of, problem)
        rules = Rules(own_work=rule, hidden=hidden, seconds=asked.seconds, profile=asked.profile, before_hidden=ahead)
        with self._at(Lane.GPU, asked, say):
            if self._gpu_judge is None:
                self._gpu_judge = Judge(self.device, zygote=self._zygote(Kind.CUDA), sharers=self._sharers)
            say("judging on the GPU")
            judged = self._gpu_judge.judge(problem, source, rules, warm_cache=cache, progress=say)
        report = _with_verdict(report, judged, Rung.CORRECTNESS, correctness=judged.correctness)
        if judged.profile is not None:
            report = report.with_(rung=Rung.PROFILE, profile=judged.profile)
        if report.correct and asked.profile:
            report = self._extras(report, problem, source, asked, say)
        return report

    def _compile_ahead(
        self, problem: Problem, source: str, asked: Options, hidden: tuple[dict[str, int], ...], cache: Path
    ) -> Callable[[Path], None]:
        """Compiles for the other sizes while the GPU is busy with the problem's own. Gives what waits for it and copies it over."""
        from tools.compile import compile_candidate
        from tools.spec import input_spec

        folder = cache / "hidden"
        todo = [
            self._ahead.submit(compile_candidate, self._zygote(Kind.COMPILE), input_spec(problem, sizes), source, asked.targets[:1], seconds=asked.compile_seconds, cache_dir=folder)
            for sizes in hidden
        ]  # fmt: skip

        def put(target: Path) -> None:
            wait(todo)
            copy_new(folder, target)

        return put

    def _extras(self, report: Report, problem: Problem, source: str, asked: Options, say: Progress) -> Report:
        """torch.compile's time, counters and the sanitizer: bounded, never fatal."""
        from tools.extras import add_extras
        from tools.shrink import is_small

        if not (asked.torch_compile or asked.ncu or asked.sanitizer):
            return report
        with ExitStack() as held:
            time_compiled: Callable[[], Baseline] = Baseline
            if asked.torch_compile:
                say("torch.compile compiles the reference")
                with self._at(Lane.CPU, asked, say):
                    time_compiled = held.enter_context(
                        self._baselines.compiled(problem, report.environment, is_small(problem))
                    )
            with self._at(Lane.GPU, asked, say):
                return add_extras(report, problem, source, asked, self.device, time_compiled, say)

    # -------------------------------------------------------------- surroundings
    @contextmanager
    def _at(self, lane: Lane, asked: Options, say: Progress) -> Iterator[None]:
        """In the lane, alone on the GPU where it is that one. Waiting for either is no part of what a verdict took."""
        begun = time.monotonic()
        with self.alone_on_the_gpu(asked.lease_seconds, say) if lane is Lane.GPU else nullcontext(), self._lane(lane):
            self._here.waited += time.monotonic() - begun
            yield

    @contextmanager
    def alone_on_the_gpu(self, seconds: float = 600.0, say: Progress | None = None) -> Iterator[None]:
        """Nobody of this process is judged on the GPU meanwhile, and no other process measures there. Raises InfrastructureError after so many seconds."""
        self.environment()
        with self._gpu_lock, gpu_lease(self._gpu, seconds, say or _quiet):
            yield

    def environment(self) -> Environment:
        """What verdicts are made with. Read once."""
        if self._environment is None:
            from tools.machine_info import version

            base = Environment(
                evaluator=evaluator_version(), python=platform.python_version(), torch=version("torch") or "", triton=version("triton") or "", host=platform.node(), fp_fusion="1",
            )  # fmt: skip
            self._environment = base.with_(**self._gpu_facts()) if self._on_gpu else base
        return self._environment

    def _gpu_facts(self) -> dict[str, Any]:
        from tools.gpus import read_driver

        driver = read_driver()
        index = int(self.device.partition(":")[2] or 0)
        gpu = next((g for g in driver.gpus if g.index == index), None)
        if gpu is None:
            raise InfrastructureError(f"{self.device} is not there: use --device cpu, or run `agent doctor`")
        self._gpu = gpu.uuid
        return {"gpu": gpu.name, "driver": driver.version or ""}

    def close(self) -> None:
        for pool in (self._pool, self._ahead):
            pool.shutdown(wait=False, cancel_futures=True)
        for judge in [*self._all_judges, *([self._gpu_judge] if self._gpu_judge else [])]:
            judge.close()
        for zygote in self._zygotes.values():
            zygote.close()

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _over(base: dict[str, int], hidden: tuple[dict[str, int], ...]) -> tuple[dict[str, int], ...]:
    return tuple({**base, **sizes} for sizes in hidden)


def _with_verdict(report: Report, judged: Judged, rung: Rung, **stage: Any) -> Report:
    """The report with one correctness rung put on."""
    result = judged.correctness
    failure = result.failure or (judged.profile.failure if judged.profile else None)
    return report.with_(
        rung=rung, failure=report.failure or failure, correct=failure is None, correct_kb=result.correct_kb, judged_on=result.device, own_work=result.own_work, isolation=judged.isolation, output=judged.output,
        warnings=report.warnings + _isolation_warnings(judged), **stage,
    )  # fmt: skip


def _isolation_warnings(judged: Judged) -> tuple[str, ...]:
    missing = judged.isolation.missing if judged.isolation else ()
    return (f"isolation layers missing: {'; '.join(missing)}",) if missing else ()


def _compile_warnings(compiles: tuple[CompileResult, ...]) -> tuple[str, ...]:
    return tuple(f"{c.target}: {c.failure.message}" for c in compiles[1:] if c.failure)


def _degenerate(problem: Problem) -> tuple[str, ...]:
    from tools.manifest import load

    manifest = load(problem)
    return tuple(manifest.degenerate) if manifest else ()
