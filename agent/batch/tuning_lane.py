"""TUNE in a batch: the kernels of many runs are tuned one after the other."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.agent.judging.lanes import Gate
from kernelwright.agent.loop.attempts import Attempt
from kernelwright.agent.loop.run_verdicts import Tunes
from kernelwright.agent.loop.stopping import Spent
from kernelwright.policies.base import Completion
from kernelwright.tools.problem import Problem


class TuningLane:
    """A tuner as many runs see it. One tuning keeps all cores busy with compiling, and the GPU with its clock; the
    verdicts of other runs come in between its trials.
    """

    def __init__(self, tuner: Tunes, gate: Gate) -> None:
        self._tuner, self._gate = tuner, gate

    def tuned(
        self, problem: Problem, parent: Attempt, spent: Spent, say: Callable[[str], None]
    ) -> Completion:
        """Raises what the lanes were closed with, at the next configuration: its journal has all before it."""

        def watched(doing: str) -> None:
            self._gate.check()
            say(doing)

        with self._gate.enter():
            return self._tuner.tuned(problem, parent, spent, watched)
