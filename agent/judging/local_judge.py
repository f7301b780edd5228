"""Client side of one judge process: sends requests, reads replies, notices the death of the
process.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from pydantic import TypeAdapter

from kernelwright.agent.judging.messages import (
    FromJudge,
    JudgeReady,
    StopRequest,
    ToJudge,
    VerdictError,
    VerdictReply,
    VerdictRequest,
    VerdictStep,
)
from kernelwright.agent.judging.placed_judge import PlacedJudge, closed_error
from kernelwright.agent.judging.placing import JudgeHandle, VerdictUnderWay
from kernelwright.agent.judging.pool import DeviceKind, JudgeLost
from kernelwright.agent.judging.verdict_maker import capacity_of
from kernelwright.agent.judging.walls.bounds import exceeded_bound
from kernelwright.agent.judging.walls.walled_judge import JUDGE_MODULE
from kernelwright.tools.hardware.gpus import read_sensors
from kernelwright.tools.hardware.memory_requests import make_lock_files
from kernelwright.tools.problem import ProblemError
from kernelwright.worker_process import WorkerProcess

_READS: TypeAdapter[FromJudge] = TypeAdapter(FromJudge)
WALLED_MODULE = "kernelwright.agent.judging.walls.walled_judge"
CLOSING_SECONDS = 5.0
"""Seconds of grace for a judge to end by itself."""
EXIT_CODE_SECONDS = 1.0
"""Seconds of grace for a judge after its connection closed; its exit code names the reason."""
MAX_SILENT_SECONDS = 90.0
"""Seconds without a message after which a judge counts as dead and is ended. A live judge sends
JudgeAlive every ALIVE_MESSAGE_SECONDS.
"""


ENVIRONMENT_PREFIXES = (
    "CUDA_", "HF_HOME", "HOME", "KMP_", "LANG", "LC_", "LD_LIBRARY_PATH", "LOGNAME", "MKL_", "NCCL_", "NVIDIA_", "OMP_",
    "OPENBLAS_", "PATH", "PYTHON", "PYTORCH_", "TERM", "TMPDIR", "TORCH", "TRITON_", "TZ", "USER", "VIRTUAL_ENV",
)  # fmt: skip
"""Prefixes of the environment variables passed to judges of a service. Any other variable may hold
a secret.
"""


class JudgeWalls(NamedTuple):
    """Limits of a judge's view of its server: environment variables and files."""

    environment: Mapping[str, str]
    hidden: tuple[Path, ...] | None = None
    """Paths hidden from references (walls/walled_judge.py). None: references are as trusted as the
    server.
    """

    @classmethod
    def around(cls, hidden: Sequence[Path] | None) -> JudgeWalls:
        """Returns the limits for judges of a server, with the environment variables needed by a
        judge.
        """
        environment = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(ENVIRONMENT_PREFIXES)
        }
        return cls(environment, None if hidden is None else tuple(hidden))


