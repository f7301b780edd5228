"""Reasons against training on a stored turn, with their counts and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from kernelwright.policies.base import Value


class TurnRefusal(StrEnum):
    """The reasons against using a turn of a log."""

    UNJUDGED = "unjudged"
    UNANSWERED = "unanswered"
    MEASURING = "measuring"
    NOT_SAMPLED = "not_sampled"
    DEGENERATE = "degenerate"
    REJECTED = "rejected"
    NO_TOKENS = "no_tokens"
    NO_LOGPROBS = "no_logprobs"
    NON_FINITE = "non_finite"
    INEXACT = "inexact"
    TOKENIZER = "tokenizer"
    TEMPLATE = "template"
    CPU_ONLY = "cpu_only"
    UNTIMED = "untimed"
    TEMPERATURE = "temperature"
    TOO_OLD = "too_old"
    TOO_LONG = "too_long"
    INCORRECT = "incorrect"
    ALONE = "alone"
    ZERO_VARIANCE = "zero_variance"
    ONE_SIDED = "one_sided"
    REPEATED = "repeated"
    UNPAIRED = "unpaired"


REFUSAL_TEXTS: dict[TurnRefusal, tuple[str, str]] = {
    TurnRefusal.UNJUDGED: ("no verdict: the run was stopped, or this machine failed",
    "run the same agent command again, it goes on"),
    TurnRefusal.UNANSWERED: ("the reply is empty", "nothing to do"),
    TurnRefusal.MEASURING: ("of a benchmark, or of a held-out problem: it is for measuring, not for training",
    "name other problems with --filter"),
    TurnRefusal.NOT_SAMPLED: ("written by torch's compiler or a file of the user's, not sampled from a policy",
    "nothing to do: --method rft learns from it"),
    TurnRefusal.DEGENERATE: ("the problem is passed by zeros, a constant or the identity: it earns no reward",
    "leave the problem out"),
    TurnRefusal.REJECTED: ("the reward formula rejects a correct kernel that leaves the work to others",
    "choose another --reward"),
    TurnRefusal.NO_TOKENS: ("no token ids were stored",
    "use --method rft, or a policy that gives ids (vllm, transformers, embedded)"),
    TurnRefusal.NO_LOGPROBS: ("no log-probs were stored, or not one for each token",
    "use --method rft, or a policy that gives log-probs"),
    TurnRefusal.NON_FINITE: ("a stored log-prob is not finite",
    "collect again: the sampler gave numbers that cannot be right"),
    TurnRefusal.INEXACT: (
        "not sampled from the policy's own distribution (greedy, top-p, top-k, min-p or a repetition penalty)",
        "collect with --temperature 1.6, or use --method rft",
    ),
    TurnRefusal.TOKENIZER: ("written with another tokenizer than the policy's",
    "name the policy that wrote it with --policy"),
    TurnRefusal.TEMPLATE: ("written under another chat template than the policy's",
    "name the policy that wrote it with --policy"),
    TurnRefusal.CPU_ONLY: ("judged on a CPU only, and this reward needs a GPU's speed",
    "use --reward execution, or judge on a GPU"),
    TurnRefusal.UNTIMED: ("right on a GPU and never timed there, and this reward needs the speed",
    "use --reward execution, or judge with timing"),
    TurnRefusal.TEMPERATURE: ("sampled at another temperature than most of the log", "choose one with --temperature T"),
    TurnRefusal.TOO_OLD: ("its policy is too many revisions back, or none of this one's ancestors",
    "collect anew, raise --max-age, or use --method rft"),
    TurnRefusal.TOO_LONG: ("prompt and reply do not fit --max-length, or the policy's context",
    "raise --max-length, up to the policy's context"),
    TurnRefusal.INCORRECT: ("not correct, and this method learns from correct turns only", "nothing to do"),
    TurnRefusal.ALONE: ("alone in its group: nothing to compare it with", "collect more --samples a problem"),
    TurnRefusal.ZERO_VARIANCE: ("its whole group earned the same: no gradient",
    "nothing to do; harder or easier problems help"),
    TurnRefusal.ONE_SIDED: ("its prompt has only good or only bad replies: no pair",
    "collect more --samples a problem"),
    TurnRefusal.REPEATED: ("the same program of the same prompt is used already", "nothing to do"),
    TurnRefusal.UNPAIRED: ("its prompt has more replies of its kind than of the other", "--method kto learns from it"),
}  # fmt: skip
"""For each reason, a description of the turns and the advice to the user."""


class RefusalCount(Value):
    """The number of turns left out for the same reason."""

    reason: TurnRefusal
    turns: int
    example: int
    """Id of an affected candidate."""

    @property
    def description(self) -> str:
        """Description of the affected turns, of which there are `turns`."""
        return REFUSAL_TEXTS[self.reason][0]

    @property
    def remedy(self) -> str:
        """Returns the advice for making such turns usable next time."""
        return REFUSAL_TEXTS[self.reason][1]


class RefusalCounter:
    """Counts refusals during the reading of a log."""

    def __init__(self) -> None:
        self._counts: Counter[TurnRefusal] = Counter()
        self._first: dict[TurnRefusal, int] = {}

    @classmethod
    def of(cls, refused: Sequence[RefusalCount]) -> RefusalCounter:
        """Returns a counter that continues from earlier counts."""
        counted = cls()
        for count in refused:
            counted._counts[count.reason], counted._first[count.reason] = count.turns, count.example
        return counted

    def add(self, reason: TurnRefusal, candidate_id: int) -> None:
        """Counts a refused candidate; the first candidate of each reason becomes the example."""
        self._counts[reason] += 1
        self._first.setdefault(reason, candidate_id)

    def all(self) -> tuple[RefusalCount, ...]:
        """Returns the counts, the most frequent reason first."""
        return tuple(
            RefusalCount(reason=reason, turns=turns, example=self._first[reason])
            for reason, turns in self._counts.most_common()
        )
