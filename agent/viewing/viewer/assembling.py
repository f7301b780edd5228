"""Compiles PTX for the viewer in the background: one compilation at a time, always the latest
request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import NamedTuple

from textual.message import Message

from kernelwright.tools.judging.assembly import Assembler, Assembly
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import InfrastructureError


class AssemblyProgress(Message):
    """The progress of a compilation, from its own thread."""

    def __init__(self, candidate_id: int, text: str) -> None:
        super().__init__()
        self.candidate_id, self.text = candidate_id, text


class Assembled(Message):
    """The result of a compilation, or the reason in words why there is none."""

    def __init__(self, candidate_id: int, result: Assembly | str) -> None:
        super().__init__()
        self.candidate_id, self.result = candidate_id, result


class AssemblyRequest(NamedTuple):
    """The candidate and the target of a requested assembly."""

    candidate_id: int
    problem: Problem
    source: str
    target: str


class Assembling:
    """Compiles in a thread of its own; `post` receives every AssemblyProgress and Assembled."""

    def __init__(self, post: Callable[[Message], object]) -> None:
        self._post = post
        self._assembler = Assembler()
        self._request: AssemblyRequest | None = None
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def ask(self, request: AssemblyRequest) -> None:
        """Replaces the waiting request. The thread is a daemon, so quitting the viewer does not
        wait for it.
        """
        with self._change:
            self._request = request
            self._change.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="assembling", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ends the thread and its compiler, without waiting for a compilation under way."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._assembler.close()

    def _work(self) -> None:
        while (request := self._next()) is not None:
            id = request.candidate_id
            result = self._assemble(request)
            if not self._closed:
                self._post(Assembled(id, result))

    def _next(self) -> AssemblyRequest | None:
        with self._change:
            self._change.wait_for(lambda: self._request is not None or self._closed)
            request, self._request = self._request, None
            return None if self._closed else request

    def _assemble(self, request: AssemblyRequest) -> Assembly | str:
        def say(step: str) -> None:
            if not self._closed:
                self._post(AssemblyProgress(request.candidate_id, step))

        try:
            return self._assembler.assemble(request.problem, request.source, request.target, say)
        except (InfrastructureError, ProblemError, ValueError, OSError) as error:
            return " ".join(str(error).split())
