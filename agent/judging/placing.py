"""Assigns waiting verdicts to judges, for the local pool and the pool on Ray.

Example with two CPU judges, a (domain `x`) and b (unused), and these verdicts in order of arrival:

    verdict 1, domain `x`  ->  judge a: its domain
    verdict 2, domain `y`  ->  judge b, now of domain `y`
    verdict 3, domain `z`  ->  waits; the least busy judge drains, ends, and its replacement begins verdict 3

A reference runs in the judge's process and may change this process, so a judge never serves two
domains.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple, Protocol

from kernelwright.agent.judging.messages import VerdictRequest
from kernelwright.agent.judging.pool import (
    DeviceKind,
    JudgeState,
    PoolClosed,
    VerdictCancelled,
    ignore,
)
from kernelwright.tools.faults import InfrastructureError
from kernelwright.tools.options import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.reference_trials.trials import reference_trials
from kernelwright.tools.reference_trials.worker import TrialOutcome
from kernelwright.tools.report import Report

log = logging.getLogger(__name__)
MAX_DEATHS_BEFORE_READY = 3
"""Consecutive failed starts after which a judge is not started again."""


class VerdictUnderWay(NamedTuple):
    """Callbacks of a verdict begun by a judge."""

    future: Future[Report]
    progress: Callable[[str], None]
    learned: Callable[[TrialOutcome], None] = lambda outcome: None
    """Called with the outcome of the reference's trial, if the judge ran the trial."""


class ReferenceMemory:
    """Stores outcomes of reference trials, so each reference is tried by one judge only.
    Thread-safe.

    Outcomes are kept by domain, because a client's reference may falsify the outcome reported by
    its own judge. Only outcomes of working references are stored.
    """

    def __init__(self) -> None:
        self._outcomes: dict[str, TrialOutcome] = {}
        self.save: Callable[[str, TrialOutcome], None] = lambda key, outcome: None
        """Called with the key and the value of each new outcome, in a thread of the pool."""

    def load(self, outcomes: Mapping[str, TrialOutcome]) -> None:
        """Adds the outcomes saved by an earlier server."""
        self._outcomes.update(outcomes)

    def find(self, domain: str, problem: Problem, train_mode: bool) -> TrialOutcome | None:
        """Returns the outcome for exactly this text and mode; None if unknown."""
        return self._outcomes.get(_memory_key(domain, problem, train_mode))

    def learn(self, domain: str, problem: Problem, train_mode: bool, outcome: TrialOutcome) -> None:
        """Remembers an outcome."""
        key = _memory_key(domain, problem, train_mode)
        if key not in self._outcomes:
            self._outcomes[key] = outcome
            self.save(key, outcome)


def _memory_key(domain: str, problem: Problem, train_mode: bool) -> str:
    parts = json.dumps([domain, problem.name, problem.source, train_mode])
    return hashlib.sha256(parts.encode()).hexdigest()


class JudgeHandle(Protocol):
    """Interface of a judge, local or remote. A judge calls the pool's `ended` after the end of each
    verdict and of itself.
    """

    name: str
    kind: DeviceKind
    trouble: str
    """Reason for a failed start."""
    was_ready: bool
    domain: str
    """Domain of the verdicts begun so far; empty if all references were trusted."""
    restarts: int
    """Number of earlier judges of this name."""
    is_draining: bool
    """True if the judge gets no further verdicts, because another process is to replace this one.
    """

    @property
    def state(self) -> JudgeState:
        """Returns the state of the judge: alive, ready, and its verdicts under way of its capacity."""

    @property
    def free(self) -> int:
        """Number of verdicts the judge could begin now."""
        ...

    def begin(self, ask: VerdictRequest, work: VerdictUnderWay) -> None:
        """Begins a verdict. Raises nothing: if the judge is dead, the future raises JudgeLost."""
        ...

    def stop(self, number: int) -> None:
        """Ends a verdict at its next step."""
        ...

    def end_over(self, number: int, error: Exception) -> None:
        """Ends the judge because of a verdict. This verdict raises `error`; the others raise
        JudgeEnded.
        """
        ...

    def retire(self) -> None:
        """Ends an idle judge, to be replaced by another process."""
        ...

    def close(self) -> None:
        """Ends the judge; verdicts under way raise PoolClosed."""
        ...


class WaitingVerdict(NamedTuple):
    """Verdict not yet assigned to a judge."""

    ask: VerdictRequest
    work: VerdictUnderWay
    device: DeviceKind
    began: Callable[[str], None]
    domain: str


