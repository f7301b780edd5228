"""Measures a policy on problems that it was not trained on: at temperature 1, drafts and repairs, by the same machine
and the same judges.
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
BOOTSTRAP_DRAWS = 2000
"""Draws of the bootstrap."""


class HeldOutFigures(Value):
    """The figures of one policy on one held-out split."""

    split: str
    problems: int
    samples: int
    pass_at_1: float
    compile_rate: float
    solved: float
    """Within the turns that were allowed."""
    repair_rate: float | None
    tokens: float
    by_problem: dict[str, float]
    """pass@1 of each problem's hash, for paired comparisons."""


class PolicyComparison(Value):
    """A candidate against the champion, on the same problems."""

    split: str
    before: float
    after: float
    difference: float
    low: float
    """The lower end of the 95 % interval of the paired difference (bootstrap over problems)."""
    high: float


class RolloutProgress:
    """Says how far the rollouts of a measurement are: a bar, their number and the time that is left."""

    def __init__(self, title: str, rollouts: int, say: Callable[[str], None]) -> None:
        self._title, self._rollouts, self._say = title, rollouts, say
        self._started = time.monotonic()
        self._known: int | None = None
        self._earlier = 0
        """Rollouts of the splits before."""

    def watch(self, split: str, batch: Batch) -> None:
        """Says the state of a batch of rollouts on one split."""
        standing = batch.standing
        done = self._earlier + standing.done
        if self._known is None:
            self._known = done - standing.here
        if batch.pausing:
            self._say(
                f"pausing: {done} of {self._rollouts} rollouts are kept, the same command goes on"
            )
            return
        share = done / max(1, self._rollouts)
        bar = "#" * round(BAR_CHARACTERS * share)
        left = self._estimate(done)
        self._say(
            f"{self._title} on {split} [{bar:.<{BAR_CHARACTERS}}] {done} of {self._rollouts} rollouts, {left}"
        )

    def end_split(self, rollouts: int) -> None:
        """Counts the rollouts of a split that has ended."""
        self._earlier += rollouts

    def _estimate(self, done: int) -> str:
        here = done - (self._known or 0)
        if here <= 0:
            return "no estimate before the first one ends"
        seconds = (time.monotonic() - self._started) / here * (self._rollouts - done)
        return f"about {format_duration(seconds)} left"


def format_duration(seconds: float) -> str:
    """Returns a duration to two digits: `40 s`, `12 min`, `3.5 h`."""
    if seconds < 90:
        return f"{math.ceil(seconds / 5) * 5} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def measure(
    rounds: Rounds, splits: Mapping[str, Sequence[Problem]], samples: int, step: int, label: str = "held-out", *,
    progress: RolloutProgress | None = None, give_up: Callable[[], None] = lambda: None,
) -> list[HeldOutFigures]:  # fmt: skip
    """Measures the splits one after the other. The same step and label give the same seeds, so two policies meet the
    same draws.

    give_up: ends the answers that are made in this process; called after Ctrl-C.
    """
    figures = []
    for name, problems in splits.items():
        watch = partial(progress.watch, name) if progress else lambda batch: None
        run_label = f"{label}/{name.replace('/', '_')}"
        rollouts = rounds.run(
            step, problems, group=samples, label=run_label, watch=watch, give_up=give_up
        )
        figures.append(measured(name, rollouts))
        if progress:
            progress.end_split(samples * len(problems))
    return figures


def measured(split: str, found: Round) -> HeldOutFigures:
    """Sums up a round over held-out problems by its first drafts."""
    figures, drafts = found.figures, [s for s in found.log.all_scored if s.depth == 0]
    scores: dict[str, list[bool]] = defaultdict(list)
    for sample in drafts:
        scores[sample.problem_hash].append(sample.correct)
    return HeldOutFigures(
        split=split, problems=len(scores), samples=len(drafts), pass_at_1=figures.get("pass_at_1", 0.0),
        compile_rate=figures.get("compile_rate", 0.0),
        solved=figures.get("solved", 0.0), repair_rate=figures.get("repair_rate"),
        tokens=figures.get("completion_length", 0.0),
        by_problem={hash: sum(right) / len(right) for hash, right in sorted(scores.items())},
    )  # fmt: skip


def compare(before: HeldOutFigures, after: HeldOutFigures) -> PolicyComparison:
    """Compares two measurements over the problems that both met."""
    both = sorted(set(before.by_problem) & set(after.by_problem))
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
    """95 % of the mean, by the percentile bootstrap with a fixed seed."""
    if not values:
        return 0.0, 0.0
    dice = random.Random(0)
    means = sorted(
        sum(dice.choices(values, k=len(values))) / len(values) for _ in range(BOOTSTRAP_DRAWS)
    )
    return means[round(0.025 * BOOTSTRAP_DRAWS)], means[round(0.975 * BOOTSTRAP_DRAWS) - 1]


def is_better(compared: Sequence[PolicyComparison]) -> tuple[bool, str]:
    """Better over all splits together, and on none worse than chance explains. With the reason."""
    if not compared:
        return False, "nothing was measured"
    gain = sum(one.difference for one in compared) / len(compared)
    worse = [one for one in compared if one.high < 0]
    if worse:
        return False, f"worse on {worse[0].split}: {worse[0].before:.1%} -> {worse[0].after:.1%}"
    if gain <= 0:
        return False, f"not better: {gain:+.1%} over all held-out splits"
    return True, f"better: {gain:+.1%} over all held-out splits, on none clearly worse"
