"""What the loop itself costs a turn: the machine, the prompt, the feedback, the verdict's cache and every row, without
policy and tools.

    python -m bench.loop [--turns 300] [--profile] > bench/results/loop.md

The policy is a scripted one that answers at once; each program differs from the others, and its verdict (a real one: a
mismatch, whose feedback is the longest there is) lies in the cache of a real evaluator. Goal: under 10 ms a turn,
database writes included.
"""

from __future__ import annotations

import argparse
import cProfile
import os
import platform
import pstats
import statistics
import sys
import tempfile
import time
from pathlib import Path

from kernelwright.agent.loop.run import Run
from kernelwright.agent.loop.run_verdicts import RunJudge
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import Budgets
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.policies.scripted import ScriptedPolicy
from kernelwright.store.database import Store
from kernelwright.tools.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Report
from kernelwright.tools.source import candidate_hash
from kernelwright.tools.verdict_cache import VerdictCache

KERNEL = Path(__file__).parents[1] / "tests" / "kernels" / "good" / "fused_silu.py"
GOAL = 10.0
"""Milliseconds a turn."""


def programs(turns: int) -> list[str]:
    """Wrong at the last three elements, each a little different."""
    wrong = KERNEL.read_text(encoding="utf-8").replace("mask=mask).to", "mask=offsets < n - 3, other=0.0).to")
    return [f"{wrong}\n\nNUMBER = {turn}\n" for turn in range(turns)]


def fill(folder: Path, problem: Problem, sources: list[str], report: Report) -> None:
    """One real verdict under the key of each program."""
    cache = VerdictCache(folder)
    for source in sources:
        own = candidate_hash(source)
        key = cache.key(own, problem.hash, report.environment, Options().model_dump_json())
        cache.keep(key, report.with_(candidate_hash=own))


class Loop:
    """One trajectory of so many turns, timed turn by turn."""

    def __init__(self, store: Store, evaluator: Evaluator, problem: Problem, sources: list[str]) -> None:
        policy = ScriptedPolicy([f"Here it is.\n\n```python\n{source}```\n" for source in sources])
        settings = Settings(policy="scripted:bench", budgets=Budgets(turns=len(sources)))
        trajectory = store.begin(settings.start(problem), resume=False)
        judging = RunJudge(evaluator, Options())
        self._ends: list[float] = []
        self._run = Run(store, trajectory, problem, policy, judging, settings, lambda run, doing: self._note())

    def _note(self) -> None:
        if len(self._run.attempts) > len(self._ends):
            self._ends.append(time.perf_counter())

    def milliseconds(self) -> list[float]:
        """Returns the milliseconds of each turn, from verdict to verdict."""
        start = time.perf_counter()
        self._run.run()
        assert all(attempt.report and attempt.report.cached for attempt in self._run.attempts)
        return [1000 * (end - begin) for begin, end in zip([start, *self._ends], self._ends, strict=False)]


def fsync_milliseconds(folder: Path) -> float:
    """What the disk takes to say that a page is there: one of them is in each turn."""
    took = []
    with (folder / "page").open("wb") as file:
        for _ in range(50):
            file.write(bytes(4096))
            file.flush()
            start = time.perf_counter()
            os.fsync(file.fileno())
            took.append(1000 * (time.perf_counter() - start))
    return statistics.median(took)


def table(times: list[float], cpu: float, fsync: float) -> str:
    ordered = sorted(times)
    tenth = max(1, len(times) // 10)
    rows = [
        ("median", statistics.median(times)),
        ("mean", statistics.fmean(times)),
        ("95th percentile", ordered[int(0.95 * len(ordered))]),
        (f"median of the first {tenth} turns", statistics.median(times[:tenth])),
        (f"median of the last {tenth} turns", statistics.median(times[-tenth:])),
        ("processor time, mean", cpu),
        ("one fsync on this disk, median", fsync),
    ]
    return "\n".join(["| a turn | ms |", "| --- | --- |", *(f"| {name} | {value:.2f} |" for name, value in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--profile", action="store_true", help="where the time goes, on stderr")
    asked = parser.parse_args()
    problem, sources = find_by_name("fused_silu"), programs(asked.turns)
    with tempfile.TemporaryDirectory(dir=".") as name, Evaluator(workers=1, cache_dir=Path(name)) as evaluator:
        folder = Path(name)
        fill(folder, problem, sources, evaluator.evaluate(problem, programs(asked.turns + 1)[-1]))
        with Store.open(folder / "runs.db") as store:
            Loop(store, evaluator, problem, sources[:5]).milliseconds()  # imports
            loop = Loop(store, evaluator, problem, sources)
            profile, cpu = cProfile.Profile(), time.process_time()
            times = profile.runcall(loop.milliseconds) if asked.profile else loop.milliseconds()
            cpu = 1000 * (time.process_time() - cpu) / len(times)
        fsync = fsync_milliseconds(folder)
    if asked.profile:
        pstats.Stats(profile, stream=sys.stderr).sort_stats("cumulative").print_stats(45)
    print("# What the loop costs a turn\n")
    print(
        f"`python -m bench.loop --turns {asked.turns}`, {time.strftime('%Y-%m-%d')}, {os.cpu_count()} "
        f"cores ({platform.machine()}), ",
        end="",
    )
    print(f"load average {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, SQLite on a local disk.")
    print(
        f"One trajectory of {len(times)} turns, a scripted policy, every verdict from the cache; all rows "
        "are written, the verdict's "
        "durably.\n"
    )
    print(table(times, cpu, fsync))
    met = "met" if statistics.median(times) < GOAL else "missed"
    print(f"\nThe goal of {GOAL:.0f} ms a turn is {met}.")


if __name__ == "__main__":
    main()
