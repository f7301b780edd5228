"""The environment: a reset gives a problem, a step judges a candidate."""

from __future__ import annotations

import random
from functools import lru_cache
from typing import Any
from uuid import uuid4

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import State

from kernelwright_client import Episode, JudgeClient, Pays, Score, Task, code_of
from kernelwright_openenv.models import KernelAction, KernelObservation

SPLIT = "all"


class KernelEnvironment(Environment[KernelAction, KernelObservation, State]):
    """One session. The judge, which does the work, serves all sessions."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(
        self,
        judge: JudgeClient | None = None,
        weights: Pays = None,
        attempts: int = 8,
        until: str = "correct",
    ) -> None:
        """judge: None asks the one that KERNELWRIGHT_JUDGE_URL names. weights: Weights, a preset's name or a function
        of a Score. attempts: candidates in one episode. until: `correct` ends an episode at the first correct kernel,
        `turns` goes on for a faster one.
        """
        super().__init__()
        self._judge, self._weights, self._attempts = (
            judge or _judge_of_the_environment(),
            weights,
            attempts,
        )
        self._until = until
        self._state = State(episode_id=str(uuid4()), step_count=0)
        self._episode = Episode(attempts, until, weights)
        self._task: Task | None = None
        self._group = ""

    def reset(
        self, seed: int | None = None, episode_id: str | None = None, problem: str | None = None,
        index: int | None = None, group: str | None = None, **_: Any,
    ) -> KernelObservation:  # fmt: skip
        """Begins an episode on the problem named, on that of the index, or on one that the seed draws.

        group: the same for rollouts of one prompt; None takes the problem's name.

        Raises JudgeError where the judge has no such problem.
        """
        names = [] if problem else self._names()
        chosen = (
            problem
            or names[
                index % len(names)
                if index is not None
                else random.Random(seed).randrange(len(names))
            ]
        )
        self._task = self._judge.task(chosen)
        self._state = State(episode_id=episode_id or str(uuid4()), step_count=0)
        self._episode = Episode(self._attempts, self._until, self._weights)
        self._group = group or f"openenv/{self._task.id}"
        return KernelObservation(
            problem=self._task.id,
            text=self._task.prompt[0]["content"],
            attempts_left=self._attempts,
            done=False,
        )

    async def step_async(
        self, action: KernelAction, timeout_s: float | None = None, **_: Any
    ) -> KernelObservation:
        """Judges a candidate without holding other sessions up. timeout_s: seconds for the verdict in all."""
        task = self._begun()
        code = code_of(action.code)
        return self._observed(
            task, await self._judge.score_async(task.id, code, group=self._group, timeout=timeout_s)
        )

    def step(
        self, action: KernelAction, timeout_s: float | None = None, **_: Any
    ) -> KernelObservation:
        """Judges a candidate. timeout_s: seconds for the verdict in all."""
        task = self._begun()
        code = code_of(action.code)
        return self._observed(
            task, self._judge.score(task.id, code, group=self._group, timeout=timeout_s)
        )

    def _begun(self) -> Task:
        if self._task is None:
            self.reset(seed=0)
        assert self._task is not None
        return self._task

    def _observed(self, task: Task, score: Score) -> KernelObservation:
        self._episode.add(score)
        reward = self._episode.rewards[-1]
        worth = self._episode.total if self._episode.has_cheat else reward.total
        if not score.trouble:
            self._state.step_count += 1
        return KernelObservation(
            problem=task.id,
            text=self._episode.feedback(),
            ended_at=reward.ended_at,
            correct=score.correct,
            failure_kind=reward.failure_kind,
            parts=dict(reward.parts),
            attempts_left=self._episode.attempts_left,
            reward=None if reward.masked else worth,
            done=self._episode.done,
            metadata={"verdict_id": score.verdict_id, "masked": reward.masked},
        )

    @property
    def state(self) -> State:
        """The episode's id and how many candidates were judged."""
        return self._state

    # -------------------------------------------------------------- OpenEnv's task API
    def list_splits(self) -> list[str]:
        return [SPLIT]

    def num_tasks(self, split: str) -> int:
        return len(self._names())

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        return [self.get_task(split, index) for index in range(len(self._names()))]

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        return {"id": self._names()[index], "index": index}

    def _names(self) -> list[str]:
        return _names_of(self._judge)


@lru_cache(maxsize=1)
def _judge_of_the_environment() -> JudgeClient:
    return JudgeClient()


@lru_cache(maxsize=16)
def _names_of(judge: JudgeClient) -> list[str]:
    return judge.names()
