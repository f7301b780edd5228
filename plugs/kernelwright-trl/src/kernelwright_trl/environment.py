"""The environment class of GRPOTrainer: the policy hands kernels in with a tool, reads the verdict and mends them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kernelwright_client import JudgeClient, JudgeError, Reward, Score, Weights, code_of


class KernelEnvironment:
    """One rollout. `environment_factory=KernelEnvironment`; the data set needs the columns `prompt` and `problem`.

    TRL shows a tool's exception to the policy, so the tool catches the judge's trouble and asks for the same kernel
    again. The reward is that of the best kernel that was handed in.
    """

    def __init__(self, judge: JudgeClient | None = None, weights: Weights | None = None, attempts: int = 8) -> None:
        """attempts: verdicts that one rollout may ask for."""
        self._judge, self._weights, self._attempts = judge or JudgeClient(), weights, attempts
        self._problem = ""
        self._scores: list[Score] = []

    def reset(self, problem: str = "", **_: Any) -> str | None:
        """Begins a rollout on the problem of the data set's row."""
        self._problem, self._scores = problem, []
        return "Hand your kernel in with the tool `submit_kernel`, read the verdict, and mend it until it is correct."

    async def submit_kernel(self, code: str) -> str:
        """
        Judges a Triton kernel and says whether it is correct, or why it is not.

        Args:
            code: The whole Python file with `class ModelNew`.

        Returns:
            The verdict in a few lines.
        """
        if len(self._scores) >= self._attempts:
            return "No attempts are left."
        try:
            score = await self._judge.score_async(self._problem, code_of(code))
        except JudgeError as error:
            score = Score.unscored("judge", str(error))
        self._scores.append(score)
        return score.feedback()

    def get_reward(self) -> float | None:
        """The best reward of the rollout; 0 where nothing was handed in, None where nothing could be judged."""
        if not self._scores:
            return 0.0
        totals = [reward.total for reward in self._rewards() if reward.total is not None]
        return max(totals) if totals else None

    def _rewards(self) -> list[Reward]:
        return [score.reward(self._weights) for score in self._scores]


def environment_factory(**settings: Any) -> Callable[[], KernelEnvironment]:
    """`environment_factory=environment_factory(judge=..., attempts=4)`: one client for all rollouts."""
    judge = settings.pop("judge", None) or JudgeClient()
    return lambda: KernelEnvironment(judge, **settings)
