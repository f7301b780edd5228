"""A rollout of several candidates on one problem: when it ends, what each turn is worth, what the policy is told."""

from __future__ import annotations

from enum import StrEnum

from kernelwright_client.scores import Pays, Reward, Score


class Until(StrEnum):
    """When a rollout ends before its attempts are used."""

    CORRECT = "correct"
    """At the first correct kernel."""
    TURNS = "turns"
    """Never: a correct kernel is to be made faster."""


class Episode:
    """One rollout. It is worth its best candidate; a cheat in any turn makes it worth what the cheat is."""

    def __init__(self, attempts: int, until: str = Until.CORRECT, pays: Pays = None) -> None:
        """attempts: candidates that are judged at most. until: `correct` or `turns`. pays: as `Score.reward` takes it.

        Raises ValueError for another `until`.
        """
        self.attempts, self.until, self._pays = attempts, Until(until), pays
        self.scores: list[Score] = []
        self.rewards: list[Reward] = []

    def add(self, score: Score) -> float:
        """Counts a candidate, and returns by how much it changed what the rollout is worth.

        The changes of a rollout add up to its reward.
        """
        before = self.total or 0.0
        self.scores.append(score)
        self.rewards.append(score.reward(self._pays))
        return (self.total or 0.0) - before

    @property
    def total(self) -> float | None:
        """What the rollout is worth so far; None where nothing was judged."""
        totals = [reward.total for reward in self.rewards if reward.total is not None]
        return min(totals) if self.has_cheat and totals else max(totals, default=None)

    @property
    def has_cheat(self) -> bool:
        """Whether any candidate tried to deceive the judge."""
        return any(score.is_cheat for score in self.scores)

    @property
    def attempts_left(self) -> int:
        """Candidates that may still be handed in: those that the judge could not look at count for none."""
        return max(0, self.attempts - sum(not score.trouble for score in self.scores))

    @property
    def done(self) -> bool:
        """Whether the rollout has ended."""
        is_right = any(score.correct for score in self.scores)
        return self.attempts_left == 0 or (self.until is Until.CORRECT and is_right)

    @property
    def correct(self) -> bool:
        """Whether any candidate was correct."""
        return any(score.correct for score in self.scores)

    def feedback(self) -> str:
        """What the policy is told of its last candidate."""
        return self.scores[-1].feedback(goes_on=self.until is Until.TURNS and not self.done)
