"""A judge process: `python -m kernelwright.agent.judging.judge_process DESCRIPTOR DEVICE WORKERS
SHARERS`.

A `kernelwright.worker_process.WorkerProcess`: reads requests from the socket with the given
descriptor, sends its replies on the same socket, and ends when the parent process closes the other
end.
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
"""Niceness of a CPU judge and its subprocesses: the server process that handles requests must run
first.
"""
SWITCH_SECONDS = 0.0005
"""Thread switch interval of the interpreter, in seconds.

A verdict on the GPU waits some hundred times for short answers of another process, and after each
answer for a thread busy with reading traces. Python's default interval, 5 ms, would be lost at each
of these waits.
"""
ALIVE_MESSAGE_SECONDS = 5.0
"""Seconds between two JudgeAlive messages."""
_READS: TypeAdapter[ToJudge] = TypeAdapter(ToJudge)


class PoolConnection:
    """The connection to the pool; several threads may write."""

    def __init__(self, connection: Connection) -> None:
        self._connection, self._lock = connection, threading.Lock()

    def send(self, message: FromJudge) -> None:
        """Sends a message. A closed connection is ignored here: the reading thread then ends the
        process.
        """
        try:
            with self._lock:
                self._connection.send_bytes(message.model_dump_json().encode())
        except OSError:
            pass

    def read(self) -> ToJudge | None:
        """Reads the next message. Returns None if the pool has closed the connection."""
        try:
            return _READS.validate_json(self._connection.recv_bytes())
        except (EOFError, OSError):
            return None


def main() -> None:
    """Judges on one device, for the requests of the parent process."""
    connection, (device, workers_text, sharers_text) = connection_to_parent()
    end_forks()
    workers, sharers = int(workers_text), int(sharers_text)
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
    """Sends JudgeAlive messages for the life of the process; begins before any heavy import."""
    while True:
        line.send(JudgeAlive())
        time.sleep(ALIVE_MESSAGE_SECONDS)


def _serve(line: PoolConnection, maker: VerdictMaker, capacity: int) -> None:
    """Handles requests until the pool closes the connection, then drops the verdicts under way."""
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
