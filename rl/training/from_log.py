"""`rl train --from-trajectories`: trains a policy on logged turns, without sampling new ones."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.agent.runtime.interrupts import STOPPING_AFTER_STEP, stop_on_interrupt
from kernelwright.errors import InputError
from kernelwright.rl.training.checkpoints import (
    facts_of,
    newest_checkpoint,
    prepare_output,
    publish_policy,
)
from kernelwright.rl.training.grpo.config import GRPOFacts, checked_settings, grpo_config
from kernelwright.rl.training.grpo.rows import LogBatches, in_order, row_of
from kernelwright.rl.training.online.evaluation import (
    best_evaluation,
    best_weights,
    read_evaluations,
)
from kernelwright.rl.training.options import LogOptions, Method, TrainOptions
from kernelwright.rl.training.plan import PlannedLog, TrainingPlan, make_plan, refuse_empty
from kernelwright.rl.training.precision.holding import HeldWeights
from kernelwright.rl.training.precision.keeping import gather_weights, keep_masters
from kernelwright.rl.training.processes import (
    first_before_others,
    only_in_first_process,
    process_rank,
)
from kernelwright.rl.training.report import TrainingResult, draw_curves, write_training_report
from kernelwright.rl.training.safety.alarms import AlarmBounds, TrainingAlarm
from kernelwright.rl.training.subject import Subject, load_for_training, open_subject, parameters
from kernelwright.rl.training.trl_settings import (
    check_settings,
    decided_fields,
    keep_trainer_quiet,
    refuse_decided,
    warm_up_steps,
)
from kernelwright.rl.training.watching import TrainingRun, TrainingWatcher, Watch, ignore_step
from kernelwright.store.connection.server import without_password
from kernelwright.store.database import Store
from kernelwright.tools.report import InfrastructureError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, Trainer

Say = Callable[[str], None]


def train_from_log(
    options: LogOptions,
    *,
    show: Callable[[TrainingPlan], None],
    say: Say = lambda step: None,
    watch: Watch = ignore_step,
    dry_run: bool = False,
) -> TrainingResult | None:
    """Shows the plan (`show`), then trains. Returns None for a dry run.

    Raises InputError, PolicyRefused, TrainingAlarm, StoreError; KeyboardInterrupt after a
    checkpoint.
    """
    process = process_rank(options.device)
    show = only_in_first_process(process, show)
    say = only_in_first_process(process, say)
    options = options.with_(device=process.device)
    subject = open_subject(options.policy, options.adapter)
    with readable_trouble():
        with Store.open(options.db, create=False, readonly=True) as store:
            refuse_empty(store, options)
            say("loading the policy")
            held = load_for_training(subject, options)
            say("reading the log")
            material = make_plan(store, options, subject, held.model)
        _check_settings(material.plan.method, options)
        show(material.plan)
        if dry_run:
            return None
        identity_facts = {"log": material.plan.used, "revision": subject.revision}
        # The first process writes the work folder; the others then find it.
        with first_before_others(process):
            resumes = prepare_output(options, identity_facts)
            checkpoint = newest_checkpoint(options.work) if resumes else None
        prepared = _prepare(options, subject, held, material)
        return _train(prepared, checkpoint, say, watch)


class _PreparedTraining(NamedTuple):
    """A trainer with its rows, ready to start."""

    run: TrainingRun
    trainer: Trainer
    rows: int
    weights_text: str
    """Description of how the weights are held."""


def _prepare(
    options: LogOptions, subject: Subject, held: HeldWeights, material: PlannedLog
) -> _PreparedTraining:
    plan = material.plan
    build = _grpo if plan.method is Method.GRPO else _other
    with readable_settings():
        trainer, rows = build(options, subject, held.model, material)
        keep_masters(trainer, held.masters)
    facts: dict[str, object] = {
        "method": str(plan.method),
        "formula": plan.formula,
        "trained_from": without_password(options.db),
        "seed": options.seed,
        "rows": plan.accounting,
        "base": subject.base,
    }
    options = options.with_(limits=_limits(options))
    run = TrainingRun(subject, options, plan.method, facts, plan)
    return _PreparedTraining(run, trainer, rows, held.text)


def _train(
    prepared: _PreparedTraining, checkpoint: Path | None, say: Say, watch: Watch
) -> TrainingResult:
    run, trainer = prepared.run, prepared.trainer
    earlier = 0.0 if checkpoint is None else float(facts_of(checkpoint)["seconds"])
    watching = TrainingWatcher(run, watch, earlier)
    keep_trainer_quiet(trainer)
    trainer.add_callback(watching)
    begun = trainer_step(checkpoint)
    action = f"going on at step {begun}" if begun else f"training by {run.method}"
    say(f"{action}; {prepared.weights_text}")
    with (
        stop_on_interrupt(watching.interrupt, STOPPING_AFTER_STEP),
        record_alarm(run.options, trainer),
    ):
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return finish_training(trainer, run, watching, prepared.rows, begun)


def _check_settings(method: Method, options: LogOptions) -> None:
    """Raises InputError for a setting unknown to the method's config or decided by the command,
    before the plan is shown.
    """
    from kernelwright.rl.training.other_methods import config_class

    if method is Method.GRPO:
        checked_settings(options.settings, options.decoupled)
    else:
        kind = config_class(method)
        check_settings(kind, options.settings)
        refuse_decided(options.settings, decided_fields(kind))


def _limits(options: LogOptions) -> AlarmBounds:
    """Returns the bounds of the alarms. With --force a log of an unrelated policy is allowed, so
    its divergence raises no alarm.
    """
    return options.limits.with_(kl=math.inf) if options.force else options.limits


def finish_training(
    trainer: Trainer, run: TrainingRun, watching: TrainingWatcher, rows: int, begun: int
) -> TrainingResult:
    """Writes curves, report and policy; the checkpoints stay until the policy is complete.

    rows: number of trained rows. begun: step at which this sitting started.
    """
    options, subject = run.options, run.subject
    result = _result(trainer, run, watching, rows, begun)
    if trainer.is_world_process_zero():
        write_training_report(options.work, trainer.state.log_history, result, run.plan)
    trainer.accelerator.wait_for_everyone()
    if watching.paused:
        checkpoint = newest_checkpoint(options.work)
        return result.with_(output=str(checkpoint), paused=True)
    # All processes must call this: sharded weights are gathered from them.
    weights = gather_weights(trainer)
    facts = run.facts
    if trainer.is_world_process_zero() and (
        best := best_evaluation(read_evaluations(options.work))
    ):
        weights = best_weights(options.work) or weights
        facts = facts | {"best_step": best.step, "held_out_pass_at_1": best.by_split}
    if trainer.is_world_process_zero():
        publish_policy(
            trainer.accelerator.unwrap_model(trainer.model),
            weights,
            subject._replace(lineage=(*subject.lineage, *run.lineage())),
            options,
            steps=result.steps,
            loss=None if result.loss is None else round(result.loss, 6),
            created=round(time.time()),
            **facts,
        )
        shutil.rmtree(options.work, ignore_errors=True)
    return result


def _result(
    trainer: Trainer, run: TrainingRun, watching: TrainingWatcher, rows: int, begun: int
) -> TrainingResult:
    history = trainer.state.log_history
    last: dict[str, Any] = next((entry for entry in reversed(history) if "loss" in entry), {})
    return TrainingResult(
        output=str(run.options.output),
        method=run.method,
        steps=trainer.state.global_step,
        rows=rows,
        seconds=watching.seconds,
        loss=last.get("loss"),
        resumed_at=begun,
        plan=run.plan,
        base=_base_of(trainer, run.subject),
        first=trainer.is_world_process_zero(),
        figures={name: value for name, value in last.items() if isinstance(value, float)},
    )


def _base_of(trainer: Trainer, subject: Subject) -> str | None:
    model = trainer.accelerator.unwrap_model(trainer.model)
    return subject.path if hasattr(model, "peft_config") else None


def trainer_step(checkpoint: Path | None) -> int:
    """Returns the step of a trainer's checkpoint, read from the folder's name; 0 without a
    checkpoint.
    """
    return 0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])


def _grpo(
    options: LogOptions, subject: Subject, model: PreTrainedModel, material: PlannedLog
) -> tuple[Trainer, int]:
    from kernelwright.rl.training.grpo.trainer import TrajectoryGRPOTrainer

    samples = material.log.samples
    settings = dict(options.settings)
    facts = GRPOFacts(
        output_dir=str(options.work),
        max_steps=1,
        seed=options.seed,
        device=options.device,
        parameters=parameters(model),
        lora=options.lora or subject.adapter is not None,
        temperature=material.log.temperature,
        longest_completion=max(len(sample.completion_ids) for sample in samples),
    )
    # The number of steps follows from the batch size, which only the config knows.
    config = grpo_config(settings, facts)
    rows_a_step = (
        config.per_device_train_batch_size * config.gradient_accumulation_steps * config.world_size
    )
    tokenizer = subject.tokenizer if options.mask_thoughts else None
    rows = in_order(row_of(sample, tokenizer) for sample in samples)
    batches = LogBatches(rows, rows_a_step, options.seed)
    config.max_steps = options.max_steps or max(1, round(options.epochs * batches.steps_an_epoch))
    for name, value in warm_up_steps(config.max_steps, settings).items():
        setattr(config, name, value)
    trainer = TrajectoryGRPOTrainer(
        model,
        config,
        batches,
        decoupled=options.decoupled,
        processing_class=subject.tokenizer,
    )
    return trainer, len(samples)


def _other(
    options: LogOptions, subject: Subject, model: PreTrainedModel, material: PlannedLog
) -> tuple[Trainer, int]:
    from kernelwright.rl.training.other_methods import make_trainer

    return make_trainer(material.plan.method, model, subject, material.log.samples, options)


@contextmanager
def record_alarm(options: TrainOptions, trainer: Trainer) -> Iterator[None]:
    """Writes alarm.json and the curves beside the checkpoints when an alarm stops the training."""
    try:
        yield
    except TrainingAlarm as alarm:
        history = trainer.state.log_history
        alarm_facts = {
            "alarm": alarm.alarm.value,
            "message": str(alarm),
            "step": trainer.state.global_step,
            "last": history[-3:],
        }
        (options.work / "alarm.json").write_text(
            json.dumps(alarm_facts, indent=2), encoding="utf-8"
        )
        draw_curves(options.work / "curves.png", history, from_log=isinstance(options, LogOptions))
        raise


@contextmanager
def readable_settings() -> Iterator[None]:
    """Turns an error of a trainer about its settings (such as a tracker not installed) into an
    InputError of one line.
    """
    try:
        yield
    except (RuntimeError, ImportError, ValueError) as error:
        # trl and transformers say so, in three kinds, of a library that an option needs and of a value that means
        # nothing.
        if isinstance(error, InputError) or (
            isinstance(error, RuntimeError) and "install" not in str(error)
        ):
            raise
        raise InputError(
            f"the trainer refuses these settings: {str(error).splitlines()[0]}"
        ) from error


@contextmanager
def readable_trouble() -> Iterator[None]:
    """Turns an out-of-memory error into an InfrastructureError whose one line says what to do."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise InfrastructureError(
            "out of GPU memory: --set per_device_train_batch_size smaller and gradient_accumulation_steps "
            "larger, or --max-length; "
            "what was done is kept, and the same command goes on"
        ) from error
