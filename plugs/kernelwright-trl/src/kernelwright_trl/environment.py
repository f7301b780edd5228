"""The environment class of GRPOTrainer: the policy hands kernels in with a tool, reads the verdict and mends them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any
from uuid import uuid4

from kernelwright_client import Episode, JudgeClient, JudgeError, Pays, Score, Until, code_of

PROMPTS = {
    Until.CORRECT: (
        "Hand your kernel in with the tool `submit_kernel`, read the verdict, and mend it until it is correct."
    ),
    Until.TURNS: (
        "Hand your kernel in with the tool `submit_kernel`, read the verdict, mend it until it is correct, and then "
        "make it faster until no attempts are left."
    ),
}


class KernelEnvironment:
    """One rollout. `environment_factory=KernelEnvironment`; the data set needs the columns `prompt` and `problem`.

    TRL shows a tool's exception to the policy, so the tool catches the judge's trouble and asks for the same kernel
    again. The reward is that of the best kernel that was handed in; where one was a cheat, it is the cheat's.
    """

    def __init__(
        self,
        judge: JudgeClient | None = None,
        weights: Pays = None,
        attempts: int = 8,
        until: str = "correct",
        run: str = "",
    ) -> None:
        """run: tells the groups of this training from those of another one; empty takes one of this process.
        weights: Weights, a preset's name or a function of a Score. attempts: verdicts that one rollout may ask for.
        until: `correct` ends a rollout at the first correct kernel, `turns` goes on for a faster one.
        """
        self._judge, self._weights, self._attempts, self._until = (
            judge or JudgeClient(),
            weights,
            attempts,
            until,
        )
        self._run = run or _run_of_this_process()
        self._problem, self._rollouts = "", 0
        self._episode = Episode(attempts, until, weights)

    def reset(self, problem: str = "", **_: Any) -> str | None:
        """Begins a rollout on the problem of the data set's row."""
        self._problem, self._rollouts = problem, self._rollouts + 1
        self._episode = Episode(self._attempts, self._until, self._weights)
        return PROMPTS[self._episode.until]

    async def submit_kernel(self, code: str) -> str:
        """
        Judges a Triton kernel and says whether it is correct, or why it is not.

        Args:
            code: The whole Python file with `class ModelNew`.

        Returns:
            The verdict in a few lines.
        """
        if self._episode.done:
            return "No attempts are left."
        try:
            # TRL resets every environment once a step: rollouts of one prompt have the same number.
            group = f"trl/{self._run}/rollout-{self._rollouts}/{self._problem}"
            score = await self._judge.score_async(self._problem, code_of(code), group=group)
        except JudgeError as error:
            score = Score.unscored("judge", str(error))
        self._episode.add(score)
        return self._episode.feedback()

    def get_reward(self) -> float | None:
        """What the rollout is worth; 0 where nothing was handed in, None where nothing could be judged."""
        return self._episode.total if self._episode.scores else 0.0


def environment_factory(**settings: Any) -> Callable[[], KernelEnvironment]:
    """`environment_factory=environment_factory(judge=..., attempts=4)`: one client for all rollouts."""
    judge = settings.pop("judge", None) or JudgeClient()
    settings.setdefault("run", uuid4().hex[:8])
    return lambda: KernelEnvironment(judge, **settings)


@lru_cache(maxsize=1)
def _run_of_this_process() -> str:
    return uuid4().hex[:8]
