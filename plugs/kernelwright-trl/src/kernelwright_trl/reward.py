"""The reward function of GRPOTrainer: all verdicts of a batch are made side by side."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import uuid4

from kernelwright_client import JudgeClient, Pays, Reward, code_of


class KernelReward:
    """`reward_funcs=KernelReward()`. The data set needs a column `problem` (`kernel_dataset` makes one).

    A completion that could not be judged gets None, which TRL leaves out of the mean and of the gradient.
    """

    def __init__(self, judge: JudgeClient | None = None, weights: Pays = None) -> None:
        """judge: None asks the one that KERNELWRIGHT_JUDGE_URL names.
        weights: Weights, a preset's name or a function of a Score.
        """
        self._judge, self._weights = judge or JudgeClient(), weights
        self._calls = 0
        self.run = uuid4().hex[:8]
        """What tells the groups of this training from those of another one on the same judge."""
        self.__name__ = "kernel_reward"

    async def __call__(
        self,
        completions: Sequence[str | Sequence[Mapping[str, Any]]],
        problem: Sequence[str],
        log_extra: Callable[[str, list[Any]], None] | None = None,
        log_metric: Callable[[str, float], None] | None = None,
        trainer_state: Any = None,
        **_: Any,
    ) -> list[float | None]:
        """One reward for each completion. Raises JudgeError for what the user must mend."""
        asked = [
            (name, code_of(completion))
            for name, completion in zip(problem, completions, strict=True)
        ]
        self._calls += 1
        step = getattr(trainer_state, "global_step", self._calls)
        scores = await self._judge.score_many_async(
            asked, group=[f"trl/{self.run}/step-{step}/{name}" for name in problem]
        )
        rewards = [score.reward(self._weights) for score in scores]
        if log_extra is not None:
            log_extra("ended_at", [reward.ended_at for reward in rewards])
            log_extra("fault", [reward.failure_kind for reward in rewards])
        if log_metric is not None:
            _log(rewards, log_metric)
        return [reward.total for reward in rewards]


def _log(rewards: Sequence[Reward], log_metric: Callable[[str, float], None]) -> None:
    """The mean of each part, and the share that was masked."""
    scored = [reward for reward in rewards if not reward.masked]
    log_metric("kernel/masked", 1.0 - len(scored) / max(1, len(rewards)))
    for part in scored[0].parts if scored else ():
        log_metric(f"kernel/{part}", statistics.fmean(reward.parts[part] for reward in scored))
