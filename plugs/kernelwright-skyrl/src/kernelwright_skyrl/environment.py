"""The environment: each turn hands a candidate in, and the verdict is what the policy sees next."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from skyrl_gym.envs.base_text_env import BaseTextEnv, BaseTextEnvStepOutput

from kernelwright_client import Episode, JudgeClient, code_of


class Unscored(RuntimeError):
    """The judge could not look at a candidate, and training on a guess would be wrong."""


class KernelEnv(BaseTextEnv):
    """One rollout of up to `extras["max_turns"]` candidates.

    Each turn's reward is what it changes of the rollout's, so that they add up to the best candidate's reward, or to
    that of a cheat.
    """

    def __init__(
        self, env_config: Mapping[str, Any] | None = None, extras: Mapping[str, Any] | None = None
    ) -> None:
        """env_config: `judge_url`, `patience`, `until` (`correct`, or `turns` to go on for a faster kernel) and
        `weights` (a table or a preset's name), all optional. extras: a row of `rows`, and `group` of rollouts of one
        prompt.

        Raises ValueError where the row names no problem.
        """
        super().__init__()
        settings, row = dict(env_config or {}), dict(extras or {})
        self._problem = (row.get("reward_spec") or {}).get("ground_truth") or ""
        if not self._problem:
            raise ValueError(
                "reward_spec.ground_truth of the row must name a problem of the judge: see rows()"
            )
        self.max_turns = int(row.get("max_turns", 1))
        self._judge = _judge(settings.get("judge_url"), float(settings.get("patience", 900.0)))
        self._group = str(row.get("group") or f"skyrl/{self._problem}")
        self._episode = Episode(
            self.max_turns, settings.get("until", "correct"), settings.get("weights")
        )

    def step(self, action: str) -> BaseTextEnvStepOutput:
        """Judges one reply. Raises Unscored where there is no verdict."""
        self.turns += 1
        score = self._judge.score(self._problem, code_of(action), group=self._group)
        gained = self._episode.add(score)
        reward = self._episode.rewards[-1]
        if reward.total is None:
            raise Unscored(f"{self._problem}: {reward.failure_kind}: {reward.explanation}")
        done = self._episode.done
        return BaseTextEnvStepOutput(
            observations=[] if done else [{"role": "user", "content": self._episode.feedback()}],
            reward=gained,
            done=done,
            metadata={
                "ended_at": reward.ended_at,
                "failure_kind": reward.failure_kind,
                **reward.flat("part_"),
            },
        )

    def get_metrics(self) -> dict[str, float]:
        """Of the rollout: whether any candidate was correct, and how many there were."""
        return {"correct": float(self._episode.correct), "candidates": float(self.turns)}


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
    return JudgeClient(url, patience=patience)
