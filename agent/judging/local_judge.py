"""One judge process, seen from the pool: what it was asked, what it answers, and that it died."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

from pydantic import TypeAdapter

from kernelwright.agent.judging.messages import (
    FromJudge,
    JudgeReady,
    StopRequest,
    VerdictError,
    VerdictReply,
    VerdictRequest,
    VerdictStep,
)
from kernelwright.agent.judging.placing import AtWork, Judge
from kernelwright.agent.judging.pool import DeviceKind, JudgeLost, JudgeState, PoolClosed
from kernelwright.agent.judging.verdict_maker import capacity_of, exception_of
from kernelwright.tools.report import Report
from kernelwright.worker_process import WorkerProcess

_READS: TypeAdapter[FromJudge] = TypeAdapter(FromJudge)
CLOSING_SECONDS = 5.0
"""That a judge is given to end by itself."""


class LocalJudge:
    """Starts its process at once; `capacity` verdicts may be under way. Thread-safe."""

    def __init__(self, name: str, device: str, workers: int, ended: Callable[[Judge], None], sharers: int = 1) -> None:
        """sharers: judges on this device.

        `ended` is called, in a thread of this judge, whenever a verdict or the judge itself has ended.
        """
        self.name, self.device = name, device
        self.kind = DeviceKind.CPU if device == "cpu" else DeviceKind.CUDA
        self.capacity = capacity_of(device, workers)
        self.trouble = ""
        """Why it could not begin."""
        self.was_ready = False
        self._ended = ended
        self._lock = threading.Lock()
        self._work: dict[int, AtWork] = {}
        self._closing = False
        self._alive = True
        self._process = WorkerProcess("kernelwright.agent.judging.judge_process", device, str(workers), str(sharers))
        self._connection = self._process.connection
        threading.Thread(target=self._read, name=f"judge {name}", daemon=True).start()

    @property
    def process_id(self) -> int:
        """The id of the judge's process, which may have ended."""
        return self._process.pid

    @property
    def state(self) -> JudgeState:
        """How the judge stands: alive, ready, and verdicts under way of its capacity."""
        with self._lock:
            return JudgeState(
                name=self.name, device=self.kind, alive=self._alive, ready=self._alive and self.was_ready,
                at_work=len(self._work), capacity=self.capacity,
            )  # fmt: skip

    @property
    def free(self) -> int:
        """Verdicts that it could begin now."""
        with self._lock:
            takes = self._alive and self.was_ready and not self._closing
            return self.capacity - len(self._work) if takes else 0

    def begin(self, ask: VerdictRequest, work: AtWork) -> None:
        """Raises nothing: where the judge is gone the future raises JudgeLost."""
        with self._lock:
            self._work[ask.number] = work
        try:
            self._connection.send_bytes(ask.model_dump_json().encode())
        except OSError:
            with self._lock:
                self._alive = False  # first: whoever asks again at once must not be given to this one
            self._lose([ask.number])

    def stop(self, number: int) -> None:
        """Asks the judge to stop a verdict at its next step."""
        with contextlib.suppress(OSError):
            self._connection.send_bytes(StopRequest(number=number).model_dump_json().encode())

    def close(self) -> None:
        """Ends the process; what is under way raises PoolClosed."""
        self._closing = True
        self._process.end(CLOSING_SECONDS)
        self._lose(list(self._work))

    # -------------------------------------------------------------- the reading thread
    def _read(self) -> None:
        try:
            while True:
                self._take(_READS.validate_json(self._connection.recv_bytes()))
        except (EOFError, OSError, ValueError):
            pass
        with self._lock:
            self._alive = False
        self._process.close()
        self._lose(list(self._work))
        self._ended(self)

    def _take(self, message: FromJudge) -> None:
        match message:
            case JudgeReady():
                self.was_ready = True
                self._ended(self)  # who waits may be given to it
            case VerdictStep():
                if (work := self._work.get(message.number)) is not None:
                    work.progress(message.doing)
            case VerdictReply():
                self._finish(message.number, message.report)
            case VerdictError(number=None):
                self.trouble = message.message
            case VerdictError():
                self._finish(message.number, exception_of(message))

    def _finish(self, number: int | None, outcome: Report | Exception) -> None:
        with self._lock:
            work = self._work.pop(number, None) if number is not None else None
        if work is None:
            return
        if isinstance(outcome, Exception):
            work.future.set_exception(outcome)
        else:
            work.future.set_result(outcome)
        self._ended(self)

    def _lose(self, numbers: list[int]) -> None:
        for number in numbers:
            with self._lock:
                work = self._work.pop(number, None)
            if work is not None:
                work.future.set_exception(self._loss())

    def _loss(self) -> Exception:
        if self._closing:
            return PoolClosed("the judges were closed before this verdict was made")
        why = self.trouble or f"the judge {self.name} died (exit status {self._process.exit_code})"
        return JudgeLost(f"{why} while it was at work on this verdict: see agent doctor")
