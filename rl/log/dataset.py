"""Converts stored turns to samples and groups, and counts every refusal.

Ids and log-probs are used as stored: no text is tokenized again. The steps of `load_log`, in order:

    sample_of           a turn -> a sample with its reward, or the first reason against the turn
    _of_whole_groups    refuses wrong turns of a problem whose correct turns have no measured speed
    _at_temperature     refuses turns sampled at another temperature than most of the log
    with_credit         adds return and advantage; a group: equal problem, depth, revision, machine
    _useful             refuses groups without a gradient: a single turn, or equal returns

Example: two drafts for a problem with rewards 1.05 (correct) and 0.05 (wrong) are a group of depth
0 with advantages 1.0 and -1.0. A third draft without log-probs is refused as NO_LOGPROBS. Two
further drafts for another problem, both with reward 0.05, are refused as ZERO_VARIANCE.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kernelwright.agent.export.training import BENCHMARK_SUITES, is_held_out
from kernelwright.agent.rewards.formula import Formula
from kernelwright.agent.rewards.scoring import on_gpu, reply_of, score
from kernelwright.agent.rewards.verdict_findings import compiled
from kernelwright.policies.base import Completion, FinishReason, Origin, Value
from kernelwright.rl.credit.turn_credit import (
    GAMMA,
    AdvantageBaseline,
    CreditedTurn,
    credit_of_turns,
)
from kernelwright.rl.log.refusals import RefusalCount, RefusalCounter, TurnRefusal
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter, Turn
from kernelwright.tools.report import Report

REFUSALS_WITHOUT_SPEED = frozenset({TurnRefusal.CPU_ONLY, TurnRefusal.UNTIMED})
"""Refusals of correct turns that do not apply to incorrect turns of the same problem."""


class SampleRequirements(Value):
    """The requirements on a sample for exact training."""

    formula: Formula
    tokenizer_hash: str | None = None
    """Hash of the trained policy's tokenizer; None: not checked."""
    chat_template_hash: str | None = None
    lineage: tuple[str, ...] = ()
    """Revisions of the policy's lineage, the oldest first, the current revision last."""
    max_age: int | None = None
    """Largest number of revisions between the sampling policy and the current policy; None allows
    any.
    """
    max_length: int | None = None
    """Largest number of tokens of prompt and completion together."""
    temperature: float | None = None
    """Sampling temperature of the samples; None selects the most frequent temperature of the log.
    """
    gamma: float = GAMMA
    baseline: AdvantageBaseline = AdvantageBaseline.LEAVE_ONE_OUT
    exact: bool = True
    """False for methods without log-probs (rft, dpo, kto)."""


class Sample(NamedTuple):
    """A turn usable for training."""

    candidate_id: int
    verdict_id: int
    parent_id: int | None
    problem: str
    problem_hash: str
    depth: int
    revision: str
    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]
    logps: tuple[float, ...]
    temperature: float
    fingerprint: str
    parts: dict[str, float]
    reward: float
    correct: bool
    compiled: bool
    finish: FinishReason
    source_hash: str | None
    speedup: float | None
    value: float = 0.0
    """The turn's discounted return."""
    advantage: float = 0.0
    group_size: int = 1
    messages: tuple[tuple[str, str], ...] = ()
    """Role and text, for methods that tokenize the prompt again."""
    text: str = ""
    thinking_tokens: int | None = None
    """Maximum number of tokens of the thought, if there was one."""

    @property
    def group(self) -> tuple[str, int, str, str]:
        """Returns the key of comparable samples: problem, depth, the policy's revision, the
        machine.
        """
        return self.problem_hash, self.depth, self.revision, self.fingerprint

    @property
    def length(self) -> int:
        """Number of tokens of prompt and completion together."""
        return len(self.prompt_ids) + len(self.completion_ids)


class Log(NamedTuple):
    """The usable contents of a store."""

    samples: list[Sample]
    """Samples with a nonzero advantage (exact methods), or all usable samples."""
    refused: tuple[RefusalCount, ...]
    turns: int
    """Number of turns read."""
    groups: int
    zero_variance: int
    """Number of groups in which all samples earned the same."""
    temperature: float
    all_scored: list[Sample]
    """All scored samples, before groups without a gradient are removed: figures are computed over
    them.
    """


