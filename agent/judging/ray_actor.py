"""The code inside a Ray actor: one evaluator, which is asked and answers in the judges' messages (messages.py, as
JSON).
"""

from __future__ import annotations

import os
import threading

from kernelwright.agent.judging.messages import JudgeReady, VerdictRequest
from kernelwright.agent.judging.ray_front import FrontTasks
from kernelwright.agent.judging.verdict_maker import VerdictMaker


class JudgeActor:
    """Ray makes an actor of it (ray_judge.py). Its methods run side by side in threads."""

    def __init__(self, device: str, workers: int, elsewhere: bool = False) -> None:
        """device: `cpu`, or `cuda:0` where Ray shows the actor one GPU only.

        elsewhere: candidates are traced and compiled by tasks of the cluster, and not by this actor's processes.
        """
        self._maker = VerdictMaker(device, workers, elsewhere=FrontTasks if elsewhere else None)
        self._device = device
        self._closed = threading.Event()
        self._doing: dict[int, str] = {}

    def ready(self) -> tuple[str, str, int]:
        """Ready as JSON, the target of its device, and its process."""
        from kernelwright.agent.runtime.arguments import choose_targets

        environment = self._maker.evaluator.environment()
        return (
            JudgeReady(environment=environment).model_dump_json(),
            choose_targets([], self._device)[0],
            os.getpid(),
        )

    def live(self) -> None:
        """Returns when the actor is closed: who waits for it learns that the actor has died."""
        self._closed.wait()

    def make(self, ask: str) -> str:
        """The verdict, or why there is none, when it is made. A plain call: a stream of messages costs Ray milliseconds
        for each, and a small verdict takes a tenth of a second in all.
        """
        request = VerdictRequest.model_validate_json(ask)

        def step(doing: str) -> None:
            self._doing[request.number] = doing

        try:
            return self._maker.make(request, step).model_dump_json()
        finally:
            self._doing.pop(request.number, None)

    def doing(self, number: int) -> str:
        """Returns the step of the verdict with that number; empty before it begins and when it has ended."""
        return self._doing.get(number, "")

    def stop(self, number: int) -> None:
        """The verdict of that number ends at its next step."""
        self._maker.stop(number)

    def close(self) -> None:
        """Ends the evaluator's processes."""
        self._closed.set()
        self._maker.close()
