"""TUNE in a batch: the kernels of many runs are tuned one after the other."""

from __future__ import annotations

from collections.abc import Callable

from kernelwright.agent.judging.lanes import Gate
from kernelwright.agent.loop.attempts import JudgedAttempt
from kernelwright.agent.loop.run_verdicts import Tunes
from kernelwright.agent.loop.stopping import Spent
from kernelwright.policies.base import Completion
from kernelwright.tools.problem import Problem


class TuningLane:
    """A tuner that many runs share. A single tuning keeps all cores busy with compiling, and the
    GPU with timing; verdicts of other runs come between its trials.
    """

    def __init__(self, tuner: Tunes, gate: Gate) -> None:
        self._tuner, self._gate = tuner, gate

    def tuned(
        self, problem: Problem, parent: JudgedAttempt, spent: Spent, say: Callable[[str], None]
    ) -> Completion:
        """Tunes a kernel. Raises the exception that closed the lanes at the next configuration;
        the journal has all configurations before.
        """

        def watched(doing: str) -> None:
            self._gate.check()
            say(doing)

        with self._gate.enter():
            return self._tuner.tuned(problem, parent, spent, watched)
