"""Resources that the verdicts of one evaluator share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

from kernelwright.tools.judging.front import Front, TracesAndCompiles
from kernelwright.tools.judging.judge import Judge
from kernelwright.tools.judging.turns import Turns
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Environment
from kernelwright.tools.timing.baseline import Baselines

Progress = Callable[[str], None]


@dataclass(frozen=True)
class SharedResources:
    """Resources shared by the verdicts of an evaluator."""

    device: str
    """Device of the verdicts: `cpu` or `cuda:N`."""
    environment: Environment
    turns: Turns
    baselines: Baselines
    judge_for: Callable[[Problem], AbstractContextManager[Judge]]
    """Returns a context manager which lends a judge for a verdict."""
    interpreter_for: Callable[[Problem], AbstractContextManager[Judge]]
    """Gives a judge that interprets on a CPU, on every device."""
    front: Callable[[], Front]
    """Returns the front end which traces and compiles in this process."""
    interpreter_front: Callable[[], Front]
    """Returns the front end which traces in this process for an interpreter, on every device."""
    elsewhere: TracesAndCompiles | None
    """Remote front end which traces and compiles candidates. None: this process does."""

    @property
    def on_gpu(self) -> bool:
        """Whether verdicts are made on a GPU."""
        return self.device.startswith("cuda")
