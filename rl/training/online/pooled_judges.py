"""Judges of a pool that lives elsewhere, as on a Ray cluster, for a training: equal programs are judged once."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from kernelwright.agent.judging.evaluating import PoolEvaluator
from kernelwright.agent.judging.pool import DeviceKind, JudgePool
from kernelwright.rl.training.online.judges import MAX_KEPT_VERDICTS, JudgingTotals
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report
from kernelwright.tools.source import candidate_hash
from kernelwright.tools.verdict_cache import UNCACHED_FAULTS

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Options


class Judges(Protocol):
    """The judges that a training uses: judges.TrainingJudges on this machine, PooledJudges elsewhere."""

    @property
    def workers(self) -> int:
        """Verdicts at the same time."""
        ...

    @property
    def figures(self) -> JudgingTotals:
        """The totals so far."""

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """The verdict on a candidate's text; `progress` is told each stage. Raises InfrastructureError."""


class PooledJudges:
    """Implements Judges. A verdict that a judge died over is asked again, and its report says so. A context manager."""

    def __init__(self, pool: JudgePool, device: DeviceKind) -> None:
        """Closes the pool with itself."""
        self._pool, self._device = pool, device
        self._evaluator = PoolEvaluator(pool, device)
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, str, str], Future[Report]] = OrderedDict()
        self._asked = self._judged = 0
        self._seconds = 0.0

    @property
    def workers(self) -> int:
        """Verdicts that the pool makes at once on this device, at least one."""
        return max(1, self._pool.capacity(self._device))

    @property
    def figures(self) -> JudgingTotals:
        """The totals so far."""
        with self._lock:
            return JudgingTotals(asked=self._asked, judged=self._judged, seconds=self._seconds)

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """Raises ProblemError and InfrastructureError as the tools do."""
        key = (
            problem.hash,
            candidate_hash(source),
            "" if options is None else options.model_dump_json(),
        )
        with self._lock:
            self._asked += 1
            waiting = self._known.get(key)
            if waiting is None:
                own = self._known[key] = Future()
                while len(self._known) > MAX_KEPT_VERDICTS:
                    self._known.popitem(last=False)
        if waiting is not None:
            return waiting.result().with_(problem=problem.name, cached=True)
        return self._made(key, own, problem, source, options, progress)

    def _made(
        self, key: tuple[str, str, str], own: Future[Report], problem: Problem, source: str, options: Options | None,
        progress: Callable[[str], None] | None,
    ) -> Report:  # fmt: skip
        began = time.monotonic()
        try:
            report = self._evaluator.evaluate(problem, source, options, progress)
        except BaseException as error:
            self._forget(key)
            own.set_exception(error)
            raise
        with self._lock:
            self._judged += 1
            self._seconds += time.monotonic() - began
        if (
            report.failure is not None and report.failure.fault in UNCACHED_FAULTS
        ):  # a loaded machine may have caused it
            self._forget(key)
        own.set_result(report)
        return report

    def _forget(self, key: tuple[str, str, str]) -> None:
        with self._lock:
            self._known.pop(key, None)

    def close(self) -> None:
        """Closes the pool underneath; verdicts that wait are cancelled."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
