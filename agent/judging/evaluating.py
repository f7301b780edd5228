"""Adapts a judge pool to the evaluator interface of a run, and repeats verdicts whose judge died."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kernelwright.agent.judging.pool import (
    MAX_VERDICT_ATTEMPTS,
    DeviceKind,
    JudgeLost,
    JudgePool,
    ignore,
)
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report

if TYPE_CHECKING:
    from kernelwright.tools.evaluation.pipeline import Options

log = logging.getLogger(__name__)


class PoolEvaluator:
    """Implements agent.loop.run_verdicts.Evaluates."""

    def __init__(self, pool: JudgePool, device: DeviceKind | None = None) -> None:
        self._pool, self._device = pool, device

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """Returns the verdict of the pool, after at most MAX_VERDICT_ATTEMPTS attempts.

        Each lost attempt is named in the report's warnings. Raises ProblemError,
        InfrastructureError, and JudgeLost after the last attempt.
        """
        lost: list[str] = []
        while True:
            future = self._pool.submit(problem, source, options, progress or ignore, self._device)
            try:
                report = future.result()
            except JudgeLost as error:
                lost.append(f"attempt {len(lost) + 1} was lost: {error}")
                log.warning("%s: %s", problem.name, lost[-1])
                if len(lost) >= MAX_VERDICT_ATTEMPTS:
                    raise
                continue
            # A pool repeats nothing by itself, so the record of lost attempts is made here.
            return report.with_(warnings=(*report.warnings, *lost)) if lost else report
