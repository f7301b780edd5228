"""Stored turns -> samples and groups, with every refusal counted.

Ids and log-probs are used as they are: no text is tokenised again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kernelwright.agent.export.training import BENCHMARK_SUITES, is_held_out
from kernelwright.agent.serving.scoring import compiled
from kernelwright.policies.base import Completion, FinishReason, Origin, Value
from kernelwright.rl.credit.formula import Formula
from kernelwright.rl.credit.scoring import on_gpu, reply_of, score
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
"""Refusals of right turns that the wrong ones beside them pass."""


class SampleRequirements(Value):
    """The requirements that a sample must meet to be trained on exactly."""

    formula: Formula
    tokenizer_hash: str | None = None
    """The hash of the tokenizer of the policy that is trained; None: not checked."""
    chat_template_hash: str | None = None
    lineage: tuple[str, ...] = ()
    """Revisions that led to the policy, the oldest first, its own last."""
    max_age: int | None = None
    """Largest number of revisions between the sampling policy and today's; None allows any."""
    max_length: int | None = None
    """The most tokens of prompt and completion together."""
    temperature: float | None = None
    """Sampling temperature of the samples; None takes the most frequent one of the log."""
    gamma: float = GAMMA
    baseline: AdvantageBaseline = AdvantageBaseline.LEAVE_ONE_OUT
    exact: bool = True
    """False for methods that need no log-probs (rft, dpo, kto)."""


class Sample(NamedTuple):
    """One turn that can be trained on."""

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
    """The turn's return."""
    advantage: float = 0.0
    group_size: int = 1
    messages: tuple[tuple[str, str], ...] = ()
    """Role and text, for methods that write the prompt anew."""
    text: str = ""

    @property
    def group(self) -> tuple[str, int, str, str]:
        """Returns the key of the samples that may be compared with this one: problem, depth, the policy's revision, the
        machine.
        """
        return self.problem_hash, self.depth, self.revision, self.fingerprint

    @property
    def length(self) -> int:
        """Tokens of prompt and completion together."""
        return len(self.prompt_ids) + len(self.completion_ids)


class Log(NamedTuple):
    """The contents of a store that training can use."""

    samples: list[Sample]
    """Samples with an advantage that is not 0 (exact methods), or all that may be used."""
    refused: tuple[RefusalCount, ...]
    turns: int
    """Number of turns that were read."""
    groups: int
    zero_variance: int
    """Groups in which all earned the same."""
    temperature: float
    all_scored: list[Sample]
    """All samples that were scored, before groups were looked at: figures are computed over them."""


def load_log(
    store: Store, wanted: SampleRequirements, chosen: CandidateFilter | None = None
) -> Log:
    """Reads the whole choice. Never raises for a row that cannot be used: it is counted."""
    counted = RefusalCounter()
    usable: list[Sample] = []
    measuring = HeldOutProblems(store)
    speedless: dict[tuple[str, str], TurnRefusal] = {}
    turns = 0
    for turn in _all_turns(store, chosen or CandidateFilter()):
        turns += 1
        found = TurnRefusal.MEASURING if measuring.holds(turn) else sample_of(turn, wanted)
        if isinstance(found, TurnRefusal):
            counted.add(found, turn.candidate_id)
            if found in REFUSALS_WITHOUT_SPEED:
                speedless[turn.problem_hash, revision_of(turn)] = found
        else:
            usable.append(found)
    usable = _of_whole_groups(usable, speedless, counted)
    temperature = wanted.temperature if wanted.temperature is not None else _commonest(usable)
    scored = _at_temperature(usable, temperature, counted) if wanted.exact else usable
    graded = with_credit(scored, wanted.gamma, wanted.baseline)
    kept, groups, flat = (
        _useful(graded, counted) if wanted.exact else (graded, len({s.group for s in graded}), 0)
    )
    return Log(kept, counted.all(), turns, groups, flat, temperature, graded)


def _of_whole_groups(
    samples: Sequence[Sample],
    speedless: Mapping[tuple[str, str], TurnRefusal],
    counted: RefusalCounter,
) -> list[Sample]:
    """Where right turns are left out because nothing is known of their speed, the wrong ones beside them are too:
    alone they would say that all is wrong.
    """
    kept = []
    for sample in samples:
        if reason := speedless.get((sample.problem_hash, sample.revision)):
            counted.add(reason, sample.candidate_id)
        else:
            kept.append(sample)
    return kept


class HeldOutProblems:
    """Which turns are of problems that are for measuring: a benchmark's, or such as say of themselves that they are
    held out.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held_out: dict[str, bool] = {}

    def holds(self, turn: Turn) -> bool:
        """Whether a turn's problem measures policies and must not be trained on; read from the store once a problem."""
        if turn.suite in BENCHMARK_SUITES:
            return True
        if turn.problem_hash not in self._held_out:
            self._held_out[turn.problem_hash] = is_held_out(
                self._store.problem(turn.trajectory_id).source
            )
        return self._held_out[turn.problem_hash]


