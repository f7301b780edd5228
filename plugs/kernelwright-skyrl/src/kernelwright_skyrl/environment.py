"""The environment: each turn hands a candidate in, and the verdict is what the policy sees next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from kernelwright_client import JudgeClient, Score, Weights, code_of

INSIST = 2
"""How often a fault that a loaded machine may have caused is judged again: SkyRL has no mask for it."""


class Unscored(RuntimeError):
    """The judge could not look at a candidate, and training on a guess would be wrong."""


class KernelEnv(BaseTextEnv):
    """One rollout of up to `extras["max_turns"]` candidates.

    Each turn's reward is what it improves on the best of the turns before, so that they add up to the best reward.
    """

    def __init__(self, env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None) -> None:
        """env_config: `judge_url`, `patience` and `weights`, all optional. extras: a row of `rows`.

        Raises ValueError where the row names no problem.
        """
        super().__init__()
        settings, row = dict(env_config or {}), dict(extras or {})
        self._problem = (row.get("reward_spec") or {}).get("ground_truth") or ""
        if not self._problem:
            raise ValueError("reward_spec.ground_truth of the row must name a problem of the judge: see rows()")
        self.max_turns = int(row.get("max_turns", 1))
        self._judge = _judge(settings.get("judge_url"), float(settings.get("patience", 900.0)))
        self._weights = Weights(**(settings.get("weights") or {}))
        self._best: float | None = None
        self._scores: list[Score] = []

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Judges one reply. Raises Unscored where there is no verdict."""
        self.turns += 1
        score = self._judge.score(self._problem, code_of(action))
        reward = score.reward(self._weights)
        if reward.total is None:
            raise Unscored(f"{self._problem}: {reward.failure_kind}: {reward.explanation}")
        gained = reward.total if self._best is None else max(0.0, reward.total - self._best)
        self._best = reward.total if self._best is None else max(self._best, reward.total)
        self._scores.append(score)
        done = score.correct or self.turns >= self.max_turns
        return BaseTextEnvStepOutput(
            observations=[] if done else [{"role": "user", "content": score.feedback()}],
            reward=gained,
            done=done,
            metadata={"ended_at": reward.ended_at, "failure_kind": reward.failure_kind, **reward.flat("part_")},
        )

    def get_metrics(self) -> dict[str, float]:
        """Of the rollout: whether it ended correct, and after how many candidates."""
        return {"correct": float(any(score.correct for score in self._scores)), "candidates": float(self.turns)}


def rows(
    judge: JudgeClient | None = None, names: Iterable[str] | None = None, max_turns: int = 1
) -> list[dict[str, Any]]:
    """Rows of a data set in SkyRL's form."""
    return [
        {
            "data_source": "kernelwright",
            "prompt": task.prompt,
            "env_class": "kernelwright",
            "reward_spec": {"method": "rule", "ground_truth": task.id},
            "max_turns": max_turns,
        }
        for task in (judge or JudgeClient()).tasks(names)
    ]


@lru_cache(maxsize=8)
def _judge(url: str | None, patience: float) -> JudgeClient:
    return JudgeClient(url, patience=patience, insist=INSIST)
