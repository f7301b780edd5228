"""KernelBench solved within so many turns: one trajectory a problem by the agent's own machine, correctness at the
problem's own sizes, no timing.

    python -m bench.kernelbench_turns run    --work DIR --kernelbench CHECKOUT --policy transformers:P --device cuda:0
    --level 1 --seconds 240 python -m bench.kernelbench_turns report --work DIR

What was not judged when the time was up counts as not solved; the same command goes on.
"""

from __future__ import annotations

import argparse
import threading
from contextlib import suppress
from datetime import date
from pathlib import Path

LEVELS = {1: 100, 2: 100}
"""Problems of each; all count."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("part", choices=("run", "report"))
    add("--work", type=Path, required=True)
    add("--kernelbench", type=Path)
    add("--policy", default="embedded")
    add("--device", default="cuda:0")
    add("--level", type=int, default=1)
    add("--limit", type=int, default=None)
    add("--turns", type=int, default=8)
    add("--workers", type=int, default=6)
    add("--temperature", type=float, default=0.8)
    add("--seconds", type=float, default=1e9, help="when to stop")
    asked = parser.parse_args()
    asked.work.mkdir(parents=True, exist_ok=True)
    if asked.part == "run":
        run(asked)
    report(asked)


def run(asked: argparse.Namespace) -> None:
    from kernelwright.agent.batch.lanes import Lanes, PolicyLane
    from kernelwright.agent.batch.runs import Batch, list_jobs
    from kernelwright.agent.loop.run_verdicts import RunJudge
    from kernelwright.agent.loop.settings import Settings
    from kernelwright.agent.loop.stopping import Budgets
    from kernelwright.agent.prompts import Prompts
    from kernelwright.policies.local.in_process_policy import InProcessPolicy
    from kernelwright.rl.evaluating.suites import open_suite
    from kernelwright.rl.training.online.judges import JudgePool
    from kernelwright.store.database import Store
    from kernelwright.tools.pipeline import Options

    problems = open_suite(f"kernelbench:{asked.kernelbench}", asked.limit, asked.level).problems
    policy = InProcessPolicy(asked.policy.removeprefix("transformers:"), device=asked.device)
    settings = Settings(
        policy=asked.policy, device=asked.device, budgets=Budgets(turns=asked.turns), temperature=asked.temperature,
        reply_tokens=1024, seed=0,
        prompt_version=Prompts(policy.prompt_form).version,
    )  # fmt: skip
    with (
        JudgePool(asked.device, asked.workers, asked.work / "verdicts") as judges,
        Store.open(asked.work / "runs.db") as store,
    ):
        lanes = Lanes(len(problems), judges.workers, gpu=False)
        lane = PolicyLane(policy, lanes.policy, lanes.close, together=False)
        judging = RunJudge(judges, Options(targets=("sm_90",), profile=False, torch_compile=False))
        opened = store.open_run(f"level-{asked.level}", {"turns": asked.turns, "policy": asked.policy})
        batch = Batch(store, opened, list_jobs(problems, 1), lane, judging, settings, lanes)
        clock = threading.Timer(asked.seconds, lanes.close, [KeyboardInterrupt()])
        clock.daemon = True
        clock.start()
        with suppress(KeyboardInterrupt):
            batch.run(len(problems))
        clock.cancel()
    policy.close()
    standing = batch.standing
    print(f"level {asked.level}: {standing.done} of {standing.jobs} finished, {standing.correct} right", flush=True)


def report(asked: argparse.Namespace) -> None:
    """A line a level: solved within 1, 2, 4 ... turns of all its problems."""
    from bench.paired import rates
    from kernelwright.store.database import Store
    from kernelwright.store.records import TrajectoryFilter

    path = asked.work / "runs.db"
    right = {turns: rates(path, turns) for turns in sorted({1, 2, 3, 4, 8, asked.turns}) if turns <= asked.turns}
    with Store.open(path, create=False, readonly=True) as store:
        for level, problems in LEVELS.items():
            run = f"level-{level}"
            if not store.trajectories(TrajectoryFilter(run=run), limit=1):
                continue
            done = store.trajectories(TrajectoryFilter(run=run, finished=True), limit=None)
            of_level = f"kernelbench:{level}/"
            found = [f"{t}: {sum(r for p, r in of.items() if p.startswith(of_level)):.0f}" for t, of in right.items()]
            print(
                f"level {level}, {date.today().isoformat()}: solved within turns {', '.join(found)} of "
                f"{problems}; {len(done)} of {problems} trajectories "
                "finished"
            )


if __name__ == "__main__":
    main()