def _all_turns(store: Store, chosen: CandidateFilter) -> Iterable[Turn]:
    """Judged ones and, so that they are counted, those that were answered and never judged."""
    from kernelwright.store.models import State

    if chosen.state is not None:
        yield from store.samples(chosen)
        return
    yield from store.samples(chosen.with_(state=State.JUDGED))
    yield from store.samples(chosen.with_(state=State.DRAFTED))


def sample_of(turn: Turn, wanted: SampleRequirements) -> Sample | TurnRefusal:
    """Returns the sample with its reward, or the first reason against it."""
    completion, report = turn.completion, turn.report
    if completion is None or report is None or turn.verdict_id is None:
        return TurnRefusal.UNJUDGED
    if not completion.text and not completion.token_ids:
        return TurnRefusal.UNANSWERED
    if report.degenerate:
        return TurnRefusal.DEGENERATE
    if wanted.exact and (reason := _inexact(turn, wanted)):
        return reason
    if _too_long(completion, wanted.max_length):
        return TurnRefusal.TOO_LONG
    if wanted.formula.needs_gpu and (reason := _speedless(report)):
        return reason
    scored = score(wanted.formula, report, reply_of(turn))
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
        fingerprint=turn.fingerprint if wanted.formula.needs_gpu else "",
        parts=scored.parts,
        reward=scored.total,
        correct=report.correct,
        compiled=compiled(report),
        finish=completion.finish,
        source_hash=turn.source_hash,
        speedup=report.speedup,
        messages=() if wanted.exact else tuple((m.role.value, m.content) for m in turn.messages),
        text="" if wanted.exact else completion.text,
    )


def _too_long(completion: Completion, most: int | None) -> bool:
    return (
        most is not None
        and len(completion.prompt_token_ids or ()) + len(completion.token_ids or ()) > most
    )


def _speedless(report: Report) -> TurnRefusal | None:
    """Returns the reason why nothing can be said of a turn's speed, or of the speed that a right answer would have had:
    its judge had no GPU.
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


def _inexact(turn: Turn, wanted: SampleRequirements) -> TurnRefusal | None:
    """Returns the reason why a turn's log-probs cannot stand for those of the old policy."""
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
    if wanted.tokenizer_hash is not None and completion.tokenizer_hash != wanted.tokenizer_hash:
        return TurnRefusal.TOKENIZER
    if (
        wanted.chat_template_hash is not None
        and completion.chat_template_hash != wanted.chat_template_hash
    ):
        return TurnRefusal.TEMPLATE
    if wanted.max_age is None:
        return None
    age = age_of(revision_of(turn), wanted.lineage)
    return TurnRefusal.TOO_OLD if age is None or age > wanted.max_age else None


def age_of(revision: str, lineage: Sequence[str]) -> int | None:
    """Returns the number of revisions between a revision and the policy; None where it is none of the policy's
    ancestors.
    """
    known = list(lineage)
    return len(known) - 1 - known.index(revision) if revision in known else None


def _commonest(samples: Sequence[Sample]) -> float:
    counts = Counter(sample.temperature for sample in samples)
    return counts.most_common(1)[0][0] if counts else 1.0


def _at_temperature(
    samples: Sequence[Sample], temperature: float, counted: RefusalCounter
) -> list[Sample]:
    kept = []
    for sample in samples:
        if abs(sample.temperature - temperature) < 1e-9:
            kept.append(sample)
        else:
            counted.add(TurnRefusal.TEMPERATURE, sample.candidate_id)
    return kept


def with_credit(
    samples: Sequence[Sample],
    gamma: float = GAMMA,
    baseline: AdvantageBaseline = AdvantageBaseline.LEAVE_ONE_OUT,
) -> list[Sample]:
    """Returns each sample with its return, its advantage and the size of its group."""
    moves = [CreditedTurn(s.candidate_id, s.parent_id, s.reward, s.group) for s in samples]
    credits = credit_of_turns(moves, gamma, baseline)
    return [
        s._replace(value=c.value, advantage=c.advantage, group_size=c.group_size)
        for s in samples
        for c in (credits[s.candidate_id],)
    ]


def _useful(samples: Sequence[Sample], counted: RefusalCounter) -> tuple[list[Sample], int, int]:
    """Returns the samples that give a gradient, how many groups there are, and how many of them all earned the same."""
    sizes: dict[object, int] = {}
    moving: set[object] = set()
    for sample in samples:
        sizes[sample.group] = sample.group_size
        if sample.advantage:
            moving.add(sample.group)
    kept = []
    for sample in samples:
        if sample.group in moving:
            kept.append(sample)
        else:
            counted.add(
                TurnRefusal.ALONE if sample.group_size == 1 else TurnRefusal.ZERO_VARIANCE,
                sample.candidate_id,
            )
    flat = sum(group not in moving and size > 1 for group, size in sizes.items())
    return kept, len(sizes), flat
