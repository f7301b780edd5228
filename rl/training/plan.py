"""The plan of a training, shown before the first step: groups, turns, rewards, refused turns, age
of the log, drift of the policy.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.agent.rewards.formula import Formula
from kernelwright.errors import InputError
from kernelwright.policies.base import Value
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

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class TrainingPlan(Value):
    """The plan of a training before its first step."""

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
    """Number of turns by the age of their policy in revisions; `unknown` for policies outside the
    lineage.
    """
    drift: PolicyDrift | None
    refused: tuple[RefusalCount, ...]
    warnings: tuple[str, ...] = ()

    @property
    def accounting(self) -> dict[str, int]:
        """Returns the number of turns trained on, and of turns left out by reason. The numbers
        add up to `turns`.
        """
        return {
            "trained on": self.used,
            **{f"left out: {row.description}": row.turns for row in self.refused},
        }


class MethodChoice(NamedTuple):
    """The method of a training, and the reason for its choice."""

    method: Method
    why: str


class PlannedLog(Value):
    """A plan with its log and reward formula."""

    plan: TrainingPlan
    log: Any
    formula: Formula


def read_log(
    store: Store, options: LogOptions, subject: Subject, exact: bool
) -> tuple[Log, Formula]:
    """Returns the usable turns of a log and the reward formula. Raises InputError for an empty
    database, and for a filter without matches.
    """
    chosen = refuse_empty(store, options)
    formula = choose_formula(store, options.reward, chosen)
    requirements = SampleRequirements(
        formula=formula,
        tokenizer_hash=subject.identity.tokenizer_hash,
        chat_template_hash=subject.identity.chat_template_hash,
        lineage=subject.lineage,
        max_age=options.max_age,
        max_length=longest_row(options, subject),
        temperature=options.temperature,
        gamma=options.gamma,
        baseline=options.baseline,
        exact=exact,
    )
    log = load_log(store, requirements, chosen)
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
    """Returns the parsed filters. Raises InputError for an empty database, before anything large
    is loaded.
    """
    chosen = parse_filter(options.filters)
    if store.count() == 0:
        raise InputError(f"{store.where} holds no turn yet: agent solve and agent batch write them")
    return chosen


def make_plan(
    store: Store, options: LogOptions, subject: Subject, model: PreTrainedModel
) -> PlannedLog:
    """Reads the log, measures the drift and chooses the method.

    Raises InputError with every reason if nothing can be trained on.
    """
    log, formula = read_log(store, options, subject, exact=True)
    drift = _drift(model, log, subject) if log.samples else None
    choice = choose_method(options.method, log, drift)
    if choice.method is Method.GRPO:
        _refuse_grpo(options, log, drift)
    else:
        # Methods without log-probs can use more turns: read the log again with looser
        # requirements.
        log, formula = read_log(store, options, subject, exact=False)
        tokens = TurnTokenizer(subject, longest_row(options, subject))
        log = _learnt_from(choice.method, log, tokens)
        if not log.samples:
            raise InputError(
                f"{store.where} holds nothing that {choice.method} learns from{_reasons(log.refused)}"
            )
    plan = _plan(choice, log, formula, drift, subject, options)
    return PlannedLog(plan=plan, log=log, formula=formula)


def _learnt_from(method: Method, log: Log, tokens: TurnTokenizer) -> Log:
    """Returns the log with only the turns the method learns from; the others are counted by
    reason.
    """
    selection = select_samples(method, log.samples, tokens)
    counted = RefusalCounter.of(log.refused)
    for reason, candidate_id in selection.refused:
        counted.add(reason, candidate_id)
    return log._replace(samples=selection.samples, refused=counted.all())


def choose_method(requested: Method | None, log: Log, drift: PolicyDrift | None) -> MethodChoice:
    """Returns the requested method, or the method that suits the log, and the reason."""
    if requested is not None:
        return MethodChoice(requested, "as asked for")
    if not log.samples:
        most = log.refused[0].description if log.refused else "nothing was logged"
        return MethodChoice(
            Method.RFT,
            f"no group gives an exact gradient ({most}): the correct turns are learnt from instead",
        )
    assert drift is not None
    if drift.kl > MAX_KL_NATS_PER_TOKEN:
        return MethodChoice(
            Method.RFT,
            f"another policy wrote the log (KL {drift.kl:.2f} nats a token, over {MAX_KL_NATS_PER_TOKEN}): "
            "its correct turns are learnt from instead",
        )
    if drift.effective < WORN_EFFECTIVE_SAMPLE_SIZE:
        return MethodChoice(
            Method.RFT,
            f"the policy has moved from the one that wrote the log (effective sample size {drift.effective:.2f}, "
            f"under {WORN_EFFECTIVE_SAMPLE_SIZE}): on such a log fine-tuning on the correct turns was found as good "
            "or better",
        )
    return MethodChoice(
        Method.GRPO,
        f"the log is exact and fresh (effective sample size {drift.effective:.2f})",
    )


def _drift(model: PreTrainedModel, log: Log, subject: Subject) -> PolicyDrift:
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
    listed = "; ".join(
        f"{row.turns:,} turns: {row.description} ({row.remedy})" for row in refused[:6]
    )
    return f": {listed}" if listed else ""


def _plan(
    choice: MethodChoice,
    log: Log,
    formula: Formula,
    drift: PolicyDrift | None,
    subject: Subject,
    options: LogOptions,
) -> TrainingPlan:
    samples = log.samples
    ages = Counter(_age(sample, subject) for sample in samples)
    return TrainingPlan(
        method=choice.method,
        why=choice.why,
        policy=subject.name,
        revision=subject.revision,
        formula=formula.label,
        gamma=options.gamma,
        turns=log.turns,
        used=len(samples),
        groups=log.groups,
        zero_variance=log.zero_variance,
        problems=len({sample.problem_hash for sample in samples}),
        correct=_mean([sample.correct for sample in samples]),
        reward=_mean([sample.reward for sample in samples]),
        tokens=sum(len(sample.completion_ids) for sample in samples),
        temperature=log.temperature,
        ages=dict(sorted(ages.items())),
        drift=drift,
        refused=log.refused,
        warnings=tuple(_warnings(choice.method, drift, ages)),
    )


def _age(sample: Sample, subject: Subject) -> str:
    age = age_of(sample.revision, subject.lineage)
    return "unknown" if age is None else str(age)


def _warnings(method: Method, drift: PolicyDrift | None, ages: Counter[str]) -> list[str]:
    warnings = []
    if method is Method.GRPO and drift is not None and drift.effective < WORN_EFFECTIVE_SAMPLE_SIZE:
        warnings.append(
            f"effective sample size {drift.effective:.2f} is under {WORN_EFFECTIVE_SAMPLE_SIZE}: "
            "most of the gradient comes from a few turns"
        )
    if strangers := ages.get("unknown"):
        warnings.append(
            f"{strangers:,} turns are of a policy that is none of this one's ancestors: --max-age leaves them out"
        )
    if method is Method.GRPO and drift is not None and set(ages) == {"0"} and drift.largest > 0.5:
        warnings.append(
            f"this very policy wrote the log, and yet a token's log-prob differs by {drift.largest:.2f}: "
            "another precision, or another "
            "library"
        )
    return warnings


def _mean(values: list[bool] | list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
