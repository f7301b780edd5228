"""Two policies on the same problems: the paired difference of their pass@1, from what `rl evaluate` logged.

    python -m bench.paired BEFORE/rollouts.db AFTER/rollouts.db [--turns 1]
    python -m bench.paired BEFORE/rollouts.db,measured/sft.json AFTER/rollouts.db,measured/seed0.json      # both sets
    of problems together

A `.json` is what `bench.rl_study measure` wrote (its drafts alone; `--split`).

95 % interval by the bootstrap over problems, as `rl loop` takes it.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

from kernelwright.rl.training.online.measuring import bootstrap_interval
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter


def all_rates(asked: str, turns: int, split: str) -> dict[str, float]:
    """Reads the rates of every file named, with commas between the names."""
    found: dict[str, float] = {}
    for path in map(Path, asked.split(",")):
        found |= measured(path, split) if path.suffix == ".json" else rates(path, turns)
    return found


def measured(path: Path, split: str) -> dict[str, float]:
    known: dict[str, float] = json.loads(path.read_text(encoding="utf-8"))["splits"][split]["by_problem"]
    return known


def rates(path: Path, turns: int) -> dict[str, float]:
    """Share of each problem's trajectories that were right within so many turns."""
    right: dict[str, dict[int, bool]] = defaultdict(dict)
    with Store.open(path, create=False, readonly=True) as store:
        for candidate, trajectory, verdict in store.candidates(CandidateFilter(), limit=None):
            known = right[trajectory.problem].get(trajectory.id, False)
            now = candidate.turn < turns and verdict is not None and verdict.correct
            right[trajectory.problem][trajectory.id] = known or now
    return {problem: sum(own.values()) / len(own) for problem, own in right.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--turns", type=int, default=1)
    parser.add_argument("--split", default="synth:depth", help="of what `measure` wrote")
    asked = parser.parse_args()
    before, after = (all_rates(one, asked.turns, asked.split) for one in (asked.before, asked.after))
    both = sorted(before.keys() & after.keys())
    steps = [100 * (after[problem] - before[problem]) for problem in both]
    low, high = bootstrap_interval(steps)
    means = [100 * sum(found[problem] for problem in both) / len(both) for found in (before, after)]
    print(
        f"{len(both)} problems: {means[0]:.1f} % -> {means[1]:.1f} %, {means[1] - means[0]:+.1f} "
        f"({low:+.1f} to "
        f"{high:+.1f})"
    )


if __name__ == "__main__":
    main()
