"""PTX for the viewer, compiled while it goes on: one compilation at a time, the one asked for last."""

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

    def __init__(self, candidate_id: int, found: Assembly | str) -> None:
        super().__init__()
        self.candidate_id, self.found = candidate_id, found


class AssemblyRequest(NamedTuple):
    """The candidate whose assembly is wanted, and the target."""

    candidate_id: int
    problem: Problem
    source: str
    target: str


class Assembling:
    """`post` gets every AssemblyProgress and Assembled, in a thread of its own."""

    def __init__(self, post: Callable[[Message], object]) -> None:
        self._post = post
        self._assembler = Assembler()
        self._wanted: AssemblyRequest | None = None
        self._change = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def ask(self, wanted: AssemblyRequest) -> None:
        """Takes the place of what waits. A thread that nobody need wait for: quitting the viewer does not."""
        with self._change:
            self._wanted = wanted
            self._change.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="assembling", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ends the thread and its compiler, without waiting for a compilation that is under way."""
        with self._change:
            self._closed = True
            self._change.notify()
        self._assembler.close()

    def _work(self) -> None:
        while (wanted := self._next()) is not None:
            id = wanted.candidate_id
            found = self._assemble(wanted)
            if not self._closed:
                self._post(Assembled(id, found))

    def _next(self) -> AssemblyRequest | None:
        with self._change:
            self._change.wait_for(lambda: self._wanted is not None or self._closed)
            wanted, self._wanted = self._wanted, None
            return None if self._closed else wanted

    def _assemble(self, wanted: AssemblyRequest) -> Assembly | str:
        def say(step: str) -> None:
            if not self._closed:
                self._post(AssemblyProgress(wanted.candidate_id, step))

        try:
            return self._assembler.assemble(wanted.problem, wanted.source, wanted.target, say)
        except (InfrastructureError, ProblemError, ValueError, OSError) as error:
            return " ".join(str(error).split())
