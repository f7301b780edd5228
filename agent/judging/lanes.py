"""Lanes of a batch: policy calls, CPU rungs and the GPU have separate capacities, so none waits
for another's work.

Runs block only on lanes, so closing the lanes stops every run at a moment when nothing is half
done.

Example: with at_once=32, workers=2 and a GPU, up to 32 runs wait for a server's answers, 2
candidates are compiled and interpreted, and 1 is timed on the GPU, all at the same time.
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
"""Causes of a refusal shared by all runs: the first such refusal closes all lanes."""
MAX_RUNS_WAITING_FOR_GPU = 4
"""Number of candidates past the CPU rungs that may wait for the GPU, so the GPU is never idle."""


class LaneUsage(Value):
    """The current and the total use of a lane."""

    name: str
    places: int
    inside: int
    waiting: int
    entered: int
    busy_seconds: float
    """Seconds of use, summed over the lane's places."""
    utilisation: float
    """Mean share of the lane's places in use since the lanes were opened, 0 to 1."""


class Gate:
    """Counting semaphore. Once closed with an exception, all waiting and later callers get this
    exception.
    """

    def __init__(self, name: str, capacity: int) -> None:
        self.name, self.capacity = name, capacity
        self._free = threading.Condition()
        self._inside = self._waiting = self._entered = 0
        self._busy_seconds, self._last_change = 0.0, time.monotonic()
        self._opened = self._last_change
        self._closed: BaseException | None = None

    @contextmanager
    def enter(self) -> Iterator[None]:
        """Waits for a free place and holds it during the block. Raises the closing exception of a
        closed gate.
        """
        with self._free:
            self._waiting += 1
            try:
                while self._inside >= self.capacity and self._closed is None:
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
        """Raises the closing exception if the gate is closed."""
        if self._closed is not None:
            # Hundreds of threads raise the same exception: without this each would add its frames.
            raise self._closed.with_traceback(None)

    def _count(self, step: int) -> None:
        # Integrates the number of places in use over time.
        now = time.monotonic()
        self._busy_seconds += self._inside * (now - self._last_change)
        self._last_change = now
        self._inside += step

    def close(self, why: BaseException) -> None:
        """Closes the gate with an exception. A second call keeps the first exception."""
        with self._free:
            self._closed = self._closed or why
            self._free.notify_all()

    @property
    def traffic(self) -> LaneUsage:
        """Returns the numbers of runs inside and waiting, and the mean use of the places since the
        start.
        """
        with self._free:
            self._count(0)
            open_for = max(self._last_change - self._opened, 1e-9)
            return LaneUsage(
                name=self.name, places=self.capacity, inside=self._inside, waiting=self._waiting, entered=self._entered,
                busy_seconds=self._busy_seconds, utilisation=self._busy_seconds / (self.capacity * open_for),
            )  # fmt: skip


class Lanes:
    """The lanes of a batch: policy, CPU rungs, GPU and tuning."""

    def __init__(self, policy_capacity: int, workers: int, gpu: bool, tunes: bool = False) -> None:
        self.tuning = Gate("tuning", 1) if tunes else None
        self.policy = Gate("policy", policy_capacity)
        self.cpu = Gate("CPU rungs", workers)
        self.gpu = Gate("GPU", 1) if gpu else None
        self.workers = workers

    def __call__(self, lane: Lane) -> AbstractContextManager[None]:
        """Returns the context manager held by the evaluator during its work on a lane."""
        gate = self.gpu if lane.value == "gpu" else self.cpu
        assert gate is not None
        return gate.enter()

    @property
    def gates(self) -> list[Gate]:
        """The gates of this batch; policy and CPU rungs always exist."""
        return [gate for gate in (self.policy, self.cpu, self.gpu, self.tuning) if gate is not None]

    def close(self, why: BaseException) -> None:
        """Closes all gates. Runs inside a gate continue to the end of their block; no further run
        enters.
        """
        for gate in self.gates:
            gate.close(why)


