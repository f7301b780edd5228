"""Drafts by a transformation (policies/transformations), in a process of their own: the compiler's has functions of
torch replaced that the patterns look for."""

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
    """Holds the warm process; it begins with the first problem that may be transformed. Thread-safe."""

    def __init__(
        self, say: Callable[[str], None] = lambda _: None, seconds: float = TRANSFORMATION_SECONDS
    ) -> None:
        """seconds: for each draft, and never more than TRANSFORMATION_SECONDS."""
        self._say, self._process = say, DraftProcess(TRANSFORMATION_WARM_UP)
        self._seconds = min(seconds, TRANSFORMATION_SECONDS)

    def draft(self, problem: Problem) -> Draft | None:
        """A draft with one kernel in place of a pattern; None where no pattern fits."""
        if not may_transform(problem.source):
            return None
        self._say("looking for a pattern")
        try:
            made = transform(problem.source, self._process.run, self._seconds)
        except InfrastructureError:
            return None
        if not made.usable:
            return None
        self._say(f"drafted as {made.transformation}")
        return Draft(
            source=made.source,
            kernels=1,
            transformation=made.transformation,
            algebra=made.algebra,
            seconds=made.seconds,
        )

    def close(self) -> None:
        """Ends the process; the next draft begins another."""
        self._process.close()
