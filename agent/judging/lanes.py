"""Lanes of a batch: policy calls, CPU rungs and the GPU each have their own places, so that none waits for another's
work.

A run waits nowhere but at a lane, so closing the lanes stops every run at a moment when nothing is half done.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from kernelwright.policies.base import (
    Completion,
    Policy,
    PolicyError,
    PolicyRefused,
    Request,
    Trouble,
    Value,
)
from kernelwright.policies.forwarding import Forwarding
from kernelwright.tools.report import Report

if TYPE_CHECKING:
    from kernelwright.agent.loop.run_verdicts import Evaluates
    from kernelwright.tools.evaluation.pipeline import Evaluator, Lane, Options
    from kernelwright.tools.problem import Problem

ERRORS_THAT_STOP_EVERY_RUN = frozenset(
    {Trouble.KEY, Trouble.QUOTA, Trouble.MODEL, Trouble.NAME, Trouble.NOT_INSTALLED, Trouble.PRICES}
)
"""Refusals that meet every run alike: the first one closes the lanes."""
MAX_RUNS_WAITING_FOR_GPU = 4
"""Candidates through the CPU rungs that may wait for the GPU, so that it never waits for them."""


class LaneUsage(Value):
    """One lane, at this moment and on the whole."""

    name: str
    places: int
    inside: int
    waiting: int
    entered: int
    busy_seconds: float
    """Seconds that its places were taken, summed over all places."""
    utilisation: float
    """The share of its places that were taken since the lanes were opened, 0 to 1."""


class Gate:
    """A lane with so many places. Raises what the lanes were closed with."""

    def __init__(self, name: str, places: int) -> None:
        self.name, self.places = name, places
        self._free = threading.Condition()
        self._inside = self._waiting = self._entered = 0
        self._busy, self._since = 0.0, time.monotonic()
        self._opened = self._since
        self._closed: BaseException | None = None

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Waits for a free place and holds it for the block. Raises what the gate was closed with."""
        with self._free:
            self._waiting += 1
            try:
                while self._inside >= self.places and self._closed is None:
                    self._free.wait()
            finally:
                self._waiting -= 1
            self.check()
            self._count(1)
            self._entered += 1
        try:
            yield
        finally:
            with self._free:
                self._count(-1)
                self._free.notify()

    def check(self) -> None:
        """Raises where it is closed."""
        if self._closed is not None:
            # Hundreds of threads raise the same one: without this each would add its frames to those of all before it.
            raise self._closed.with_traceback(None)

    def _count(self, step: int) -> None:
        now = time.monotonic()
        self._busy += self._inside * (now - self._since)
        self._since = now
        self._inside += step

    def close(self, why: BaseException) -> None:
        """Closes the gate: every run that waits or arrives gets `why`. The first reason stays."""
        with self._free:
            self._closed = self._closed or why
            self._free.notify_all()

    @property
    def traffic(self) -> LaneUsage:
        """Returns the numbers of runs inside and waiting now, and the share of place-seconds that was used so far."""
        with self._free:
            self._count(0)
            open_for = max(self._since - self._opened, 1e-9)
            return LaneUsage(
                name=self.name, places=self.places, inside=self._inside, waiting=self._waiting, entered=self._entered,
                busy_seconds=self._busy, utilisation=self._busy / (self.places * open_for),
            )  # fmt: skip


class Lanes:
    """The lanes of one batch."""

    def __init__(self, policy_places: int, workers: int, gpu: bool, tunes: bool = False) -> None:
        self.tuning = Gate("tuning", 1) if tunes else None
        self.policy = Gate("policy", policy_places)
        self.cpu = Gate("CPU rungs", workers)
        self.gpu = Gate("GPU", 1) if gpu else None
        self.workers = workers

    def __call__(self, lane: Lane) -> AbstractContextManager[None]:
        """Returns the context that the evaluator enters while it works."""
        gate = self.gpu if lane.value == "gpu" else self.cpu
        assert gate is not None
        return gate.enter()

    @property
    def gates(self) -> list[Gate]:
        """The gates that this batch has: always policy and CPU rungs."""
        return [gate for gate in (self.policy, self.cpu, self.gpu, self.tuning) if gate is not None]

    def close(self, why: BaseException) -> None:
        """Closes all gates: runs that are inside continue to their end, and no other enters."""
        for gate in self.gates:
            gate.close(why)


