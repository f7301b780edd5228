"""A batch on 1, 2, 4 ... GPUs, one judge each: verdicts a second, the ratio to linear, and one judge killed. Judges are
processes of this machine; on all GPUs they are actors on Ray in a last turn, where that is installed.

The first size judges for a part of the time that there is; every other size judges those same candidates. Then, at
each size, one judge is killed at work in the middle of a few more verdicts. A size has its share of the cores, too.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from bench.several.candidates import Candidate, endless, read
from bench.several.results import PhaseRequest, Results, asked
from kernelwright.agent.judging.local_pool import LocalPool
from kernelwright.agent.judging.pool import MAX_VERDICT_ATTEMPTS, DeviceKind, JudgeLost
from kernelwright.tools.options import Options
from kernelwright.tools.report import Report

if TYPE_CHECKING:
    from kernelwright.agent.judging.ray_pool import RayPool

Pool: TypeAlias = "LocalPool | RayPool"
LEAST_SECONDS = 15.0
"""For the batch on one GPU."""
KILL_SECONDS = {DeviceKind.CUDA: 35.0, DeviceKind.CPU: 20.0}
"""That a judge's death, its return and the verdicts beside them take, about."""
TAIL = 1.25
"""What the same candidates take on more GPUs, over what they would take at best."""
BACK_SECONDS = 60.0
"""That a killed judge may take to be at work again."""


class Turn(NamedTuple):
    """One measurement: so many judges, as processes or as actors on Ray."""

    judges: int
    on_ray: bool = False

    @property
    def name(self) -> str:
        """As it is told of."""
        return (
            f"{self.judges} judge{'s' if self.judges > 1 else ''}{' on Ray' if self.on_ray else ''}"
        )

    def pool(self, devices: Sequence[str], workers: int) -> Pool:
        """A judge for each of the first devices; on a CPU a judge for each pretended device."""
        on_cpu = devices[0] == "cpu"
        if self.on_ray:
            from kernelwright.agent.judging.ray_pool import RayPool

            return (
                RayPool("local", self.judges, DeviceKind.CPU)
                if on_cpu
                else RayPool("local", workers)
            )
        return (
            LocalPool(["cpu"], self.judges)
            if on_cpu
            else LocalPool(list(devices[: self.judges]), workers)
        )


def turns(count: int) -> list[Turn]:
    """On 1, 2, 4 ... and all of so many devices; on all of them through Ray, too, where it is installed."""
    sizes = sorted({count, *itertools.takewhile(lambda n: n < count, (2**k for k in range(10)))})
    return [*map(Turn, sizes), *([Turn(count, on_ray=True)] if find_spec("ray") else [])]


