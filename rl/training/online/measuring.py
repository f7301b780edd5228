"""Measures a policy on held-out problems: at temperature 1, drafts and repairs, by the same batch
runner and judges as in training.
"""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from kernelwright.agent.batch.runs import Batch
from kernelwright.policies.base import Value
from kernelwright.rl.training.online.rounds import Round, Rounds
from kernelwright.tools.problem import Problem

BAR_CHARACTERS = 20
"""Width of the progress bar, in characters."""
BOOTSTRAP_DRAWS = 2000
"""Number of resamples of the bootstrap."""


class HeldOutFigures(Value):
    """The figures of a policy on a held-out split."""

    split: str
    problems: int
    samples: int
    pass_at_1: float
    compile_rate: float
    solved: float
    """Share of trajectories correct within the allowed turns."""
    repair_rate: float | None
    tokens: float
    by_problem: dict[str, float]
    """pass@1 by the problem's hash, for paired comparisons."""


class PolicyComparison(Value):
    """A candidate compared with the champion on the same problems."""

    split: str
    before: float
    after: float
    difference: float
    low: float
    """Lower end of the 95 % interval of the paired difference (bootstrap over problems)."""
    high: float


class RolloutProgress:
    """Reports the progress of a measurement: a bar, the number of rollouts and the remaining
    time.
    """

    def __init__(self, title: str, rollouts: int, say: Callable[[str], None]) -> None:
        self._title, self._rollouts, self._say = title, rollouts, say
        self._started = time.monotonic()
        self._done_before: int | None = None
        self._earlier = 0
        """Rollouts of the splits before."""

    def watch(self, split: str, batch: Batch) -> None:
        """Reports the state of a batch of rollouts on a split."""
        standing = batch.standing
        done = self._earlier + standing.done
        if self._done_before is None:
            self._done_before = done - standing.here
        if batch.pausing:
            self._say(
                f"pausing: {done} of {self._rollouts} rollouts are kept, the same command goes on"
            )
            return
        share = done / max(1, self._rollouts)
        bar = "#" * round(BAR_CHARACTERS * share)
        remaining = self._estimate(done)
        self._say(
            f"{self._title} on {split} [{bar:.<{BAR_CHARACTERS}}] {done} of {self._rollouts} rollouts, {remaining}"
        )

    def end_split(self, rollouts: int) -> None:
        """Counts the rollouts of a finished split."""
        self._earlier += rollouts

    def _estimate(self, done: int) -> str:
        done_now = done - (self._done_before or 0)
        if done_now <= 0:
            return "no estimate before the first one ends"
        seconds = (time.monotonic() - self._started) / done_now * (self._rollouts - done)
        return f"about {format_duration(seconds)} left"


def format_duration(seconds: float) -> str:
    """Returns a duration to two digits: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{math.ceil(seconds / 5) * 5} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def measure(
    rounds: Rounds,
    splits: Mapping[str, Sequence[Problem]],
    samples: int,
    *,
    progress: RolloutProgress | None = None,
    give_up: Callable[[], None] = lambda: None,
    label: str = "held-out",
) -> list[HeldOutFigures]:
    """Measures the splits in turn. Every policy gets the same seeds, so two policies meet the
    same draws.

    label: of the runs in the store. give_up: abandons answers computed in this process; called after Ctrl-C.
    """
    figures = []
    for name, problems in splits.items():
        watch = partial(progress.watch, name) if progress else lambda batch: None
        run = f"{label}/{name.replace('/', '_')}"
        rollouts = rounds.run(0, problems, group=samples, label=run, watch=watch, give_up=give_up)
        figures.append(measured(name, rollouts))
        if progress:
            progress.end_split(samples * len(problems))
    return figures


def measured(split: str, rollouts: Round) -> HeldOutFigures:
    """Returns the figures of a round over held-out problems, by its first drafts."""
    figures = rollouts.figures
    drafts = [sample for sample in rollouts.log.all_scored if sample.depth == 0]
    outcomes: dict[str, list[bool]] = defaultdict(list)
    for sample in drafts:
        outcomes[sample.problem_hash].append(sample.correct)
    by_problem = {
        problem_hash: sum(correct) / len(correct)
        for problem_hash, correct in sorted(outcomes.items())
    }
    return HeldOutFigures(
        split=split,
        problems=len(outcomes),
        samples=len(drafts),
        pass_at_1=figures.get("pass_at_1", 0.0),
        compile_rate=figures.get("compile_rate", 0.0),
        solved=figures.get("solved", 0.0),
        repair_rate=figures.get("repair_rate"),
        tokens=figures.get("completion_length", 0.0),
        by_problem=by_problem,
    )


def compare(before: HeldOutFigures, after: HeldOutFigures) -> PolicyComparison:
    """Compares two measurements over their common problems."""
    both = sorted(set(before.by_problem) & set(after.by_problem))
    # Paired differences: each problem is its own control.
    steps = [after.by_problem[hash] - before.by_problem[hash] for hash in both]
    low, high = bootstrap_interval(steps)
    mean = sum(steps) / len(steps) if steps else 0.0
    return PolicyComparison(
        split=before.split,
        before=before.pass_at_1,
        after=after.pass_at_1,
        difference=mean,
        low=low,
        high=high,
    )


def bootstrap_interval(values: Sequence[float]) -> tuple[float, float]:
    """Returns the 95 % interval of the mean, by the percentile bootstrap with a fixed seed."""
    if not values:
        return 0.0, 0.0
    dice = random.Random(0)
    # The 2.5 % and 97.5 % quantiles of resampled means.
    means = sorted(
        sum(dice.choices(values, k=len(values))) / len(values) for _ in range(BOOTSTRAP_DRAWS)
    )
    return means[round(0.025 * BOOTSTRAP_DRAWS)], means[round(0.975 * BOOTSTRAP_DRAWS) - 1]


def is_better(compared: Sequence[PolicyComparison]) -> tuple[bool, str]:
    """Returns whether the mean difference over all splits is positive and no split is worse
    beyond chance, with the reason.
    """
    if not compared:
        return False, "nothing was measured"
    gain = sum(comparison.difference for comparison in compared) / len(compared)
    worse = [comparison for comparison in compared if comparison.high < 0]
    # A split is worse beyond chance if its whole interval lies below zero.
    if worse:
        return False, f"worse on {worse[0].split}: {worse[0].before:.1%} -> {worse[0].after:.1%}"
    if gain <= 0:
        return False, f"not better: {gain:+.1%} over all held-out splits"
    return True, f"better: {gain:+.1%} over all held-out splits, on none clearly worse"
