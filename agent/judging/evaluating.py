"""A pool as a run sees it: an evaluator. A verdict that a judge died over is asked again, and its report says so."""

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
        """At most ATTEMPTS attempts; those that were lost are named in the report's warnings.

        Raises ProblemError and InfrastructureError as the tools do.
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
            return report.with_(warnings=(*report.warnings, *lost)) if lost else report
