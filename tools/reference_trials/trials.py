"""Tries references before anything is asked of a policy: one that exits, loops, crashes or takes all memory ends a
process of its own, and is told as the problem's fault.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from kernelwright.tools.problem import Problem, ProblemError, check_form
from kernelwright.tools.reference_trials.process import TrialProcess
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
        self._errors: OrderedDict[str, str] = OrderedDict()
        """By a problem's hash; empty where the reference works."""

    def begin(self) -> None:
        """Starts the process, which imports torch beside whatever is done until the first trial. Raises
        InfrastructureError.
        """
        with self._lock:
            self._process = self._process or type(self).new_process()

    def require_working(self, problem: Problem) -> None:
        """Raises ProblemError where the reference fails, with its line where that is known, and InfrastructureError
        where no process starts.
        """
        check_form(problem.source)
        with self._lock:
            if problem.hash not in self._errors:
                self._errors[problem.hash] = self._tried(problem)
            error = self._errors[problem.hash]
            while len(self._errors) > MAX_REMEMBERED:
                self._errors.popitem(last=False)
        if error:
            raise ProblemError(error)

    def _tried(self, problem: Problem) -> str:
        process = self._process or type(self).new_process()
        self._process = None  # Ctrl-C: a late answer would be taken for that of the next reference
        try:
            error = process.ask(problem, self._seconds)
        except WorkerTimedOut:
            error = f"the reference {problem.name} fails{process.place()}: it took more than {self._seconds:g} s"
            process.end()
        except WorkerDied as death:
            error = f"the reference {problem.name} fails{process.place()}: {death}"
            process.end()
        except BaseException:
            process.end()
            raise
        else:
            self._process = process
        return error

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
