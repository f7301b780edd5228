"""What runs inside a Ray actor: one evaluator, whose verdicts are streams of messages (messages.py, as JSON)."""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Iterator

from kernelwright.agent.judging.messages import Ask, Judged, Ready, Step, Trouble
from kernelwright.agent.judging.ray_front import FrontTasks
from kernelwright.agent.judging.verdict_maker import VerdictMaker

Message = Step | Judged | Trouble
STEP_SECONDS = 0.25
"""Between two steps that are told."""


class JudgeActor:
    """Ray makes an actor of it (ray_judge.py). Its methods run side by side in threads."""

    def __init__(self, device: str, workers: int, elsewhere: bool = False) -> None:
        """device: `cpu`, or `cuda:0` where Ray shows the actor one GPU only.

        elsewhere: candidates are traced and compiled by tasks of the cluster, and not by this actor's processes.
        """
        self._maker = VerdictMaker(device, workers, elsewhere=FrontTasks if elsewhere else None)
        self._device = device
        self._closed = threading.Event()

    def ready(self) -> tuple[str, str, int]:
        """Ready as JSON, the target of its device, and its process."""
        from kernelwright.agent.command_line.arguments import choose_targets

        environment = self._maker.evaluator.environment()
        return Ready(environment=environment).model_dump_json(), choose_targets([], self._device)[0], os.getpid()

    def live(self) -> None:
        """Returns when the actor is closed: who waits for it learns that the actor has died."""
        self._closed.wait()

    def make(self, ask: str) -> Iterator[str]:
        """The steps of a verdict, and at last the verdict, or why there is none.

        Of steps that follow each other closely only the newest is told: a message costs Ray milliseconds.
        """
        asked = Ask.model_validate_json(ask)
        messages: queue.SimpleQueue[Message] = queue.SimpleQueue()

        def work() -> None:
            step = lambda doing: messages.put(Step(number=asked.number, doing=doing))  # noqa: E731
            messages.put(self._maker.make(asked, step))

        threading.Thread(target=work, daemon=True).start()
        told = 0.0
        while True:
            message = _newest(messages, told + STEP_SECONDS)
            yield message.model_dump_json()
            if not isinstance(message, Step):
                return
            told = time.monotonic()

    def stop(self, number: int) -> None:
        """The verdict of that number ends at its next step."""
        self._maker.stop(number)

    def close(self) -> None:
        """Ends the evaluator's processes."""
        self._closed.set()
        self._maker.close()


def _newest(messages: queue.SimpleQueue[Message], until: float) -> Message:
    """The newest step at that moment (time.monotonic), or the end as soon as it is there."""
    message = messages.get()
    while isinstance(message, Step) and (left := until - time.monotonic()) > 0:
        try:
            message = messages.get(timeout=left)
        except queue.Empty:
            break
    return message
