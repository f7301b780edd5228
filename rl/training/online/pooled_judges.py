"""Judges of a remote pool, such as a Ray cluster, for a training: equal programs are judged once."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Protocol

from kernelwright.agent.judging.evaluating import PoolEvaluator
from kernelwright.agent.judging.pool import DeviceKind, JudgePool
from kernelwright.closing_context import ClosingContext
from kernelwright.rl.training.online.judges import MAX_KEPT_VERDICTS, JudgingTotals
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report
from kernelwright.tools.source import candidate_hash
from kernelwright.tools.verdict_cache import UNCACHED_FAULTS

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Options


class Judges(Protocol):
    """The judges of a training: judges.TrainingJudges on this machine, PooledJudges elsewhere."""

    @property
    def workers(self) -> int:
        """Number of concurrent verdicts."""
        ...

    @property
    def figures(self) -> JudgingTotals:
        """Returns the totals of all verdicts so far."""

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """Returns the verdict on a candidate's text; `progress` is called at each stage. Raises
        InfrastructureError.
        """


class PooledJudges(ClosingContext):
    """Implements Judges on a pool. A verdict is retried after the death of its judge, and its
    report says so. A context manager.
    """

    def __init__(self, pool: JudgePool, device: DeviceKind) -> None:
        """Takes ownership of the pool: `close` closes it."""
        self._pool, self._device = pool, device
        self._evaluator = PoolEvaluator(pool, device)
        self._lock = threading.Lock()
        self._verdicts: OrderedDict[tuple[str, str, str], Future[Report]] = OrderedDict()
        self._requests = self._judged = 0
        self._seconds = 0.0

    @property
    def workers(self) -> int:
        """Number of concurrent verdicts of the pool on this device, at least one."""
        return max(1, self._pool.capacity(self._device))

    @property
    def figures(self) -> JudgingTotals:
        """Returns the totals of all verdicts so far."""
        with self._lock:
            return JudgingTotals(
                requested=self._requests, judged=self._judged, seconds=self._seconds
            )

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """Returns the report on a candidate. Raises ProblemError and InfrastructureError as the
        tools do.
        """
        key = (
            problem.hash,
            candidate_hash(source),
            "" if options is None else options.model_dump_json(),
        )
        with self._lock:
            self._requests += 1
            waiting = self._verdicts.get(key)
            if waiting is None:
                future = self._verdicts[key] = Future()
                while len(self._verdicts) > MAX_KEPT_VERDICTS:
                    self._verdicts.popitem(last=False)
        # Another thread judges the same program: wait for its report.
        if waiting is not None:
            return waiting.result().with_(problem=problem.name, cached=True)
        return self._judge_once(key, future, problem, source, options, progress)

    def _judge_once(
        self, key: tuple[str, str, str], future: Future[Report], problem: Problem, source: str, options: Options | None,
        progress: Callable[[str], None] | None,
    ) -> Report:  # fmt: skip
        began = time.monotonic()
        try:
            report = self._evaluator.evaluate(problem, source, options, progress)
        except BaseException as error:
            self._forget(key)
            future.set_exception(error)
            raise
        with self._lock:
            self._judged += 1
            self._seconds += time.monotonic() - began
        # A loaded machine may have caused such a fault.
        if report.failure is not None and report.failure.fault in UNCACHED_FAULTS:
            self._forget(key)
        future.set_result(report)
        return report

    def _forget(self, key: tuple[str, str, str]) -> None:
        with self._lock:
            self._verdicts.pop(key, None)

    def close(self) -> None:
        """Closes the pool; waiting verdicts are cancelled."""
        self._pool.close()