def load_log(
    store: Store, requirements: SampleRequirements, chosen: CandidateFilter | None = None
) -> Log:
    """Reads the selected turns. Unusable turns are counted and never raise an error."""
    counted = RefusalCounter()
    usable: list[Sample] = []
    measuring = HeldOutProblems(store)
    speedless: dict[tuple[str, str], TurnRefusal] = {}
    turns = 0
    for turn in _all_turns(store, chosen or CandidateFilter()):
        turns += 1
        outcome = TurnRefusal.MEASURING if measuring.holds(turn) else sample_of(turn, requirements)
        # Refused turns are counted by reason with an example.
        if isinstance(outcome, TurnRefusal):
            counted.add(outcome, turn.candidate_id)
            if outcome in REFUSALS_WITHOUT_SPEED:
                speedless[turn.problem_hash, revision_of(turn)] = outcome
        else:
            usable.append(outcome)
    # A group must not lose only its correct turns.
    usable = _of_whole_groups(usable, speedless, counted)
    temperature = (
        requirements.temperature if requirements.temperature is not None else _commonest(usable)
    )
    scored = _at_temperature(usable, temperature, counted) if requirements.exact else usable
    graded = with_credit(scored, requirements.gamma, requirements.baseline)
    useful, groups, flat = (
        _useful(graded, counted)
        if requirements.exact
        else (graded, len({s.group for s in graded}), 0)
    )
    return Log(useful, counted.all(), turns, groups, flat, temperature, graded)


def _of_whole_groups(
    samples: Sequence[Sample],
    speedless: Mapping[tuple[str, str], TurnRefusal],
    counted: RefusalCounter,
) -> list[Sample]:
    """Removes all turns of a problem and revision of which a correct turn is refused for lack of a
    speed: a group without its correct answers would say that every answer is wrong.
    """
    comparable = []
    for sample in samples:
        if reason := speedless.get((sample.problem_hash, sample.revision)):
            counted.add(reason, sample.candidate_id)
        else:
            comparable.append(sample)
    return comparable


class HeldOutProblems:
    """Identifies turns of problems reserved for measuring: benchmark problems, and problems
    tagged as held out.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held_out: dict[str, bool] = {}

    def holds(self, turn: Turn) -> bool:
        """Returns whether a turn's problem measures policies and must not be trained on; reads
        each problem's source once.
        """
        if turn.suite in BENCHMARK_SUITES:
            return True
        if turn.problem_hash not in self._held_out:
            self._held_out[turn.problem_hash] = is_held_out(
                self._store.problem(turn.trajectory_id).source
            )
        return self._held_out[turn.problem_hash]


def _all_turns(store: Store, chosen: CandidateFilter) -> Iterable[Turn]:
    """Yields judged turns, and answered turns without a verdict so that they are counted."""
    from kernelwright.store.models import CandidateState

    if chosen.state is not None:
        yield from store.samples(chosen)
        return
    yield from store.samples(chosen.with_(state=CandidateState.JUDGED))
    yield from store.samples(chosen.with_(state=CandidateState.DRAFTED))


def sample_of(turn: Turn, requirements: SampleRequirements) -> Sample | TurnRefusal:
    """Returns the sample with its reward, or the first reason against it."""
    completion, report = turn.completion, turn.report
    if completion is None or report is None or turn.verdict_id is None:
        return TurnRefusal.UNJUDGED
    if not completion.text and not completion.token_ids:
        return TurnRefusal.UNANSWERED
    if report.degenerate:
        return TurnRefusal.DEGENERATE
    if requirements.exact and (reason := _inexact(turn, requirements)):
        return reason
    if _too_long(completion, requirements.max_length):
        return TurnRefusal.TOO_LONG
    if requirements.formula.needs_gpu and (reason := _speedless(report)):
        return reason
    scored = score(requirements.formula, report, reply_of(turn))
    if not scored.kept:
        return TurnRefusal.REJECTED
    return Sample(
        candidate_id=turn.candidate_id,
        verdict_id=turn.verdict_id,
        parent_id=turn.parent_id,
        problem=turn.problem,
        problem_hash=turn.problem_hash,
        depth=turn.depth,
        revision=revision_of(turn),
        prompt_ids=completion.prompt_token_ids or (),
        completion_ids=completion.token_ids or (),
        logps=completion.logprobs or (),
        temperature=turn.sampling.temperature,
        thinking_tokens=turn.sampling.thinking_tokens,
        # Speeds of different machines must not be compared.
        fingerprint=turn.fingerprint if requirements.formula.needs_gpu else "",
        parts=scored.parts,
        reward=scored.total,
        correct=report.correct,
        compiled=compiled(report),
        finish=completion.finish,
        source_hash=turn.source_hash,
        speedup=report.speedup,
        messages=()
        if requirements.exact
        else tuple((m.role.value, m.content) for m in turn.messages),
        text="" if requirements.exact else completion.text,
    )


def _too_long(completion: Completion, max_length: int | None) -> bool:
    if max_length is None:
        return False
    prompt, reply = completion.prompt_token_ids or (), completion.token_ids or ()
    return len(prompt) + len(reply) > max_length


def _speedless(report: Report) -> TurnRefusal | None:
    """Returns the reason for a turn's missing speed, or for the missing speed of a hypothetical
    correct answer: its judge had no GPU.
    """
    if not report.correct:
        return None if report.environment.gpu else TurnRefusal.CPU_ONLY
    if not on_gpu(report):
        return TurnRefusal.CPU_ONLY
    return TurnRefusal.UNTIMED if report.profile is None else None


def revision_of(turn: Turn) -> str:
    """Returns the revision of weights and adapter together."""
    completion = turn.completion
    if completion is None:
        return ""
    return "+".join(part for part in (completion.revision, completion.adapter_revision) if part)


def _inexact(turn: Turn, requirements: SampleRequirements) -> TurnRefusal | None:
    """Returns the reason why a turn's log-probs cannot represent the old policy."""
    completion = turn.completion
    assert completion is not None
    if completion.origin is not Origin.POLICY:
        return TurnRefusal.NOT_SAMPLED
    if not completion.token_ids or not completion.prompt_token_ids:
        return TurnRefusal.NO_TOKENS
    if completion.logprobs is None or len(completion.logprobs) != len(completion.token_ids):
        return TurnRefusal.NO_LOGPROBS
    if not all(math.isfinite(value) for value in completion.logprobs):
        return TurnRefusal.NON_FINITE
    if not completion.exact or not turn.sampling.exact:
        return TurnRefusal.INEXACT
    if (
        requirements.tokenizer_hash is not None
        and completion.tokenizer_hash != requirements.tokenizer_hash
    ):
        return TurnRefusal.TOKENIZER
    if (
        requirements.chat_template_hash is not None
        and completion.chat_template_hash != requirements.chat_template_hash
    ):
        return TurnRefusal.TEMPLATE
    if requirements.max_age is None:
        return None
    age = age_of(revision_of(turn), requirements.lineage)
    return TurnRefusal.TOO_OLD if age is None or age > requirements.max_age else None