def take_cores(cores: Sequence[int], judges: int, of: int) -> int:
    """Leaves this process and the judges that it starts the share of the cores that so many of the GPUs have.

    A machine with one GPU has that many. Given all of them, one judge would compile on cores that the others need.
    """
    share = sorted(cores)[: max(1, len(cores) * judges // of)]
    os.sched_setaffinity(0, share)
    return len(share)


def options_for(devices: Sequence[str]) -> Options:
    """On a GPU everything is checked and timed; on a CPU the problem's own small size is interpreted."""
    return Options(sizes=0, seed=1) if devices[0] == "cpu" else Options(torch_compile=False)


class Verdict(NamedTuple):
    """One candidate's way through the pool."""

    candidate: Candidate
    begun: list[tuple[float, str]]
    """When each attempt was begun, and by which judge."""
    lost: int
    report: Report | None
    error: str
    ended: float


class Feeder:
    """Keeps a pool busy, asks again what was lost, and remembers every attempt."""

    def __init__(self, pool: Pool, options: Options) -> None:
        self.pool, self._options = pool, options
        self.kind = pool.devices[0]
        self.verdicts: list[Verdict] = []
        self.last_fed = 0.0
        self._open: dict[Future[Report], tuple[Candidate, list[tuple[float, str]], int]] = {}

    def feed(self, candidates: Iterable[Candidate], until: float = float("inf")) -> None:
        """All of them, or as many as have about ended by then; returns when each has ended."""
        left = iter(candidates)
        more = True
        while more or self._open:
            while more and len(self._open) < self.pool.capacity(self.kind):
                if (
                    time.monotonic() + self._seconds_of_open() >= until
                    or (one := next(left, None)) is None
                ):
                    more, self.last_fed = False, time.monotonic()
                    break
                self._ask(one, [], 0)
            self._take()

    def _seconds_of_open(self) -> float:
        """That what is under way takes: as long as a verdict took, from its begin on, so far."""
        return statistics.fmean([one.ended - one.begun[-1][0] for one in self.verdicts] or [0.0])

    def _ask(self, candidate: Candidate, begun: list[tuple[float, str]], lost: int) -> None:
        options = self._options.model_copy(update={"own_work": candidate.own_work})

        def began(judge: str) -> None:
            begun.append((time.monotonic(), judge))

        future = self.pool.submit(candidate.problem, candidate.source, options, began=began)
        self._open[future] = (candidate, begun, lost)

    def _take(self) -> None:
        done, _ = wait(self._open, timeout=1.0, return_when=FIRST_COMPLETED)
        for future in done:
            candidate, begun, lost = self._open.pop(future)
            error = future.exception()
            if isinstance(error, JudgeLost):
                lost += 1
                if lost < MAX_VERDICT_ATTEMPTS:
                    self._ask(candidate, begun, lost)
                    continue
            report = None if error else future.result()
            self.verdicts.append(
                Verdict(candidate, begun, lost, report, str(error or ""), time.monotonic())
            )


def warm(pool: Pool, candidates: Sequence[Candidate], options: Options) -> None:
    """Every judge has made a verdict: what it imports and the GPU's context are there."""
    seen: set[str] = set()
    turns = endless(candidates[:1], f"warm {time.monotonic()}")
    while len(seen) < len(pool.judges()):
        ones = itertools.islice(turns, 2 * len(pool.judges()))
        asked = [pool.submit(one.problem, one.source, options, began=seen.add) for one in ones]
        for future in asked:
            future.result()


def measured(
    feeder: Feeder, candidates: Iterable[Candidate], until: float = float("inf")
) -> dict[str, Any]:
    """Figures of one size."""
    began = time.monotonic()
    feeder.feed(candidates, until)
    ends = [one.ended for one in feeder.verdicts]
    full = sum(ended <= feeder.last_fed for ended in ends)
    return {
        "verdicts": len(ends), "correct": sum(v.report is not None and v.report.correct for v in feeder.verdicts),
        "not_judged": sum(v.report is None for v in feeder.verdicts), "seconds": max(ends) - began,
        "a_second": len(ends) / (max(ends) - began),
        "a_second_while_all_had_work": full / max(1e-9, feeder.last_fed - began),
        "by_judge": dict(sorted(Counter(v.begun[-1][1] for v in feeder.verdicts).items())),
    }  # fmt: skip


class JudgeKiller:
    """Kills the last judge as soon as it is at work and `after` verdicts have ended; sees when it works again."""

    def __init__(self, feeder: Feeder, after: int) -> None:
        self.feeder, self._after = feeder, after
        self.at_work = 0
        self.when = 0.0
        self._over = False
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        pool = self.feeder.pool
        while not self.when and not self._over:
            time.sleep(0.01)
            judge = pool.judges()[-1]
            if (
                len(self.feeder.verdicts) >= self._after
                and judge.at_work
                and judge.name in pool.process_ids
            ):
                self.at_work, self.when = judge.at_work, time.monotonic()
                os.kill(pool.process_ids[judge.name], signal.SIGKILL)

    def seconds_until_back(self, ask: Callable[[], set[str]]) -> float | None:
        """From the kill until the judge of that name makes verdicts again. None where it does not, or was not killed.

        ask: has a verdict made by each judge that can, and gives their names.
        """
        self._over = True
        name, ends = self.feeder.pool.judges()[-1].name, time.monotonic() + BACK_SECONDS
        made = [
            v.begun[-1][0]
            for v in self.feeder.verdicts
            if v.report is not None and v.begun[-1][1] == name
        ]
        if again := [
            when for when in made if when > self.when
        ]:  # what was begun and lost in the same moment is not
            return min(again) - self.when if self.when else None
        while self.when and time.monotonic() < ends:
            if name in ask():
                return time.monotonic() - self.when
        return None


def with_a_kill(
    turn: Turn, pool: Pool, candidates: Sequence[Candidate], options: Options, results: Results
) -> None:
    """A few verdicts more for each judge, one of which is killed."""
    count, series = turn.judges, turn.name
    feeder = Feeder(pool, options)
    texts = list(
        itertools.islice(
            endless(candidates, f"killed {series}"),
            8 + 8 * count if pool.devices[0] is DeviceKind.CUDA else 4 + count,
        )
    )
    killed = JudgeKiller(feeder, after=count)
    began = time.monotonic()
    feeder.feed(texts)
    seconds = time.monotonic() - began
    extra = itertools.count()

    def ask() -> set[str]:
        names: set[str] = set()
        ones = [candidates[0].fresh(f"back {series}", next(extra)) for _ in range(2 * count)]
        for future in [
            pool.submit(one.problem, one.source, options, began=names.add) for one in ones
        ]:
            future.result()
        return names

    back = killed.seconds_until_back(ask)
    begun, lost = sum(len(v.begun) for v in feeder.verdicts), sum(v.lost for v in feeder.verdicts)
    results.add(
        "One judge killed at work", judges=turn.name, asked=len(texts),
        made=sum(v.report is not None for v in feeder.verdicts), verdicts_at_work_when_it_died=killed.at_work,
        attempts=begun, attempts_lost_on_record=lost, seconds=seconds, seconds_until_it_judges_again=back,
    )  # fmt: skip
    results.must(len(feeder.verdicts) == len(texts), f"{series}: every candidate has a verdict")
    results.must(
        begun == len(texts) + lost, f"{series}: each attempt beyond the first is on record as lost"
    )
    results.must(lost > 0 and back is not None, f"{series}: one was killed at work, and came back")


class Clock:
    """What of the phase's time is left for the batch on one GPU, and for killing judges."""

    def __init__(self, ends: float, turns: Sequence[Turn], kind: DeviceKind) -> None:
        self._ends, self._turns, self._kill = ends, turns, KILL_SECONDS[kind]
        self.begin_seconds = self.first_seconds = 0.0
        """That the judges of one turn took until each had made a verdict, and that the batch took on one GPU."""

    @property
    def left(self) -> float:
        return self._ends - time.monotonic()

    def share_of_first(self) -> float:
        """Seconds for the batch on one GPU, so that the later turns have time for the same candidates."""
        later = self._turns[1:]
        fixed = len(later) * self.begin_seconds + len(self._turns) * self._kill
        return max(
            LEAST_SECONDS,
            (self.left - fixed) / (1.0 + TAIL * sum(1 / turn.judges for turn in later)),
        )

    def has_room_for_a_kill(self, turn: Turn) -> bool:
        """Whether the turns after this one can still be measured, and have a judge killed; the last one always has."""
        later = self._turns[self._turns.index(turn) + 1 :]
        each = self.begin_seconds + self._kill
        needed = self._kill + sum(each + TAIL * self.first_seconds / one.judges for one in later)
        return not later or self.left > needed


class Batch:
    """The turns so far: the candidates of the first one, and its verdicts a second."""

    def __init__(self, given: PhaseRequest, results: Results, clock: Clock) -> None:
        self._given, self._results, self._clock = given, results, clock
        self._candidates, self._options = read(given.candidates), options_for(given.devices)
        self._chosen = list[Candidate]()
        self._first_rate = 0.0

    def take(self, turn: Turn, cores: int) -> None:
        """Measures one turn, and kills a judge of it where there is time."""
        began, results = time.monotonic(), self._results
        pool = turn.pool(self._given.devices, self._given.workers)
        try:
            warm(pool, self._candidates, self._options)
            self._clock.begin_seconds = max(self._clock.begin_seconds, time.monotonic() - began)
            row = self._same(turn, pool) if self._chosen else self._first(pool)
            row["of_linear"] = row["a_second"] / (turn.judges * self._first_rate)
            results.add("The same candidates on more GPUs", judges=turn.name, cores=cores, **row)
            results.must(row["not_judged"] == 0, f"{turn.name}: every candidate is judged")
            on_cpu = pool.devices[0] is DeviceKind.CPU
            results.must(on_cpu or row["of_linear"] >= 0.9, f"{turn.name}: 0.9 of linear")
            if self._clock.has_room_for_a_kill(turn):
                with_a_kill(turn, pool, self._candidates, self._options, results)
            else:
                results.add("One judge killed at work", judges=turn.name, asked="no time was left")
        finally:
            pool.close()

    def _first(self, pool: Pool) -> dict[str, Any]:
        feeder = Feeder(pool, self._options)
        until = time.monotonic() + self._clock.share_of_first()
        row = measured(feeder, endless(self._candidates, "one"), until)
        self._chosen, self._first_rate = [v.candidate for v in feeder.verdicts], row["a_second"]
        self._clock.first_seconds = row["seconds"]
        self._results.say(kinds=dict(Counter(one.kind for one in self._chosen)))
        return row

    def _same(self, turn: Turn, pool: Pool) -> dict[str, Any]:
        return measured(
            Feeder(pool, self._options), (one.fresh(f"of {turn.name}") for one in self._chosen)
        )


def main() -> int:
    given = asked(__doc__)
    results, everything = Results(given.out), sorted(os.sched_getaffinity(0))
    taken = turns(len(given.devices))
    clock = Clock(
        results.began + given.seconds, taken, DeviceKind(given.devices[0].partition(":")[0])
    )
    batch = Batch(given, results, clock)
    for turn in taken:
        batch.take(turn, take_cores(everything, turn.judges, len(given.devices)))
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
