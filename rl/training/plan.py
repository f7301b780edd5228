"""What a training will use, said before it starts: groups, turns, rewards, what is refused, how old the log is, how
far the policy has moved.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kernelwright.errors import InputError
from kernelwright.policies.base import Value
from kernelwright.rl.credit.formula import Formula
from kernelwright.rl.log.dataset import Log, Sample, SampleRequirements, age_of, load_log
from kernelwright.rl.log.defaults import choose_formula, parse_filter
from kernelwright.rl.log.refusals import RefusalCount, RefusalCounter
from kernelwright.rl.training.grpo.drift import (
    MAX_KL_NATS_PER_TOKEN,
    WORN_EFFECTIVE_SAMPLE_SIZE,
    PolicyDrift,
    measure_drift,
)
from kernelwright.rl.training.grpo.rows import row_of
from kernelwright.rl.training.options import LogOptions, Method
from kernelwright.rl.training.other_methods import TurnTokenizer, longest_row, select_samples
from kernelwright.rl.training.subject import Subject
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter


class TrainingPlan(Value):
    """What a training will do, as it is known before the first step."""

    method: Method
    why: str
    policy: str
    revision: str
    formula: str
    gamma: float
    turns: int
    used: int
    groups: int
    zero_variance: int
    problems: int
    correct: float
    reward: float
    tokens: int
    temperature: float
    ages: dict[str, int]
    """Turns by how many revisions back their policy lies; `unknown` for one that is none of the ancestors."""
    drift: PolicyDrift | None
    refused: tuple[RefusalCount, ...]
    warnings: tuple[str, ...] = ()

    @property
    def accounting(self) -> dict[str, int]:
        """Returns what became of every turn that was read: trained on, or left out with the reason. The numbers add up
        to `turns`.
        """
        return {
            "trained on": self.used,
            **{f"left out: {row.found}": row.turns for row in self.refused},
        }


class PlannedLog(Value):
    """The plan, and what it was made from."""

    plan: TrainingPlan
    log: Any
    formula: Formula


def read_log(
    store: Store, options: LogOptions, subject: Subject, exact: bool
) -> tuple[Log, Formula]:
    """Raises InputError for an empty database, and a filter that leaves nothing."""
    chosen = refuse_empty(store, options)
    formula = choose_formula(store, options.reward, chosen)
    wanted = SampleRequirements(
        formula=formula, tokenizer_hash=subject.identity.tokenizer_hash,
        chat_template_hash=subject.identity.chat_template_hash,
        lineage=subject.lineage, max_age=options.max_age, max_length=longest_row(options, subject),
        temperature=options.temperature, gamma=options.gamma, baseline=options.baseline, exact=exact,
    )  # fmt: skip
    log = load_log(store, wanted, chosen)
    if log.turns == 0:
        if not options.filters:
            raise InputError(
                f"{store.where} holds no turn that was answered yet: run the same agent command again"
            )
        raise InputError(
            f"--filter {' '.join(options.filters)} leaves none of the {store.count():,} turns in "
            f"{store.where}: widen it"
        )
    return log, formula


def refuse_empty(store: Store, options: LogOptions) -> CandidateFilter:
    """What is asked of the log, before anything large is loaded. Raises InputError for an empty database."""
    chosen = parse_filter(options.filters)
    if store.count() == 0:
        raise InputError(f"{store.where} holds no turn yet: agent solve and agent batch write them")
    return chosen


def make_plan(store: Store, options: LogOptions, subject: Subject, model: Any) -> PlannedLog:
    """Looks at the log, measures the drift, chooses the method.

    Raises InputError where nothing can be trained on, with every reason.
    """
    log, formula = read_log(store, options, subject, exact=True)
    drift = _drift(model, log, subject) if log.samples else None
    method, why = choose_method(options.method, log, drift)
    if method is Method.GRPO:
        _refuse_grpo(options, log, drift)
        return PlannedLog(
            plan=_plan(method, why, log, formula, drift, subject, options), log=log, formula=formula
        )
    loose, formula = read_log(store, options, subject, exact=False)
    loose = _learnt_from(method, loose, TurnTokenizer(subject, longest_row(options, subject)))
    if not loose.samples:
        raise InputError(
            f"{store.where} holds nothing that {method} learns from{_reasons(loose.refused)}"
        )
    return PlannedLog(
        plan=_plan(method, why, loose, formula, drift, subject, options), log=loose, formula=formula
    )


def _learnt_from(method: Method, log: Log, tokens: TurnTokenizer) -> Log:
    """Returns the turns that the method learns from; the others are counted with their reason."""
    selection = select_samples(method, log.samples, tokens)
    counted = RefusalCounter.of(log.refused)
    for reason, candidate_id in selection.refused:
        counted.add(reason, candidate_id)
    return log._replace(samples=selection.samples, refused=counted.all())


def choose_method(asked: Method | None, log: Log, drift: PolicyDrift | None) -> tuple[Method, str]:
    """The one that is asked for; else what the log is good for, and why."""
    if asked is not None:
        return asked, "as asked for"
    if not log.samples:
        most = log.refused[0].found if log.refused else "nothing was logged"
        return (
            Method.RFT,
            f"no group gives an exact gradient ({most}): the correct turns are learnt from instead",
        )
    assert drift is not None
    if drift.kl > MAX_KL_NATS_PER_TOKEN:
        return (
            Method.RFT,
            f"another policy wrote the log (KL {drift.kl:.2f} nats a token, over {MAX_KL_NATS_PER_TOKEN}): "
            "its correct turns are learnt from instead",
        )
    if drift.effective < WORN_EFFECTIVE_SAMPLE_SIZE:
        return (
            Method.RFT,
            f"the policy has moved from the one that wrote the log (effective sample size {drift.effective:.2f}, "
            f"under {WORN_EFFECTIVE_SAMPLE_SIZE}): on such a log fine-tuning on the correct turns was found as good "
            "or better",
        )
    return Method.GRPO, f"the log is exact and fresh (effective sample size {drift.effective:.2f})"


def _drift(model: Any, log: Log, subject: Subject) -> PolicyDrift:
    pad = subject.tokenizer.pad_token_id
    return measure_drift(model, [row_of(sample) for sample in log.samples], pad, log.temperature)


def _refuse_grpo(options: LogOptions, log: Log, drift: PolicyDrift | None) -> None:
    if not log.samples:
        raise InputError(f"nothing in this log gives an exact gradient{_reasons(log.refused)}")
    assert drift is not None
    if drift.is_worn_out and not options.force:
        raise InputError(
            f"the log is worn out: effective sample size {drift.effective:.3f} over {drift.rows} turns, "
            f"KL {drift.kl:.3f} nats a token (at most {MAX_KL_NATS_PER_TOKEN}): "
            "collect a new log with this policy, use --method rft, or --force"
        )


def _reasons(refused: tuple[RefusalCount, ...]) -> str:
    said = "; ".join(f"{row.turns:,} turns: {row.found} ({row.remedy})" for row in refused[:6])
    return f": {said}" if said else ""


def _plan(
    method: Method,
    why: str,
    log: Log,
    formula: Formula,
    drift: PolicyDrift | None,
    subject: Subject,
    options: LogOptions,
) -> TrainingPlan:
    samples = log.samples
    ages = Counter(_age(sample, subject) for sample in samples)
    return TrainingPlan(
        method=method, why=why, policy=subject.name, revision=subject.revision, formula=formula.label,
        gamma=options.gamma, turns=log.turns,
        used=len(samples), groups=log.groups, zero_variance=log.zero_variance,
        problems=len({s.problem_hash for s in samples}),
        correct=_mean([s.correct for s in samples]), reward=_mean([s.reward for s in samples]),
        tokens=sum(len(s.completion_ids) for s in samples),
        temperature=log.temperature, ages=dict(sorted(ages.items())), drift=drift, refused=log.refused,
        warnings=tuple(_warnings(method, drift, ages)),
    )  # fmt: skip


def _age(sample: Sample, subject: Subject) -> str:
    age = age_of(sample.revision, subject.lineage)
    return "unknown" if age is None else str(age)


def _warnings(method: Method, drift: PolicyDrift | None, ages: Counter[str]) -> list[str]:
    found = []
    if method is Method.GRPO and drift is not None and drift.effective < WORN_EFFECTIVE_SAMPLE_SIZE:
        found.append(
            f"effective sample size {drift.effective:.2f} is under {WORN_EFFECTIVE_SAMPLE_SIZE}: "
            "most of the gradient comes from a few turns"
        )
    if strangers := ages.get("unknown"):
        found.append(
            f"{strangers:,} turns are of a policy that is none of this one's ancestors: --max-age leaves them out"
        )
    if method is Method.GRPO and drift is not None and set(ages) == {"0"} and drift.largest > 0.5:
        found.append(
            f"this very policy wrote the log, and yet a token's log-prob differs by {drift.largest:.2f}: "
            "another precision, or another "
            "library"
        )
    return found


def _mean(values: list[Any]) -> float:
    return sum(values) / len(values) if values else 0.0
