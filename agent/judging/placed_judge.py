"""Base class of a local judge and a judge on Ray: verdicts under way, and readiness for further
verdicts.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from kernelwright.agent.judging.messages import VerdictError, VerdictReply, VerdictRequest
from kernelwright.agent.judging.placing import JudgeHandle, VerdictUnderWay
from kernelwright.agent.judging.pool import DeviceKind, JudgeEnded, JudgeState, PoolClosed
from kernelwright.agent.judging.verdict_maker import exception_of
from kernelwright.tools.report import Report


class PlacedJudge(ABC):
    """Counts the verdicts under way, completes their futures, and reports the judge's state.
    Thread-safe.

    A subclass begins and stops verdicts and reads replies. A subclass calls `_ended(self)` once the
    judge is ready, and after the end of each verdict and of the judge.
    """

    def __init__(
        self, name: str, kind: DeviceKind, capacity: int, ended: Callable[[JudgeHandle], None]
    ) -> None:
        """Makes a judge without verdicts. capacity: number of verdicts in parallel."""
        self.name, self.kind, self.capacity = name, kind, capacity
        self.trouble = ""
        """Reason for a failed start."""
        self.was_ready = False
        """True once the judge has started."""
        self.domain = ""
        """Domain of the verdicts begun so far; empty if all references were trusted."""
        self.is_draining = False
        """True if the judge gets no further verdicts, because another process is to replace this
        one.
        """
        self.restarts = 0
        """Number of earlier judges of this name."""
        self._started = time.time()
        self._ended = ended
        self._lock = threading.Lock()
        self._under_way: dict[int, VerdictUnderWay] = {}
        self._refused: dict[int, Exception] = {}
        """The exceptions with which callers ended their verdicts, until these have stopped."""
        self._alive = True
        self._closing = False
        self._was_ended = False
        """True if a caller ended the judge because of a verdict."""

    @property
    def state(self) -> JudgeState:
        """Returns the state of the judge: alive, ready, and its verdicts under way of its capacity."""
        with self._lock:
            return JudgeState(
                name=self.name, device=self.kind, alive=self._alive, ready=self._alive and self.was_ready,
                at_work=len(self._under_way), capacity=self.capacity, started=self._started, restarts=self.restarts,
            )  # fmt: skip

    @property
    def free(self) -> int:
        """Number of verdicts the judge could begin now; 0 during its start and its end."""
        with self._lock:
            takes = self._alive and self.was_ready and not self._closing and not self.is_draining
            return self.capacity - len(self._under_way) if takes else 0

    @abstractmethod
    def begin(self, ask: VerdictRequest, work: VerdictUnderWay) -> None:
        """Begins a verdict. Raises nothing: if the judge is dead, the future raises JudgeLost."""

    @abstractmethod
    def stop(self, number: int) -> None:
        """Asks the judge to end a verdict at its next step."""

    @abstractmethod
    def close(self) -> None:
        """Ends the judge; verdicts under way raise PoolClosed."""

    @abstractmethod
    def _kill(self) -> None:
        """Ends the judge at once. Its verdicts under way end with `_loss`."""

    def end_over(self, number: int, error: Exception) -> None:
        """Ends the judge because of a verdict. This verdict raises `error`; the others raise
        JudgeEnded.
        """
        with self._lock:
            if number not in self._under_way:
                return
            self._refused[number] = error
            self._was_ended = True
            self._alive = False
        # A process hanging in a driver dies slowly: the caller does not wait.
        threading.Thread(target=self._kill, name=f"end of judge {self.name}", daemon=True).start()

    def retire(self) -> None:
        """Ends the judge, to be replaced by another process. Verdicts under way raise JudgeEnded."""
        with self._lock:
            self._was_ended = True
            self._alive = False
        threading.Thread(target=self._kill, name=f"end of judge {self.name}", daemon=True).start()

    def _ended_error(self) -> JudgeEnded:
        """Returns the exception for a verdict whose judge was ended because of another verdict."""
        return JudgeEnded(f"the judge {self.name} was ended over another verdict")

    def _count(self, number: int, work: VerdictUnderWay) -> None:
        """Adds a verdict to the verdicts under way."""
        with self._lock:
            self._under_way[number] = work

    def _takes_no_more(self) -> None:
        """Marks the judge as dead. To be called before its verdicts are lost, so a repeated verdict
        goes to another judge.
        """
        with self._lock:
            self._alive = False

    def _tell(self, number: int, doing: str) -> None:
        """Reports the step of a verdict to its caller. An exception of the caller's callback ends
        the verdict.
        """
        if (work := self._under_way.get(number)) is None:
            return
        try:
            work.progress(doing)
        except Exception as error:
            self.stop(number)
            self._refused[number] = error

    def _finish(self, number: int | None, outcome: Report | Exception) -> bool:
        """Completes a verdict's future. Returns False if the future was complete already."""
        with self._lock:
            work = self._under_way.pop(number, None) if number is not None else None
        if work is None:
            return False
        refusal = self._refused.pop(number, None) if number is not None else None
        if refusal is not None:
            outcome = refusal
        if isinstance(outcome, Exception):
            work.future.set_exception(outcome)
        else:
            work.future.set_result(outcome)
        return True

    def _take_reply(self, number: int, reply: VerdictReply | VerdictError) -> None:
        """Ends a verdict with the judge's reply, and ends the judge after its last reply."""
        outcome: Report | Exception
        if isinstance(reply, VerdictReply):
            outcome = reply.report
            work = self._under_way.get(number)
            if work is not None and reply.reference is not None:
                work.learned(reply.reference)
        else:
            outcome = exception_of(reply)
        if reply.is_last:
            self._finish(number, outcome)  # first: verdicts open at the judge's end are interrupted
            self.retire()
            self._ended(self)
            return
        if isinstance(outcome, JudgeEnded):
            # It can make no verdict any more; it lives until the one that is to blame has been answered.
            self._takes_no_more()
        self._end(number, outcome)

    def _end(self, number: int | None, outcome: Report | Exception) -> None:
        """Ends a verdict and tells the pool of the free place."""
        if self._finish(number, outcome):
            self._ended(self)

    def _close_verdicts(self) -> None:
        """Ends the verdicts under way with PoolClosed."""
        for number in list(self._under_way):
            self._finish(number, closed_error())


def closed_error() -> PoolClosed:
    """Returns the exception of a verdict whose judge was closed."""
    return PoolClosed("the judges were closed before this verdict was made")
