"""A judge's timings, itself against itself, while the GPUs beside it do nothing, multiply, copy, or reduce.

The same candidates are judged on the first GPU again and again, the conditions in turns. The ratio of a condition is
its median over that of the quiet turns; within 1.00 +- 0.01, or the report names the neighbour. With two GPUs a ring
for all-reduces must hold the judging GPU itself: then the judge has to refuse, or to say so.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, NamedTuple

from bench.several.batch import Turn, warm
from bench.several.candidates import Candidate, read
from bench.several.results import Results, asked
from kernelwright.agent.judging.local_pool import LocalPool
from kernelwright.tools.options import Options
from kernelwright.tools.report import InfrastructureError

NAMES = ("fused_softmax", "layer_norm", "matmul", "attention")
"""Problems of both kinds: bound by memory, and by arithmetic."""
TOLERANCE = 0.01
TABLE = "One judge beside its neighbours"
QUIET, AGAIN = "nothing", "nothing, again"
SETTLE_SECONDS = 1.0
"""Between the begin of a load and the first verdict beside it: the driver's busy share is of the last second."""


class Condition(NamedTuple):
    """What the other GPUs do."""

    name: str
    kind: str = ""
    devices: tuple[str, ...] = ()
    shared: bool = False
    """Whether the judging GPU is among those at work."""


def conditions(devices: list[str]) -> list[Condition]:
    """In the order in which they are tried."""
    judge, others = devices[0], tuple(devices[1:])
    found = [Condition(QUIET)]
    if others:
        found += [
            Condition("matrix products", "products", others),
            Condition("copies to the host", "copies", others),
        ]
    found.append(Condition(AGAIN))
    if len(others) > 1:
        found.append(Condition("all-reduces among the others", "all_reduce", others))
    if others:
        found.append(
            Condition(
                "all-reduces with the judging GPU", "all_reduce", (judge, *others), shared=True
            )
        )
    return found


class Loader:
    """A process that works beside the judge when it is told to."""

    def __init__(self, condition: Condition) -> None:
        command = [sys.executable, "-m", "bench.several.load", "--kind", condition.kind]
        command += ["--devices", ",".join(condition.devices)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, word: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        self._process.stdout.readline()

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class TimedVerdict(NamedTuple):
    """One verdict under one condition."""

    milliseconds: float | None
    named: float
    """The largest busy share of a neighbour in its report; 0 where none is named."""
    sm_mhz: int | None
    refused: str


def judged(pool: LocalPool, candidate: Candidate, number: int) -> TimedVerdict:
    """On a CPU there is no clock of record: the seconds of the verdict stand for it, as a rehearsal."""
    on_gpu = pool.devices[0].value == "cuda"
    options = Options(sizes=0, seed=1, torch_compile=False)
    one = candidate.variant("beside", number)
    try:
        report = pool.submit(one.problem, one.source, options).result()
    except InfrastructureError as error:
        return TimedVerdict(None, 0.0, None, str(error)[:120])
    if not on_gpu:
        return TimedVerdict(report.seconds * 1e3, 0.0, None, "")
    profile = report.profile
    if profile is None or profile.candidate is None:
        return TimedVerdict(None, 0.0, None, report.explanation[:120])
    busy = max((one.busy for one in profile.neighbours), default=0.0)
    return TimedVerdict(
        profile.candidate.median, busy, profile.clocks.sm_mhz if profile.clocks else None, ""
    )


class Turns:
    """All conditions in turns, until the time is up."""

    def __init__(
        self, pool: LocalPool, candidates: list[Candidate], asked_for: list[Condition]
    ) -> None:
        self.pool, self.candidates, self.conditions = pool, candidates, asked_for
        self.seen: dict[tuple[str, str], list[TimedVerdict]] = defaultdict(list)
        self.rounds = self._number = 0
        self._loaders = {one.name: Loader(one) for one in asked_for if one.kind}

    def run(self, ends: float, turned: Callable[[], None]) -> None:
        """At least one whole round. `turned` is called after each verdict."""
        while not self.rounds or time.monotonic() < ends:
            for condition in self.conditions:
                self._turn(condition, turned)
                if self.rounds and time.monotonic() >= ends:
                    return
            self.rounds += 1

    def _turn(self, condition: Condition, turned: Callable[[], None]) -> None:
        loader = self._loaders.get(condition.name)
        if loader is not None:
            loader.tell("go")
        time.sleep(SETTLE_SECONDS)
        for candidate in self.candidates:
            self._number += 1
            seen = judged(self.pool, candidate, self._number)
            self.seen[condition.name, candidate.problem.name].append(seen)
            turned()
        if loader is not None:
            loader.tell("rest")

    def close(self) -> None:
        for loader in self._loaders.values():
            loader.close()


def row_of(turns: Turns, condition: Condition, problem: str) -> dict[str, Any]:
    """One line: the ratio to the quiet turns, and what the reports named."""
    quiet = [one.milliseconds for one in turns.seen[QUIET, problem] if one.milliseconds]
    seen = turns.seen[condition.name, problem]
    times = [one.milliseconds for one in seen if one.milliseconds]
    ratio = statistics.median(times) / statistics.median(quiet) if times and quiet else None
    clocks = [one.sm_mhz for one in seen if one.sm_mhz]
    return {
        "beside": condition.name, "problem": problem, "verdicts": len(seen),
        "ms": statistics.median(times) if times else None, "ratio": ratio,
        "reports_that_name_a_neighbour": sum(one.named > 0 for one in seen),
        "its_busy_share": max((one.named for one in seen), default=0.0),
        "sm_mhz": statistics.median(clocks) if clocks else None,
        "refused": next((one.refused for one in seen if one.refused), ""),
    }  # fmt: skip


def rows_of(turns: Turns) -> list[dict[str, Any]]:
    return [
        row_of(turns, one, candidate.problem.name)
        for one in turns.conditions
        for candidate in turns.candidates
    ]


def examined(rows: list[dict[str, Any]], results: Results) -> None:
    """Within the tolerance, refused, or the report names the neighbour."""
    for row in rows:
        within = row["ratio"] is not None and abs(row["ratio"] - 1.0) <= TOLERANCE
        told = bool(row["refused"]) or row["reports_that_name_a_neighbour"] > 0
        results.must(
            within or told,
            f"{row['beside']}, {row['problem']}: 1.00 +- 0.01, or the neighbour is named",
        )


def main() -> int:
    given = asked(__doc__)
    results, ends = Results(given.out), time.monotonic() + given.seconds - 10
    known = {one.problem.name: one for one in read(given.candidates) if one.kind == "ours"}
    candidates = [known[name] for name in NAMES if name in known]
    if given.devices[0] == "cpu":
        candidates = candidates[:2]
    pool = Turn(1).pool(given.devices, given.workers)
    turns = Turns(pool, candidates, conditions(given.devices))
    try:
        warm(pool, candidates, Options(sizes=0, torch_compile=False))
        for candidate in candidates:
            judged(pool, candidate, -1)
        turns.run(ends, lambda: results.table(TABLE, rows_of(turns)))
        results.say(whole_rounds=turns.rounds, judging=given.devices[0])
        results.table(TABLE, rows_of(turns))
        if given.devices[0] != "cpu":
            examined(rows_of(turns), results)
    finally:
        turns.close()
        pool.close()
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
