"""Controls the process that runs references: requests, time limits, death, and the current source
position."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Mapping

from pydantic import JsonValue

from kernelwright.source_lines import place_in_text
from kernelwright.tools.problem import Problem
from kernelwright.tools.reference_trials.worker import PLACE_SIGNAL, EntryAnswer, EntryCall
from kernelwright.tools.report import InfrastructureError
from kernelwright.worker_process import WorkerDied, WorkerProcess, WorkerTimedOut

MODULE = "kernelwright.tools.reference_trials.worker"
REFERENCE_READY_SECONDS = 120.0
PLACE_SECONDS = 0.5
"""Time, in seconds, for the process to print its current position."""
MIN_WAIT_SECONDS = 0.05
"""Shortest wait between two looks at the processor time of a process that is at work."""
MIN_PROCESSOR_SHARE = 0.05
"""Share of a processor below which a process sleeps or waits for something, and is not merely slowed down."""
MAX_SLOWDOWN = 10.0
"""Maximum time for an answer, as a multiple of its limit in processor seconds."""
REFERENCE_MEMORY_SHARE = 0.75
"""Share of this machine's memory that a reference may take."""
_PLACE = re.compile(r'File "<reference[^"]*", line (\d+) in (.+)')


class ReferenceProcess:
    """Runs references in sequence until the process ends."""

    def __init__(self) -> None:
        """Starts the process; `ask` waits until ready. Raises InfrastructureError."""
        self._printed = tempfile.TemporaryFile()  # noqa: SIM115 (closed by `end`)
        self._is_ready = False
        self.was_stopped = False
        """Whether `stop` ended the process."""
        try:
            self._worker = WorkerProcess(MODULE, errors=self._printed, memory=_memory_limit())
        except OSError as error:
            raise InfrastructureError(
                f"no process for references can be started: {error}"
            ) from error

    def run(
        self, entry: str, problem: Problem, arguments: Mapping[str, JsonValue], seconds: float
    ) -> EntryAnswer:
        """Calls a function in the process, which may run the problem's reference.

        entry: `package.module:function`, called with the problem and the arguments; its result is
        JSON. seconds: limit in processor seconds. Raises WorkerTimedOut if exceeded or if idle for
        as long, WorkerDied if the reference ended the process, and InfrastructureError if the
        process does not start.
        """
        if not self._is_ready:
            try:
                self._worker.receive(REFERENCE_READY_SECONDS)
            except (WorkerTimedOut, WorkerDied) as error:
                raise InfrastructureError(
                    f"the process for references does not start: {error}"
                ) from error
            self._is_ready = True
        job = EntryCall(entry=entry, problem=problem, arguments=dict(arguments))
        used_before = self._worker.processor_seconds()
        self._worker.send(job.model_dump_json().encode())
        return EntryAnswer.model_validate_json(self._receive(seconds, used_before))

    def _receive(self, seconds: float, used_before: float) -> bytes:
        """Returns the answer. Time without a processor, on a busy machine, does not count. Raises
        WorkerTimedOut, WorkerDied.

        used_before: processor seconds of the process before the request.
        """
        begun = time.monotonic()
        used = 0.0
        while True:
            try:
                return self._worker.receive(max(seconds - used, MIN_WAIT_SECONDS))
            except WorkerTimedOut:
                used = self._worker.processor_seconds() - used_before
                elapsed = time.monotonic() - begun
                is_idle = used < MIN_PROCESSOR_SHARE * elapsed
                if used >= seconds or is_idle or elapsed >= MAX_SLOWDOWN * seconds:
                    raise

    @property
    def is_alive(self) -> bool:
        """True while the process runs."""
        return self._worker.alive

    def source_position(self, problem: Problem) -> str:
        """Returns the current or last position of the process in the problem's source; empty if
        unknown."""
        if self._worker.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._worker.pid, PLACE_SIGNAL)
            time.sleep(PLACE_SECONDS)
        self._printed.seek(0)
        printed = self._printed.read().decode("utf-8", "replace")
        match = _PLACE.search(printed.rpartition("most recent call first")[2])
        if match is None:
            return ""
        line, function = match.groups()
        return place_in_text(problem.source, function, int(line))

    def stop(self) -> None:
        """Kills the process during a reference; the waiting thread gets WorkerDied."""
        self.was_stopped = True
        self._worker.end()

    def end(self) -> None:
        """Kills the process and its children."""
        self._worker.close()
        self._printed.close()

    def close(self) -> None:
        """Ends a process that is not needed any more."""
        self.end()


def _memory_limit() -> int:
    pages = os.sysconf("SC_PHYS_PAGES")
    return int(REFERENCE_MEMORY_SHARE * pages * os.sysconf("SC_PAGE_SIZE"))
