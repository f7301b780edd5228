"""How busy a batch keeps its tools: many runs, a policy that takes two seconds a reply, tools that take one second a
candidate.

    python -m bench.batch_lanes [--runs 64] [--workers 4] [--turns 3]

The policy is a real scripted one that sleeps; the tools are a stand-in that holds its lane for a second and finds the
code wrong, so that what is measured is the scheduling and the database, not the speed of a compiler.
bench/results/batch_lanes.md holds what was seen.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from kernelwright.agent.batch.lanes import Lanes, PolicyLane
from kernelwright.agent.batch.runs import Batch, list_jobs
from kernelwright.agent.loop.run_verdicts import RunJudge
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import Budgets
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.policies.scripted import Script, ScriptedPolicy, ScriptPart
from kernelwright.store.database import Store
from kernelwright.tools.pipeline import Lane, Options
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Failure, Fault, Report, Rung
from kernelwright.tools.source import candidate_hash


class SlowTools:
    """Takes a place of the CPU lane for so long."""

    def __init__(self, lanes: Lanes, seconds: float, threads: int) -> None:
        self._lanes, self._seconds, self._threads = lanes, seconds, threading.Semaphore(threads)

    def evaluate(
        self,
        problem: Problem,
        source: str,
        options: Options | None = None,
        progress: Callable[[str], None] | None = None,
    ) -> Report:
        with self._threads, self._lanes(Lane.CPU):
            time.sleep(self._seconds)
        wrong = Failure(fault=Fault.COMPILE, message="a stand-in finds everything wrong")
        return Report(
            problem=problem.name,
            problem_hash=problem.hash,
            candidate_hash=candidate_hash(source),
            rung=Rung.COMPILE,
            failure=wrong,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=64)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    answers = tuple(f"```python\nimport triton\nNUMBER = {turn}\n```" for turn in range(asked.turns))
    policy = ScriptedPolicy(Script(parts=(ScriptPart(answers=answers),), seconds=2.0))
    settings = Settings(policy="scripted:bench", budgets=Budgets(turns=asked.turns))
    lanes = Lanes(asked.runs, asked.workers, gpu=False)
    with tempfile.TemporaryDirectory() as folder, Store.open(Path(folder) / "runs.db") as store:
        judging = RunJudge(SlowTools(lanes, 1.0, asked.workers), Options())
        lane = PolicyLane(policy, lanes.policy, lanes.close, together=False)
        run = store.open_run("bench")
        batch = Batch(store, run, list_jobs([find_by_name("fused_silu")], asked.runs), lane, judging, settings, lanes)
        standing = batch.run(asked.runs)
    best = asked.runs * asked.turns / asked.workers
    print(f"{standing.done} of {standing.jobs} runs in {standing.seconds:.1f} s; the tools alone take {best:.0f} s")
    for traffic in standing.lanes:
        print(f"{traffic.name}: {traffic.places} places, {traffic.entered} entered, busy {traffic.utilisation:.1%}")


if __name__ == "__main__":
    main()
