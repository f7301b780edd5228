"""Judges on this machine: one process for each GPU, or for each CPU slot where there is none."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from kernelwright.agent.judging.local_judge import AtWork, LocalJudge
from kernelwright.agent.judging.messages import Ask
from kernelwright.agent.judging.pool import DeviceKind, JudgeState, PoolClosed, VerdictCancelled, ignore
from kernelwright.agent.judging.verdict_maker import capacity_of
from kernelwright.tools.faults import InfrastructureError
from kernelwright.tools.judging.options import Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Environment, Report

log = logging.getLogger(__name__)
BARREN = 3
"""Times in a row that a judge may die before it was ready; then it is not started again."""


class Waiting(NamedTuple):
    """A verdict that no judge has begun."""

    ask: Ask
    work: AtWork
    device: DeviceKind
    began: Callable[[str], None]


class LocalPool:
    """Implements JudgePool. A judge that dies is started again; its verdicts are not (JudgeLost)."""

    def __init__(self, devices: Sequence[str], workers: int) -> None:
        """devices: `cpu` or `cuda:N`, the default kind first; `cpu` stands for `workers` judges of one verdict each.

        Raises InfrastructureError where a GPU is not there.
        """
        self._workers = workers
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._waiting: deque[Waiting] = deque()
        self._placed: dict[Future[Report], tuple[LocalJudge, int]] = {}
        self._barren: dict[str, int] = {}
        self._closed = False
        self._places = [place for device in devices for place in _places(device, workers)]
        self._environments = {_kind(device): _environment(device) for device in reversed(devices)}
        self._targets = {_kind(device): _target(device) for device in reversed(devices)}
        self._judges = [LocalJudge(name, device, workers, self._ended) for name, device in self._places]

    @property
    def devices(self) -> Sequence[DeviceKind]:
        return tuple(dict.fromkeys(_kind(device) for _, device in self._places))

    def capacity(self, device: DeviceKind) -> int:
        return sum(capacity_of(place, self._workers) for _, place in self._places if _kind(place) is device)

    def environment(self, device: DeviceKind) -> Environment:
        return self._environments[device]

    def target(self, device: DeviceKind) -> str:
        return self._targets[device]

    def judges(self) -> Sequence[JudgeState]:
        with self._lock:
            return tuple(judge.state for judge in self._judges)

    @property
    def process_ids(self) -> Sequence[int]:
        """Of the judges that are alive."""
        with self._lock:
            return tuple(judge.process_id for judge in self._judges if judge.state.alive)

    def submit(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] = ignore,
        device: DeviceKind | None = None,
        began: Callable[[str], None] = ignore,
    ) -> Future[Report]:
        """See JudgePool.submit."""
        future: Future[Report] = Future()
        ask = Ask(number=next(self._numbers), problem=problem, source=source, options=options or Options())
        with self._lock:
            if self._closed:
                raise PoolClosed("the judges are closed")
            self._waiting.append(Waiting(ask, AtWork(future, progress), device or self.devices[0], began))
        self._place()
        return future

    def cancel(self, future: Future[Report]) -> None:
        with self._lock:
            waiting = next((one for one in self._waiting if one.work.future is future), None)
            if waiting is not None:
                self._waiting.remove(waiting)
            placed = self._placed.get(future)
        if waiting is not None:
            future.set_exception(VerdictCancelled("nobody wants this verdict any more"))
        elif placed is not None:
            judge, number = placed
            judge.stop(number)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            judges, waiting = list(self._judges), list(self._waiting)
            self._waiting.clear()
        for one in waiting:
            one.work.future.set_exception(PoolClosed("the judges were closed before this verdict was begun"))
        closing = [threading.Thread(target=judge.close) for judge in judges]
        for thread in closing:
            thread.start()
        for thread in closing:
            thread.join()

    # -------------------------------------------------------------- placing
    def _place(self) -> None:
        """Gives what waits to judges that are free, in order of arrival within a kind."""
        begun: list[tuple[Waiting, LocalJudge]] = []
        hopeless: list[tuple[Waiting, str]] = []
        with self._lock:
            for waiting in list(self._waiting):
                judge = self._free_judge(waiting.device, [judge for _, judge in begun])
                if judge is None and not (why := self._no_hope(waiting.device)):
                    continue
                self._waiting.remove(waiting)
                if judge is None:
                    hopeless.append((waiting, why))
                    continue
                self._placed[waiting.work.future] = (judge, waiting.ask.number)
                begun.append((waiting, judge))
        for waiting, why in hopeless:  # outside the lock: callbacks of the future may ask this pool again
            waiting.work.future.set_exception(InfrastructureError(f"no judge can be started ({why}): see agent doctor"))
        for waiting, judge in begun:
            waiting.work.future.add_done_callback(self._forget)
            waiting.began(judge.name)
            judge.begin(waiting.ask, waiting.work)

    def _free_judge(self, device: DeviceKind, taken: Sequence[LocalJudge]) -> LocalJudge | None:
        """The one with the most room, those given in this round counted."""
        room = {judge: judge.free - taken.count(judge) for judge in self._judges if judge.kind is device}
        best = max(room, key=lambda judge: room[judge], default=None)
        return best if best is not None and room[best] > 0 else None

    def _no_hope(self, device: DeviceKind) -> str:
        """Why no judge of this kind will ever be there; empty where one may be."""
        kin = [judge for judge in self._judges if judge.kind is device]
        if kin and not all(self._barren.get(judge.name, 0) >= BARREN for judge in kin):
            return ""
        return next((judge.trouble for judge in kin if judge.trouble), "") or "they die before they are ready"

    def _forget(self, future: Future[Report]) -> None:
        with self._lock:
            self._placed.pop(future, None)

    def _ended(self, judge: LocalJudge) -> None:
        """A verdict of this judge, or the judge itself, has ended."""
        with self._lock:
            if judge in self._judges and not judge.state.alive and not self._closed:
                self._barren[judge.name] = 0 if judge.was_ready else self._barren.get(judge.name, 0) + 1
                if self._barren[judge.name] < BARREN:
                    log.warning("the judge %s died, and is started again", judge.name)
                    again = LocalJudge(judge.name, judge.device, self._workers, self._ended)
                    self._judges[self._judges.index(judge)] = again
        self._place()


def _kind(device: str) -> DeviceKind:
    return DeviceKind.CPU if device == "cpu" else DeviceKind.CUDA


def _places(device: str, workers: int) -> list[tuple[str, str]]:
    """Name and device of each judge."""
    return [(f"cpu:{number}", "cpu") for number in range(workers)] if device == "cpu" else [(device, device)]


def _environment(device: str) -> Environment:
    from kernelwright.tools.hardware.machine_info import evaluating_environment

    return evaluating_environment(device)[0]


def _target(device: str) -> str:
    from kernelwright.agent.command_line.arguments import choose_targets

    return choose_targets([], device)[0]
