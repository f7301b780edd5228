"""Tries references before their first use: one that exits, loops, crashes or exhausts memory ends
only a separate process.

The judge tries the reference of each verdict (`tools/evaluation/ladder.py`), so that no caller can
forget it. Commands that pay for answers ask here before; the outcome is cached.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from pydantic import JsonValue

from kernelwright.closing_context import ClosingContext
from kernelwright.tools.problem import Problem, ProblemError, check_form
from kernelwright.tools.reference_trials.processes import ReferenceProcesses, ReferenceStopped
from kernelwright.tools.reference_trials.worker import TrialOutcome

TRIAL_SECONDS = 60.0
"""Limit in processor seconds for a reference: at the size of a judge without a GPU nearly all take
less than one."""
MAX_REMEMBERED = 4096
"""Maximum number of cached outcomes."""
STOPPED_SECONDS = 600.0
"""Time, in seconds, for which a timeout or death is cached: a loaded machine may have caused it."""
TRIAL_ENTRY = "kernelwright.tools.reference_trials.worker:trial"


class _Remembered(NamedTuple):
    outcome: TrialOutcome
    problem: Problem
    forgotten_at: float
    """Of the monotonic clock, in seconds."""


class ReferenceTrials(ClosingContext):
    """Tries each reference once, and remembers the outcome. Thread-safe. A context manager that ends its processes."""

    def __init__(self, seconds: float = TRIAL_SECONDS) -> None:
        """seconds: of processor time for each reference."""
        self._seconds = seconds
        self._lock = threading.Lock()
        self._processes = ReferenceProcesses()
        self._outcomes: OrderedDict[tuple[str, bool], _Remembered] = OrderedDict()
        """By the problem's hash and train_mode."""
        self._under_way: dict[tuple[str, bool], threading.Lock] = {}

    def begin(self) -> None:
        """Starts a process, which imports torch in parallel to other work until the first trial.
        Raises InfrastructureError."""
        self._processes.begin()

    def require_working(
        self, problem: Problem, *, train_mode: bool = False, may_be_random: bool = False
    ) -> None:
        """Raises ProblemError, with the line if known, if the reference fails or is random;
        InfrastructureError if no process starts.

        train_mode: judges the problem as built, not in eval mode. may_be_random: the caller has a
        candidate, which may draw the reference's random numbers.
        """
        check_form(problem.source)
        outcome = self.known_outcome(problem, train_mode=train_mode)
        if outcome is None:
            with self._alone(problem, train_mode):
                outcome = self.known_outcome(problem, train_mode=train_mode) or self._tried(
                    problem, train_mode
                )
        if message := outcome.error or ("" if may_be_random else outcome.randomness):
            raise ProblemError(message)

    def known_outcome(self, problem: Problem, *, train_mode: bool) -> TrialOutcome | None:
        """Returns the outcome of an earlier trial; None without one."""
        with self._lock:
            remembered = self._outcomes.get((problem.hash, train_mode))
        if remembered is None or time.monotonic() >= remembered.forgotten_at:
            return None
        outcome = remembered.outcome
        names_lines = bool(outcome.error or outcome.randomness)
        # The hash ignores comments: the lines of an error are those of the very text that was tried.
        return outcome if not names_lines or remembered.problem == problem else None

    def remember(self, problem: Problem, outcome: TrialOutcome, *, train_mode: bool) -> None:
        """Takes over the outcome of a trial that another process made."""
        self._remember(problem, train_mode, outcome, float("inf"))

    def run(self, entry: str, problem: Problem, arguments: dict[str, JsonValue]) -> JsonValue:
        """Returns the JSON result of a function that runs the reference
        (`package.module:function`).

        Raises ProblemError if the reference fails, takes too much time or ends its process.
        """
        return self._processes.run(entry, problem, arguments, self._seconds)

    def stop(self, problem: Problem) -> None:
        """Ends the running trial of a problem; its waiting callers get InfrastructureError, and no
        outcome is remembered.
        """
        self._processes.stop(problem.hash)

    @contextmanager
    def _alone(self, problem: Problem, train_mode: bool) -> Iterator[None]:
        """Context manager that excludes other trials of the problem."""
        key = problem.hash, train_mode
        with self._lock:
            lock = self._under_way.setdefault(key, threading.Lock())
        with lock:
            try:
                yield
            finally:
                with self._lock:
                    self._under_way.pop(key, None)

    def _tried(self, problem: Problem, train_mode: bool) -> TrialOutcome:
        forgotten_at = float("inf")
        try:
            result = self.run(TRIAL_ENTRY, problem, {"train_mode": train_mode})
            outcome = TrialOutcome.model_validate(result)
        except ProblemError as error:
            outcome = TrialOutcome(error=str(error))
            if isinstance(error, ReferenceStopped):
                forgotten_at = time.monotonic() + STOPPED_SECONDS
        self._remember(problem, train_mode, outcome, forgotten_at)
        return outcome

    def _remember(
        self, problem: Problem, train_mode: bool, outcome: TrialOutcome, forgotten_at: float
    ) -> None:
        with self._lock:
            self._outcomes[problem.hash, train_mode] = _Remembered(outcome, problem, forgotten_at)
            while len(self._outcomes) > MAX_REMEMBERED:
                self._outcomes.popitem(last=False)

    def close(self) -> None:
        """Ends the processes; another trial begins a new one."""
        self._processes.close()


_trials: dict[int, ReferenceTrials] = {}
"""The trials of this process, by its id: a fork shares no process with its parent."""
_opening = threading.Lock()


def reference_trials() -> ReferenceTrials:
    """Returns the trials of this process: each reference is tried once, whoever asks."""
    process = os.getpid()
    with _opening:
        if process not in _trials:
            _trials.clear()
            _trials[process] = ReferenceTrials()
        return _trials[process]
