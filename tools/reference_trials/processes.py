"""Pool of warm processes that run references; replaces processes that are killed.

A process takes some hundred megabytes of memory, so idle processes are ended after a while.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pydantic import JsonValue

from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.reference_trials.process import ReferenceProcess
from kernelwright.tools.report import InfrastructureError
from kernelwright.worker_process import WorkerDied, WorkerTimedOut

MAX_PROCESSES = 2
"""Processes at the same time: a reference that loops does not keep the others waiting until its time limit."""
IDLE_SECONDS = 60.0
"""Seconds after its last reference at which a process is ended."""


class ReferenceStopped(ProblemError):
    """Raised if the reference took too much time, or ended its process. May succeed on a less
    loaded machine."""


class ReferenceProcesses:
    """Runs entries in warm processes. Thread-safe."""

    new_process: Callable[[], ReferenceProcess] = ReferenceProcess
    """Starts a process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(MAX_PROCESSES)
        self._idle: list[ReferenceProcess] = []
        self._at_work: dict[ReferenceProcess, str] = {}
        """Hash of the problem whose reference each busy process runs."""
        self._timer: threading.Timer | None = None

    def begin(self) -> None:
        """Starts a process, which imports torch in parallel to other work. Raises
        InfrastructureError."""
        with self._lock:
            if not self._idle:
                self._idle.append(type(self).new_process())
            self._end_idle_later()

    def run(
        self, entry: str, problem: Problem, arguments: Mapping[str, JsonValue], seconds: float
    ) -> JsonValue:
        """Returns the result of `entry` (`package.module:function`), called with the problem and
        the arguments.

        Raises ProblemError with the reference's line if the reference fails, ReferenceStopped if it
        takes more than `seconds` or ends its process, and InfrastructureError if no process starts
        or `stop` ended it.
        """
        with self._process(problem.hash) as process:
            try:
                answer = process.run(entry, problem, arguments, seconds)
            except WorkerTimedOut:
                raise ReferenceStopped(
                    f"the reference {problem.name} fails{process.source_position(problem)}: "
                    f"it took more than {seconds:g} s"
                ) from None
            except WorkerDied as death:
                if process.was_stopped:
                    raise InfrastructureError(
                        f"the reference {problem.name} was stopped: run it again where its result is wanted"
                    ) from None
                raise ReferenceStopped(
                    f"the reference {problem.name} fails{process.source_position(problem)}: {death}"
                ) from None
        if answer.internal_error:
            raise InfrastructureError(
                f"internal error, please report it: {entry}: {answer.internal_error}"
            )
        if answer.problem_error:
            raise ProblemError(answer.problem_error)
        return answer.result

    @contextmanager
    def _process(self, problem_hash: str) -> Iterator[ReferenceProcess]:
        """Context manager with an idle or new process, which is killed after an error: a late
        answer would be taken for the next reference's."""
        with self._slots:
            process = self._idle_process() or type(self).new_process()
            self._at_work[process] = problem_hash
            try:
                yield process
            except BaseException:
                process.end()
                raise
            finally:
                del self._at_work[process]
            with self._lock:
                self._idle.append(process)
                self._end_idle_later()

    def stop(self, problem_hash: str) -> None:
        """Ends the processes that run the reference of a problem."""
        for process, running in list(self._at_work.items()):
            if running == problem_hash:
                process.stop()

    def _idle_process(self) -> ReferenceProcess | None:
        """Removes a live process from the idle ones; None without any."""
        while True:
            with self._lock:
                process = self._idle.pop() if self._idle else None
            if process is None or process.is_alive:
                return process
            process.end()

    def _end_idle_later(self) -> None:
        """Ends the idle processes after IDLE_SECONDS in which none was used. The caller holds the lock."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = threading.Timer(IDLE_SECONDS, self.close)
        self._timer.daemon = True
        self._timer.start()

    def close(self) -> None:
        """Ends the idle processes; the next entry starts another one."""
        with self._lock:
            processes, self._idle = self._idle, []
            if self._timer is not None:
                self._timer.cancel()
        for process in processes:
            process.close()