def age_of(revision: str, lineage: Sequence[str]) -> int | None:
    """Returns the number of revisions between a revision and the policy; None for a revision
    outside the lineage.
    """
    revisions = list(lineage)
    return len(revisions) - 1 - revisions.index(revision) if revision in revisions else None


def _commonest(samples: Sequence[Sample]) -> float:
    counts = Counter(sample.temperature for sample in samples)
    return counts.most_common(1)[0][0] if counts else 1.0


def _at_temperature(
    samples: Sequence[Sample], temperature: float, counted: RefusalCounter
) -> list[Sample]:
    selected = []
    for sample in samples:
        if abs(sample.temperature - temperature) < 1e-9:
            selected.append(sample)
        else:
            counted.add(TurnRefusal.TEMPERATURE, sample.candidate_id)
    return selected


def with_credit(
    samples: Sequence[Sample],
    gamma: float = GAMMA,
    baseline: AdvantageBaseline = AdvantageBaseline.LEAVE_ONE_OUT,
) -> list[Sample]:
    """Returns each sample with its return, its advantage and the size of its group."""
    turns = [
        CreditedTurn(sample.candidate_id, sample.parent_id, sample.reward, sample.group)
        for sample in samples
    ]
    credits = credit_of_turns(turns, gamma, baseline)
    credited = []
    for sample in samples:
        credit = credits[sample.candidate_id]
        credited.append(
            sample._replace(
                value=credit.value, advantage=credit.advantage, group_size=credit.group_size
            )
        )
    return credited


def _useful(samples: Sequence[Sample], counted: RefusalCounter) -> tuple[list[Sample], int, int]:
    """Returns the samples with a gradient, the number of groups, and the number of groups in
    which all earned the same.
    """
    sizes: dict[object, int] = {}
    moving: set[object] = set()
    for sample in samples:
        sizes[sample.group] = sample.group_size
        if sample.advantage:
            moving.add(sample.group)
    useful = []
    for sample in samples:
        if sample.group in moving:
            useful.append(sample)
        else:
            counted.add(
                TurnRefusal.ALONE if sample.group_size == 1 else TurnRefusal.ZERO_VARIANCE,
                sample.candidate_id,
            )
    flat = sum(group not in moving and size > 1 for group, size in sizes.items())
    return useful, len(sizes), flat
