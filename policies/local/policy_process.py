"""Process of a `ProcessPolicy`: `python -m kernelwright.policies.local.policy_process
DESCRIPTOR`.

First receives the model's path, its visible GPU and the options of `InProcessPolicy`; replies
with the opened
policy's properties or an error. Then answers requests until the pipe is closed.
"""

from __future__ import annotations

import contextlib
import os
import sys
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from kernelwright.policies.base import PolicyError
from kernelwright.policies.local.process_policy import (
    PendingRequest,
    ProcessAnswer,
    ProcessOpened,
    WeightsMoved,
    message_of_error,
)
from kernelwright.worker_process import connection_to_parent

if TYPE_CHECKING:
    from kernelwright.policies.local.in_process_policy import InProcessPolicy


def main() -> None:
    """Serves a policy over the pipe to the parent process until the pipe is closed."""
    connection, _ = connection_to_parent()
    with contextlib.suppress(EOFError, OSError):
        path, gpu, options = connection.recv()
        if gpu is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = gpu  # CUDA reads it when it is first asked for
        serve(connection, path, options)
    sys.stderr.flush()
    os._exit(0)  # taking torch down would take seconds, in which whoever closes this policy waits


def serve(connection: Connection, path: str, options: dict[str, Any]) -> None:
    """Serves until the other side closes; raises EOFError or OSError then."""
    from kernelwright.policies.local.in_process_policy import InProcessPolicy

    try:
        policy = InProcessPolicy(path, **options)
        policy.open()
    except PolicyError as error:
        connection.send(ProcessAnswer(0, None, message_of_error(error), (0, 0.0)))
        return
    connection.send(ProcessOpened(policy.name, policy.capabilities, policy.prompt_form))
    _Serving(connection, policy).run()


class _Serving:
    """Takes requests, works on them a burst at a time, and sends the answers."""

    def __init__(self, connection: Connection, policy: InProcessPolicy) -> None:
        self._connection, self._policy = connection, policy
        self._open: dict[int, Any] = {}

    def run(self) -> None:
        """Answers messages until the other side closes the pipe."""
        while True:
            while not self._open or self._connection.poll():
                if (message := self._connection.recv()) is None:
                    return
                self._take(message)
            try:
                self._policy.work()
            except Exception as error:
                for question in self._open.values():
                    question.error = question.error or error
                self._give()
                raise
            self._give()

    def _take(self, message: PendingRequest | WeightsMoved) -> None:
        if isinstance(message, PendingRequest):
            self._open[message.number] = self._policy.ask(message.request)
            return
        import torch

        answer: str | None = None
        trouble = None
        try:
            weights = torch.load(message.path, map_location="cpu", weights_only=True)
            answer = self._policy.update(weights, message.revision)
        except PolicyError as error:
            trouble = message_of_error(error)
        self._connection.send([ProcessAnswer(message.number, answer, trouble, self._policy.drawn)])

    def _give(self) -> None:
        answers = []
        for number, question in list(self._open.items()):
            if question.answered:
                del self._open[number]
                trouble = None if question.error is None else message_of_error(question.error)
                answers.append(
                    ProcessAnswer(number, question.completion, trouble, self._policy.drawn)
                )
        if answers:
            self._connection.send(answers)


if __name__ == "__main__":
    main()
