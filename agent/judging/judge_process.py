"""A judge in a process of its own: `python -m kernelwright.agent.judging.judge_process DESCRIPTOR DEVICE WORKERS`.

The life of a `kernelwright.worker_process.WorkerProcess`: it reads asks from the socket with that descriptor, answers
on it, and ends when the other side is gone.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection

from pydantic import TypeAdapter

from kernelwright.agent.judging.messages import (
    FromJudge,
    JudgeAlive,
    JudgeReady,
    StopRequest,
    ToJudge,
    VerdictError,
    VerdictRequest,
    VerdictStep,
)
from kernelwright.agent.judging.verdict_maker import VerdictMaker, capacity_of, error_kind
from kernelwright.session_priority import lower_session
from kernelwright.worker_process import connection_to_parent, end_forks

CPU_NICENESS = 5
"""Niceness of a judge on a CPU and of all that it starts: the process that answers requests beside it comes first."""
SWITCH_SECONDS = 0.0005
"""Seconds for which one thread keeps the interpreter while another waits for it. The verdict that is on the GPU waits
for short answers of another process some hundred times, and after each for a thread that reads traces.
"""
ALIVE_MESSAGE_SECONDS = 5.0
"""Seconds between two messages that say that the judge lives."""
_READS: TypeAdapter[ToJudge] = TypeAdapter(ToJudge)


class PoolConnection:
    """The connection to the pool; several threads may write."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def send(self, message: FromJudge) -> None:
        """Sends a message; does nothing where the pool is gone, since the reading thread then ends the process."""
        try:
            with self._lock:
                self._connection.send_bytes(message.model_dump_json().encode())
        except OSError:
            pass

    def read(self) -> ToJudge | None:
        """Reads the next message; None where the pool is gone."""
        try:
            return _READS.validate_json(self._connection.recv_bytes())
        except (EOFError, OSError):
            return None


def main() -> None:
    """Judges on one device for the parent process, which asks over the pipe."""
    connection, (device, places, judges) = connection_to_parent()
    end_forks()
    workers, sharers = int(places), int(judges)
    sys.setswitchinterval(SWITCH_SECONDS)
    if device == "cpu":
        lower_session(CPU_NICENESS)
    line = PoolConnection(connection)
    threading.Thread(target=_live, args=(line,), name="alive", daemon=True).start()
    try:
        maker = VerdictMaker(device, workers, sharers)
        line.send(JudgeReady(environment=maker.evaluator.environment()))
    except Exception as error:
        line.send(
            VerdictError(number=None, error=error_kind(error), message=" ".join(str(error).split()))
        )
        sys.exit(3)
    _serve(line, maker, capacity_of(device, workers))


def _live(line: PoolConnection) -> None:
    """Tells the pool that this process lives, from before anything heavy is imported until it ends."""
    while True:
        line.send(JudgeAlive())
        time.sleep(ALIVE_MESSAGE_SECONDS)


def _serve(line: PoolConnection, maker: VerdictMaker, capacity: int) -> None:
    """Serves until the pool is gone. What is under way then is thrown away."""
    with ThreadPoolExecutor(capacity, thread_name_prefix="verdict") as threads:
        while (message := line.read()) is not None:
            match message:
                case VerdictRequest():
                    threads.submit(_answer, line, maker, message)
                case StopRequest():
                    maker.stop(message.number)
        maker.close()
        os._exit(0)


def _answer(line: PoolConnection, maker: VerdictMaker, ask: VerdictRequest) -> None:
    line.send(maker.make(ask, lambda doing: line.send(VerdictStep(number=ask.number, doing=doing))))


if __name__ == "__main__":
    main()