class JudgingLane:
    """The evaluator of many runs: a few threads of its own judge, each with its own judge
    process, however many runs there are.
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
        """Returns the evaluator's verdict; each of its stages waits at its gate. Raises the
        exception with which the gates were closed.
        """
        self._lanes.cpu.check()
        return self._evaluator.submit(
            problem, source, options, progress or (lambda doing: None)
        ).result()


class RemoteLane:
    """Remote judges of many runs: at most as many verdicts under way as the CPU lane has places."""

    def __init__(self, evaluator: Evaluates, lanes: Lanes) -> None:
        self._evaluator, self._lanes = evaluator, lanes

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        """Returns a verdict of a remote judge; a place of the CPU gate is held from the beginning
        to the end.
        """
        with self._lanes.cpu.enter():
            return self._evaluator.evaluate(problem, source, options, progress)


class PolicyLane(Forwarding):
    """Policy shared by many runs.

    A policy computed in this process gets all waiting requests in one call.
    """

    def __init__(
        self, policy: Policy, gate: Gate, close: Callable[[BaseException], None], together: bool
    ) -> None:
        super().__init__(policy)
        self._gate, self._close = gate, close
        self._collector = RequestCollector(policy, gate) if together else None

    def close(self) -> None:
        """Does nothing: the policy belongs to its opener."""

    def sample(self, requests: Sequence[Request]) -> list[Completion]:
        """Samples through the gate, alone or together with requests of other runs. Closes all lanes
        for a refusal in ERRORS_THAT_STOP_EVERY_RUN.
        """
        try:
            if self._collector is not None:
                return [self._collector.ask(request) for request in requests]
            with self._gate.enter():
                return self.policy.sample(requests)
        except PolicyRefused as error:
            if error.trouble in ERRORS_THAT_STOP_EVERY_RUN:
                self._close(error)
            raise


class RequestCollector:
    """Collects requests: the first caller samples for all waiting callers, and the others wait
    for its answers.
    """

    def __init__(self, policy: Policy, gate: Gate) -> None:
        self._policy, self._gate = policy, gate
        self._lock, self._sampling = threading.Lock(), threading.Lock()
        self._waiting: list[_PendingRequest] = []

    def ask(self, request: Request) -> Completion:
        """Returns the answer to a request, sampled in one call with all other waiting requests.
        Raises PolicyError.
        """
        pending = _PendingRequest(request)
        with self._lock:
            self._waiting.append(pending)
        # Whoever gets the lock samples for all requests that wait; the others find their answers.
        while not pending.answered:
            with self._sampling:
                if not pending.answered:
                    self._ask_all()
        return pending.result()

    def _ask_all(self) -> None:
        with self._lock:
            # Requests beyond the policy's batch size stay in the list for the next caller.
            most = max(1, self._policy.capabilities.at_once)
            batch, self._waiting = self._waiting[:most], self._waiting[most:]
        try:
            with self._gate.enter():
                answers = self._policy.sample([pending.request for pending in batch])
        except PolicyError as error:
            self._one_by_one(batch, error)
            return
        except BaseException as error:
            for pending in batch:
                pending.error = error
            raise
        for pending, answer in zip(batch, answers, strict=True):
            pending.completion = answer

    def _one_by_one(self, batch: Sequence[_PendingRequest], error: PolicyError) -> None:
        """Samples each request alone, so the failure of one request does not fail the others."""
        for index, pending in enumerate(batch):
            pending.completion = error.finished.get(index)
            if pending.completion is not None:
                continue
            if len(batch) == 1:
                pending.error = error
                continue
            try:
                with self._gate.enter():
                    [pending.completion] = self._policy.sample([pending.request])
            except PolicyError as own_error:
                pending.error = own_error


class _PendingRequest:
    def __init__(self, request: Request) -> None:
        self.request = request
        self.completion: Completion | None = None
        self.error: BaseException | None = None

    @property
    def answered(self) -> bool:
        """Whether the policy has given a completion or raised."""
        return self.completion is not None or self.error is not None

    def result(self) -> Completion:
        """Returns the completion, or raises the policy's exception."""
        if self.error is not None:
            raise self.error
        assert self.completion is not None
        return self.completion