class LocalJudge(PlacedJudge):
    """Starts its process at once; `capacity` verdicts may be under way. Thread-safe."""

    def __init__(
        self,
        name: str,
        device: str,
        workers: int,
        ended: Callable[[JudgeHandle], None],
        sharers: int = 1,
        walls: JudgeWalls | None = None,
    ) -> None:
        """Starts the judge's process.

        workers: candidates on the CPU rungs at once. ended: called in a thread of this judge after
        the end of each verdict and of the judge. sharers: number of judges on this device. walls:
        limits of the judge's view; None: no limits.
        """
        kind = DeviceKind.CPU if device == "cpu" else DeviceKind.CUDA
        super().__init__(name, kind, capacity_of(device, workers), ended)
        self.device = device
        self._process = _start_process((device, str(workers), str(sharers)), walls)
        self._connection = self._process.connection
        self._to_send: queue.SimpleQueue[ToJudge | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write, name=f"to judge {name}", daemon=True)
        self._writer.start()
        threading.Thread(target=self._read, name=f"judge {name}", daemon=True).start()

    @property
    def process_id(self) -> int:
        """The id of the judge's process, which may have ended."""
        return self._process.pid

    def begin(self, ask: VerdictRequest, work: VerdictUnderWay) -> None:
        """Begins a verdict and returns at once. Raises nothing: if the judge is dead, the future
        raises JudgeLost.
        """
        self._count(ask.number, work)
        # The judge died after its choice, and the reading thread may have missed this verdict.
        if not self.state.alive:
            self._finish(ask.number, self._loss())
        self._to_send.put(ask)

    def stop(self, number: int) -> None:
        """Asks the judge to stop a verdict at its next step."""
        self._to_send.put(StopRequest(number=number))

    def close(self) -> None:
        """Ends the process; verdicts under way raise PoolClosed."""
        self._closing = True
        self._process.end(CLOSING_SECONDS)
        self._close_verdicts()

    def _kill(self) -> None:
        self._process.end()

    # -------------------------------------------------------------- the writing thread
    def _write(self) -> None:
        """Sends messages from a thread, so a judge with a full pipe (a stopped process) blocks no
        caller.
        """
        try:
            while (message := self._to_send.get()) is not None:
                self._connection.send_bytes(message.model_dump_json().encode())
        except OSError:  # the judge is dead, which the reading thread notices, too
            pass

    # -------------------------------------------------------------- the reading thread
    def _read(self) -> None:
        exit_seconds = EXIT_CODE_SECONDS
        try:
            while self._connection.poll(MAX_SILENT_SECONDS):
                self._take(_READS.validate_json(self._connection.recv_bytes()))
            # A silent judge hangs: waiting for its own end is of no use.
            exit_seconds = 0.0
            self.trouble = (
                f"the judge {self.name} said nothing for {MAX_SILENT_SECONDS:g} s and was ended"
            )
        except (EOFError, OSError, ValueError):
            pass
        self._takes_no_more()
        self._process.end(exit_seconds)
        # Ends the writing thread.
        self._to_send.put(None)
        self._writer.join()
        self._process.close()
        error = self._loss()
        for number in list(self._under_way):
            self._finish(number, error)
        self._ended(self)

    def _take(self, message: FromJudge) -> None:
        match message:
            case JudgeReady():
                self.was_ready = True
                self._ended(self)  # waiting verdicts may be assigned to this judge
            case VerdictStep():
                self._tell(message.number, message.doing)
            case VerdictError(number=None):
                self.trouble = message.message
            case VerdictReply(number=int(number)) | VerdictError(number=int(number)):
                self._take_reply(number, message)

    def _loss(self) -> Exception:
        if self._closing:
            return closed_error()
        if self._was_ended:
            return self._ended_error()
        bound = exceeded_bound(self._process.exit_code)
        # With several verdicts under way nobody can say whose reference exceeded the bound.
        if bound is not None and len(self._under_way) == 1:
            return ProblemError(
                f"the reference, or what it started, passed the judge's bound of {bound}: the judge was ended"
            )
        why = self.trouble or f"the judge {self.name} died (exit status {self._process.exit_code})"
        return JudgeLost(f"{why} while it was at work on this verdict: see agent doctor")


def _start_process(arguments: Sequence[str], walls: JudgeWalls | None) -> WorkerProcess:
    if walls is None:
        return WorkerProcess(JUDGE_MODULE, *arguments)
    if walls.hidden is None:
        return WorkerProcess(JUDGE_MODULE, *arguments, environment=walls.environment)
    # Judges on a GPU lock files in /tmp together with other processes of this machine.
    is_on_gpu = arguments[0] != "cpu"
    shared = [file for gpu in read_sensors() for file in make_lock_files(gpu)] if is_on_gpu else []
    paths = json.dumps([[str(path) for path in walls.hidden], [str(path) for path in shared]])
    return WorkerProcess(WALLED_MODULE, *arguments, paths, environment=walls.environment)