class JudgingLane:
    """The evaluator as runs see it: judged by a few threads of its own, each with its judge, however many runs
    there are.
    """

    def __init__(self, evaluator: Evaluator, lanes: Lanes) -> None:
        self._evaluator, self._lanes = evaluator, lanes

    @staticmethod
    def threads(workers: int, gpu: bool) -> int:
        """Returns how many threads the evaluator is to have."""
        return workers + (MAX_RUNS_WAITING_FOR_GPU if gpu else 0)

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """Returns the evaluator's verdict; each of its stages waits at its gate. Raises the exception that the gates
        were closed with.
        """
        self._lanes.cpu.check()
        return self._evaluator.submit(
            problem, source, options, progress or (lambda doing: None)
        ).result()


class RemoteLane:
    """Judges elsewhere as runs see them: as many verdicts under way as the CPU lane has places."""

    def __init__(self, evaluator: Evaluates, lanes: Lanes) -> None:
        self._evaluator, self._lanes = evaluator, lanes

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """A verdict that is made elsewhere, with a place of the CPU gate held from the beginning to the end."""
        with self._lanes.cpu.enter():
            return self._evaluator.evaluate(problem, source, options, progress)


class PolicyLane(Forwarding):
    """A policy that many runs ask at once.

    One that computes in this process is given all questions that wait, together.
    """

    def __init__(
        self, policy: Policy, gate: Gate, close: Callable[[BaseException], None], together: bool
    ) -> None:
        super().__init__(policy)
        self._gate, self._close = gate, close
        self._gather = RequestCollector(policy, gate) if together else None

    def close(self) -> None:
        """The policy belongs to who opened it."""

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Answers through the gate, alone or with others' questions; a hopeless refusal closes every lane."""
        try:
            if self._gather is not None:
                return [self._gather.ask(request) for request in requests]
            with self._gate.enter():
                return self.policy.sample(requests)
        except PolicyRefused as error:
            if error.trouble in ERRORS_THAT_STOP_EVERY_RUN:
                self._close(error)
            raise


class RequestCollector:
    """Collects requests: the first caller samples for all that wait, and the others wait for its answers."""

    def __init__(self, policy: Policy, gate: Gate) -> None:
        self._policy, self._gate = policy, gate
        self._lock, self._asking = threading.Lock(), threading.Lock()
        self._waiting: list[_Question] = []

    def ask(self, request: Request) -> Completion:
        """The answer to one request, asked in one call with all that wait at the time. Raises PolicyError."""
        question = _Question(request)
        with self._lock:
            self._waiting.append(question)
        while not question.answered:
            with self._asking:
                if not question.answered:
                    self._ask_all()
        return question.result()

    def _ask_all(self) -> None:
        with self._lock:
            most = max(1, self._policy.capabilities.at_once)
            batch, self._waiting = self._waiting[:most], self._waiting[most:]
        try:
            with self._gate.enter():
                answers = dict(
                    enumerate(self._policy.sample([question.request for question in batch]))
                )
        except PolicyError as error:
            self._one_by_one(batch, error)
            return
        except BaseException as error:
            for question in batch:
                question.error = error
            raise
        for place, question in enumerate(batch):
            question.completion = answers[place]

    def _one_by_one(self, batch: Sequence[_Question], error: PolicyError) -> None:
        """Samples one request at a time, so that one which cannot be answered does not fail the others."""
        for place, question in enumerate(batch):
            question.completion = error.finished.get(place)
            if question.completion is not None:
                continue
            if len(batch) == 1:
                question.error = error
                continue
            try:
                with self._gate.enter():
                    [question.completion] = self._policy.sample([question.request])
            except PolicyError as own:
                question.error = own


class _Question:
    def __init__(self, request: Request) -> None:
        self.request = request
        self.completion: Completion | None = None
        self.error: BaseException | None = None

    @property
    def answered(self) -> bool:
        """Whether the policy has given a completion or raised."""
        return self.completion is not None or self.error is not None

    def result(self) -> Completion:
        """Returns the completion, or raises what the policy raised."""
        if self.error is not None:
            raise self.error
        assert self.completion is not None
        return self.completion
