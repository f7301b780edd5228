"""Drafts by a transformation (policies/transformations), in a process of their own: the compiler's has functions of
torch replaced that the patterns look for."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.draft import Draft
from kernelwright.policies.transformations.draft import WARM, may_transform, transform
from kernelwright.tools.faults import InfrastructureError
from kernelwright.tools.problem import Problem

if TYPE_CHECKING:
    from kernelwright.tools.sandbox import Zygote


class TemplateDrafter:
    """Holds the warm process; it begins with the first problem that may be transformed. Thread-safe."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        self._say, self._lock = say, Lock()
        self._zygote: Zygote | None = None

    def draft(self, problem: Problem) -> Draft | None:
        """A draft with one kernel in place of a pattern; None where no pattern fits."""
        if not may_transform(problem.source):
            return None
        self._say("looking for a pattern")
        try:
            made = transform(problem.source, self._run)
        except InfrastructureError:
            return None
        if not made.usable:
            return None
        self._say(f"drafted as {made.transformation}")
        return Draft(source=made.source, kernels=1, seconds=made.seconds)

    def _run(self, entry: str, payload: dict[str, Any], seconds: float) -> dict[str, Any]:
        from kernelwright.tools.sandbox import BadMessage, ProcessDied, ProcessTimedOut

        with self._warm().start(entry, payload) as process:
            try:
                return dict(process.receive(seconds))
            except (ProcessTimedOut, ProcessDied, BadMessage) as error:
                return {"refused": f"the process gave no draft: {type(error).__name__}", "seconds": seconds}

    def _warm(self) -> Zygote:
        from kernelwright.tools.sandbox import Kind, Zygote

        with self._lock:
            if self._zygote is None:
                self._zygote = Zygote(Kind.COMPILE, spare=False, private_scratch=True, warm=WARM)
            return self._zygote

    def close(self) -> None:
        if self._zygote is not None:
            self._zygote.close()
            self._zygote = None
