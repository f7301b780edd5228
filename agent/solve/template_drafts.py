"""Drafts by a transformation (policies/transformations), in a separate process: the compiler's
process replaces functions of torch for which the patterns look.
"""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.agent.solve.draft_process import DraftProcess
from kernelwright.policies.inductor.draft import Draft
from kernelwright.policies.transformations.draft import (
    TRANSFORMATION_SECONDS,
    TRANSFORMATION_WARM_UP,
    may_transform,
    transform,
)
from kernelwright.tools.faults import InfrastructureError
from kernelwright.tools.problem import Problem


class TemplateDrafter:
    """Holds the warm process, started with the first problem fit for a transformation. Thread-safe."""

    def __init__(
        self, say: Callable[[str], None] = lambda _: None, seconds: float = TRANSFORMATION_SECONDS
    ) -> None:
        """seconds: time limit of a draft, at most TRANSFORMATION_SECONDS."""
        self._say, self._process = say, DraftProcess(TRANSFORMATION_WARM_UP)
        self._seconds = min(seconds, TRANSFORMATION_SECONDS)

    def draft(self, problem: Problem) -> Draft | None:
        """Returns a draft with one kernel for a whole pattern; None if no pattern fits."""
        if not may_transform(problem.source):
            return None
        self._say("looking for a pattern")
        try:
            transformed = transform(problem.source, self._process.run, self._seconds)
        except InfrastructureError:
            return None
        if not transformed.usable:
            return None
        self._say(f"drafted as {transformed.transformation}")
        return Draft(
            source=transformed.source,
            kernels=1,
            transformation=transformed.transformation,
            algebra=transformed.algebra,
            seconds=transformed.seconds,
        )

    def close(self) -> None:
        """Ends the process; the next draft starts another."""
        self._process.close()
