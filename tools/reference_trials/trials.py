"""Tries references before anything is asked of a policy: one that exits, loops, crashes or takes all memory ends a
process of its own, and is told as the problem's fault.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from kernelwright.tools.problem import Problem, ProblemError, check_form
from kernelwright.tools.reference_trials.process import TrialProcess
from kernelwright.tools.reference_trials.worker import TrialOutcome
from kernelwright.worker_process import WorkerDied, WorkerTimedOut

TRIAL_SECONDS = 60.0
"""Seconds for one reference: at the size of a judge without a GPU nearly all take less than one."""
MAX_REMEMBERED = 4096
"""Problems whose outcome is kept."""


class ReferenceTrials:
    """Holds a warm process for trials. A context manager; thread-safe. Each reference is tried once."""

    new_process: Callable[[], TrialProcess] = TrialProcess
    """Starts a process."""

    def __init__(self, seconds: float = TRIAL_SECONDS) -> None:
        """seconds: for each reference."""
        self._seconds = seconds
        self._lock = threading.Lock()
        self._process: TrialProcess | None = None
        self._outcomes: OrderedDict[tuple[str, bool], TrialOutcome] = OrderedDict()
        """By a problem's hash, and whether it is judged in training mode."""

    def begin(self) -> None:
        """Starts the process, which imports torch beside whatever is done until the first trial. Raises
        InfrastructureError.
        """
        with self._lock:
            self._process = self._process or type(self).new_process()

    def require_working(self, problem: Problem, *, train_mode: bool = False, may_be_random: bool = False) -> None:
        """Raises ProblemError where the reference fails, with its line where that is known, or is random; and
        InfrastructureError where no process starts.

        train_mode: the problem is judged as it is built, and not in eval mode. may_be_random: the caller has a
        candidate, which may draw what the reference draws.
        """
        check_form(problem.source)
        key = problem.hash, train_mode
        with self._lock:
            if key not in self._outcomes:
                self._outcomes[key] = self._tried(problem, train_mode)
            outcome = self._outcomes[key]
            while len(self._outcomes) > MAX_REMEMBERED:
                self._outcomes.popitem(last=False)
        if message := outcome.error or ("" if may_be_random else outcome.randomness):
            raise ProblemError(message)

    def _tried(self, problem: Problem, train_mode: bool) -> TrialOutcome:
        process = self._process or type(self).new_process()
        self._process = None  # Ctrl-C: a late answer would be taken for that of the next reference
        try:
            outcome = process.ask(problem, self._seconds, train_mode=train_mode)
        except WorkerTimedOut:
            error = f"the reference {problem.name} fails{process.place()}: it took more than {self._seconds:g} s"
        except WorkerDied as death:
            error = f"the reference {problem.name} fails{process.place()}: {death}"
        except BaseException:
            process.end()
            raise
        else:
            self._process = process
            return outcome
        process.end()
        return TrialOutcome(error=error)

    def close(self) -> None:
        """Ends the process; another trial begins a new one."""
        with self._lock:
            process, self._process = self._process, None
        if process is not None:
            process.close()

    def __enter__(self) -> ReferenceTrials:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
