"""Code inside a Ray actor: one evaluator, with the requests and replies of messages.py as JSON."""

from __future__ import annotations

import os
import threading

from kernelwright.agent.judging.messages import JudgeReady, VerdictRequest
from kernelwright.agent.judging.ray_front import FrontTasks
from kernelwright.agent.judging.verdict_maker import VerdictMaker


class JudgeActor:
    """Class of the Ray actor (ray_judge.py). Methods run in parallel threads."""

    def __init__(self, device: str, workers: int, elsewhere: bool = False) -> None:
        """Starts the evaluator.

        device: `cpu`, or `cuda:0` (Ray shows the actor one GPU only). elsewhere: trace and compile
        candidates in tasks of the cluster instead of this actor's processes.
        """
        self._maker = VerdictMaker(device, workers, elsewhere=FrontTasks if elsewhere else None)
        self._device = device
        self._closed = threading.Event()
        self._doing: dict[int, str] = {}

    def ready(self) -> tuple[str, str, int]:
        """Returns JudgeReady as JSON, the compilation target of the device, and the process id."""
        from kernelwright.agent.runtime.arguments import choose_targets

        environment = self._maker.evaluator.environment()
        return (
            JudgeReady(environment=environment).model_dump_json(),
            choose_targets([], self._device)[0],
            os.getpid(),
        )

    def live(self) -> None:
        """Returns when the actor is closed. The call raises in its caller if the actor dies."""
        self._closed.wait()

    def make(self, ask: str) -> str:
        """Returns VerdictReply or VerdictError as JSON.

        A plain call: a stream of messages costs Ray milliseconds each, and a small verdict takes a
        tenth of a second in all.
        """
        request = VerdictRequest.model_validate_json(ask)

        def step(doing: str) -> None:
            self._doing[request.number] = doing

        try:
            return self._maker.make(request, step).model_dump_json()
        finally:
            self._doing.pop(request.number, None)

    def doing(self, number: int) -> str:
        """Returns the current step of the verdict with this number; empty before its begin and
        after its end.
        """
        return self._doing.get(number, "")

    def stop(self, number: int) -> None:
        """Ends the verdict with this number at its next step."""
        self._maker.stop(number)

    def close(self) -> None:
        """Ends the evaluator's processes and returns `live`."""
        self._closed.set()
        self._maker.close()