class PlacingPool:
    """Base class of the pools: assigns verdicts to judges, and replaces dead judges by
    `_replacement`. Lost verdicts are not repeated.
    """

    def __init__(self, default: DeviceKind) -> None:
        self._default = default
        self.memory = ReferenceMemory()
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._waiting: deque[WaitingVerdict] = deque()
        self._placed: dict[Future[Report], tuple[JudgeHandle, int]] = {}
        self._barren: dict[str, int] = {}
        self._judges: list[JudgeHandle] = []
        self._closed = False

    def _replacement(self, judge: JudgeHandle) -> JudgeHandle | None:
        """Returns a new judge in place of a dead judge; None if there is to be none. The caller
        holds the lock.
        """
        raise InfrastructureError(
            f"the judge {judge.name} died: run the command again, or see agent doctor"
        )

    def judges(self) -> Sequence[JudgeState]:
        """Returns the state of each judge, dead ones included."""
        with self._lock:
            return tuple(judge.state for judge in self._judges)

    def submit(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] = ignore,
        device: DeviceKind | None = None,
        began: Callable[[str], None] = ignore,
        domain: str = "",
    ) -> Future[Report]:
        """Implements JudgePool.submit: queues the verdict, then assigns waiting verdicts to free
        judges.
        """
        future: Future[Report] = Future()
        options = options or Options()
        train_mode = options.train_mode
        outcome = self.memory.find(domain, problem, train_mode)
        ask = VerdictRequest(
            number=next(self._numbers), problem=problem, source=source, options=options,
            reference=outcome or reference_trials().known_outcome(problem, train_mode=train_mode),
        )  # fmt: skip
        with self._lock:
            if self._closed:
                raise PoolClosed("the judges are closed")
            learned = partial(self.memory.learn, domain, problem, train_mode)
            work = VerdictUnderWay(future, progress, learned)
            self._waiting.append(WaitingVerdict(ask, work, device or self._default, began, domain))
        self._assign()
        return future

    def fits(self, device: DeviceKind, domain: str) -> bool:
        """Implements JudgePool.fits: checks for a judge with a free place for this domain."""
        with self._lock:
            return self._free_judge(device, domain) is not None

    def cancel(self, future: Future[Report]) -> None:
        """Implements JudgePool.cancel: removes a waiting verdict, or asks its judge to stop."""
        placed = self._placed_or_refused(
            future, VerdictCancelled("nobody wants this verdict any more")
        )
        if placed is not None:
            judge, number = placed
            judge.stop(number)

    def end(self, future: Future[Report], error: InfrastructureError) -> None:
        """Implements JudgePool.end: removes a waiting verdict, or ends its judge."""
        placed = self._placed_or_refused(future, error)
        if placed is not None:
            judge, number = placed
            judge.end_over(number, error)

    def _placed_or_refused(
        self, future: Future[Report], error: InfrastructureError
    ) -> tuple[JudgeHandle, int] | None:
        """Returns the judge of a verdict and its number there. A verdict still waiting ends with
        the error.
        """
        with self._lock:
            waiting = next((entry for entry in self._waiting if entry.work.future is future), None)
            if waiting is not None:
                self._waiting.remove(waiting)
            placed = self._placed.get(future)
        if waiting is not None:
            future.set_exception(error)
        return placed

    def close(self) -> None:
        """Implements JudgePool.close: refuses waiting verdicts, then ends all judges in parallel."""
        with self._lock:
            self._closed = True
            judges, waiting = list(self._judges), list(self._waiting)
            self._waiting.clear()
        for verdict in waiting:
            verdict.work.future.set_exception(
                PoolClosed("the judges were closed before this verdict was begun")
            )
        closing = [threading.Thread(target=judge.close) for judge in judges]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()

    # -------------------------------------------------------------- placing
    def _assign(self) -> None:
        """Assigns waiting verdicts to free judges, in order of arrival within a kind of device."""
        begun: list[tuple[WaitingVerdict, JudgeHandle]] = []
        hopeless: list[tuple[WaitingVerdict, str]] = []
        blocked: list[WaitingVerdict] = []
        with self._lock:
            for kin in self._judges:  # one that ran trusted references alone needs no other process
                kin.is_draining = kin.is_draining and bool(kin.domain or self._work_of(kin))
            for waiting in list(self._waiting):
                judge = self._free_judge(
                    waiting.device, waiting.domain, [judge for _, judge in begun]
                )
                if judge is not None:
                    judge.domain = waiting.domain
                    self._placed[waiting.work.future] = (judge, waiting.ask.number)
                    begun.append((waiting, judge))
                elif why := self._no_hope(waiting.device):
                    hopeless.append((waiting, why))
                else:
                    blocked.append(waiting)
            self._waiting = deque(blocked)
            self._make_room(blocked)
        # Outside the lock: callbacks of the futures may call this pool.
        for waiting, why in hopeless:
            waiting.work.future.set_exception(
                InfrastructureError(f"no judge can be started ({why}): see agent doctor")
            )
        for waiting, judge in begun:
            waiting.work.future.add_done_callback(self._forget)
            waiting.began(judge.name)
            judge.begin(waiting.ask, waiting.work)

    def _free_judge(
        self, device: DeviceKind, domain: str, chosen_judges: Sequence[JudgeHandle] = ()
    ) -> JudgeHandle | None:
        """Returns the judge with the most free places among those allowed for a domain, judges of
        this domain first.

        chosen_judges: the judges of verdicts assigned in this round but not yet begun.
        """
        ranks: dict[int, tuple[bool, int]] = {}
        for index, judge in enumerate(self._judges):
            free = judge.free - chosen_judges.count(judge)
            is_unused = not judge.domain and not self._work_of(judge)
            if judge.kind is device and free > 0 and (judge.domain == domain or is_unused):
                # A judge of this domain comes before an unused one, which could still serve any
                # domain.
                ranks[index] = (judge.domain == domain, free)
        return self._judges[max(ranks, key=ranks.__getitem__)] if ranks else None

    def _make_room(self, blocked: Sequence[WaitingVerdict]) -> None:
        """Drains a judge for each verdict kept waiting by the domains of the judges. The caller
        holds the lock.
        """
        # Kinds of device have separate judges, so each is looked at alone.
        for device in dict.fromkeys(waiting.device for waiting in blocked):
            kin = [judge for judge in self._judges if judge.kind is device and judge.state.alive]
            domains = [waiting.domain for waiting in blocked if waiting.device is device]
            # A starting or draining judge will serve one of the waiting verdicts.
            for domain in domains[sum(not judge.was_ready or judge.is_draining for judge in kin) :]:
                self._drain_for(
                    domain, [judge for judge in kin if judge.was_ready and not judge.is_draining]
                )
        for judge in self._judges:
            if judge.is_draining and judge.state.alive and not self._work_of(judge):
                judge.retire()

    def _drain_for(self, domain: str, judges: Sequence[JudgeHandle]) -> None:
        """Drains an idle judge of another domain; without an idle judge, and without a judge of
        this domain, the least busy.
        """
        other_judges = [judge for judge in judges if judge.domain != domain]
        least_busy = min(other_judges, key=self._work_of, default=None)
        if least_busy is not None and (
            not self._work_of(least_busy) or len(other_judges) == len(judges)
        ):
            least_busy.is_draining = True

    def _work_of(self, judge: JudgeHandle) -> int:
        """Returns the number of verdicts assigned to a judge and not yet ended."""
        return sum(placed is judge for placed, _ in self._placed.values())

    def _no_hope(self, device: DeviceKind) -> str:
        """Returns the reason for the permanent lack of judges of this kind; empty if a judge exists
        or may start.
        """
        kin = [judge for judge in self._judges if judge.kind is device]
        if kin and not all(
            self._barren.get(judge.name, 0) >= MAX_DEATHS_BEFORE_READY for judge in kin
        ):
            return ""
        return (
            next((judge.trouble for judge in kin if judge.trouble), "")
            or "they die before they are ready"
        )

    def _forget(self, future: Future[Report]) -> None:
        with self._lock:
            self._placed.pop(future, None)

    def _ended(self, judge: JudgeHandle) -> None:
        """Assigns waiting verdicts after the end of a verdict, and replaces the judge if dead."""
        with self._lock:
            if judge in self._judges and not judge.state.alive and not self._closed:
                # Only failed starts in a row count: a judge that was ready resets the number.
                self._barren[judge.name] = (
                    0 if judge.was_ready else self._barren.get(judge.name, 0) + 1
                )
                if self._barren[judge.name] < MAX_DEATHS_BEFORE_READY:
                    self._replace(judge)
        self._assign()

    def _replace(self, judge: JudgeHandle) -> None:
        again = self._replacement(judge)
        index = self._judges.index(judge)
        if not judge.is_draining:
            log.warning(
                "the judge %s died, and %s",
                judge.name,
                "is started again" if again else "is given up",
            )
        if again is not None:
            # A drained judge was replaced on purpose, so this is no restart.
            again.restarts = judge.restarts + (not judge.is_draining)
        self._judges[index : index + 1] = [again] if again is not None else []
