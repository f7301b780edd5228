"""`rl train --from-trajectories`: from what the agent logged to a better policy, with nothing generated anew."""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kernelwright.agent.runtime.interrupts import STOPPING_AFTER_STEP, stop_on_interrupt
from kernelwright.errors import InputError
from kernelwright.rl.training.checkpoints import (
    facts_of,
    newest_checkpoint,
    prepare_output,
    publish_policy,
)
from kernelwright.rl.training.grpo.config import checked_settings, grpo_config
from kernelwright.rl.training.grpo.rows import LogBatches, in_order, row_of
from kernelwright.rl.training.options import LogOptions, Method
from kernelwright.rl.training.plan import PlannedLog, TrainingPlan, make_plan, refuse_empty
from kernelwright.rl.training.precision.holding import HeldWeights
from kernelwright.rl.training.precision.keeping import keep_masters, trained_masters
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
from kernelwright.rl.training.watching import TrainingWatcher, Watch, ignore_step
from kernelwright.store.connection.server import without_password
from kernelwright.store.database import Store
from kernelwright.tools.report import InfrastructureError

Say = Callable[[str], None]


def train_from_log(
    options: LogOptions, *, show: Callable[[TrainingPlan], None], say: Say = lambda step: None,
    watch: Watch = ignore_step, dry_run: bool = False,
) -> TrainingResult | None:  # fmt: skip
    """Says what it will use (`show`), then trains; None for a dry run.

    Raises InputError, PolicyRefused, TrainingAlarm, StoreError; KeyboardInterrupt after a checkpoint.
    """
    place = process_rank(options.device)
    show, say, options = (
        only_in_first_process(place, show),
        only_in_first_process(place, say),
        options.with_(device=place.device),
    )
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
        with first_before_others(place):
            resumes = prepare_output(
                options, {"log": material.plan.used, "revision": subject.revision}
            )
        return _train(options, subject, held, material, resumes, say, watch)


def _train(
    options: LogOptions, subject: Subject, held: HeldWeights, material: PlannedLog, resumes: bool, say: Say,
    watch: Watch,
) -> TrainingResult:  # fmt: skip
    plan = material.plan
    build = _grpo if plan.method is Method.GRPO else _other
    with readable_settings():
        trainer, rows = build(options, subject, held.model, material)
        keep_masters(trainer, held.masters)
    checkpoint = newest_checkpoint(options.work) if resumes else None
    earlier = 0.0 if checkpoint is None else float(facts_of(checkpoint)["seconds"])
    facts = {
        "method": str(plan.method), "formula": plan.formula, "trained_from": without_password(options.db),
        "seed": options.seed, "rows": plan.accounting, "base": subject.base,
    }  # fmt: skip
    watching = TrainingWatcher(
        subject,
        options.work,
        watch,
        _limits(options),
        max_minutes=options.max_minutes,
        earlier=earlier,
        facts=facts,
    )
    keep_trainer_quiet(trainer)
    trainer.add_callback(watching)
    begun = trainer_step(checkpoint)
    say(f"{f'going on at step {begun}' if begun else f'training by {plan.method}'}; {held.text}")
    with stop_on_interrupt(watching.interrupt, STOPPING_AFTER_STEP), record_alarm(options, trainer):
        trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    return finish_training(
        trainer, options, subject, watching, plan.method, rows, begun, plan, facts
    )


def _check_settings(method: Method, options: LogOptions) -> None:
    """Raises InputError for a field that the method's config has not or that is decided, before the plan is shown."""
    from kernelwright.rl.training.other_methods import config_class

    if method is Method.GRPO:
        checked_settings(options.settings, options.decoupled)
    else:
        kind = config_class(method)
        check_settings(kind, options.settings)
        refuse_decided(options.settings, decided_fields(kind))


def _limits(options: LogOptions) -> AlarmBounds:
    """Returns the limits of the alarms. With --force a log of an unrelated policy is trained on, so its divergence
    raises no alarm.
    """
    return options.limits.with_(kl=math.inf) if options.force else options.limits


def finish_training(
    trainer: Any, options: Any, subject: Subject, watching: TrainingWatcher, method: Method, rows: int, begun: int,
    plan: TrainingPlan | None,
    facts: dict[str, Any], lineage: tuple[str, ...] = (),
) -> TrainingResult:  # fmt: skip
    """Writes curves, report and policy; the checkpoints stay until the policy is whole."""
    history = trainer.state.log_history
    last: dict[str, Any] = next((entry for entry in reversed(history) if "loss" in entry), {})
    trained = TrainingResult(
        output=str(options.output), method=method, steps=trainer.state.global_step, rows=rows, seconds=watching.seconds,
        loss=last.get("loss"),
        resumed_at=begun, plan=plan, base=_base_of(trainer, subject), first=trainer.is_world_process_zero(),
        figures={name: value for name, value in last.items() if isinstance(value, float)},
    )  # fmt: skip
    if trainer.is_world_process_zero():
        write_training_report(options.work, history, trained, plan)
    trainer.accelerator.wait_for_everyone()
    if watching.paused:
        checkpoint = newest_checkpoint(options.work)
        return trained.with_(output=str(checkpoint), paused=True)
    # Every process has a part in this where the weights are spread over them.
    weights = trainer.accelerator.get_state_dict(trainer.model) | trained_masters(trainer)
    if trainer.is_world_process_zero():
        publish_policy(
            trainer.accelerator.unwrap_model(trainer.model), weights, subject, options, lineage, steps=trained.steps,
            loss=None if trained.loss is None else round(trained.loss, 6), created=round(time.time()), **facts,
        )  # fmt: skip
        shutil.rmtree(options.work, ignore_errors=True)
    return trained


def _base_of(trainer: Any, subject: Subject) -> str | None:
    return (
        subject.path
        if hasattr(trainer.accelerator.unwrap_model(trainer.model), "peft_config")
        else None
    )


def trainer_step(checkpoint: Any) -> int:
    """Returns the step of a trainer's checkpoint by the name of its folder; 0 where there is none."""
    return 0 if checkpoint is None else int(checkpoint.name.rpartition("-")[2])


def _grpo(
    options: LogOptions, subject: Subject, model: Any, material: PlannedLog
) -> tuple[Any, int]:
    from kernelwright.rl.training.grpo.trainer import TrajectoryGRPOTrainer

    samples = material.log.samples
    longest = max(len(sample.completion_ids) for sample in samples)
    settings = dict(options.settings)
    probe = grpo_config(
        settings, output_dir=str(options.work), max_steps=1, seed=options.seed, device=options.device,
        parameters=parameters(model),
        lora=options.lora or subject.adapter is not None, temperature=material.log.temperature,
        longest_completion=longest,
    )  # fmt: skip
    world = probe.world_size
    replay = LogBatches(
        in_order(map(row_of, samples)),
        probe.per_device_train_batch_size * probe.gradient_accumulation_steps * world,
        options.seed,
    )
    probe.max_steps = options.max_steps or max(1, round(options.epochs * replay.steps_an_epoch))
    for name, value in warm_up_steps(probe.max_steps, settings).items():
        setattr(probe, name, value)
    trainer = TrajectoryGRPOTrainer(
        model, probe, replay, decoupled=options.decoupled, processing_class=subject.tokenizer
    )
    return trainer, len(samples)


def _other(
    options: LogOptions, subject: Subject, model: Any, material: PlannedLog
) -> tuple[Any, int]:
    from kernelwright.rl.training.other_methods import make_trainer

    return make_trainer(material.plan.method, model, subject, material.log.samples, options)


@contextmanager
def record_alarm(options: Any, trainer: Any) -> Iterator[None]:
    """Writes the facts of an alarm beside the checkpoints: alarm.json and the curves."""
    try:
        yield
    except TrainingAlarm as alarm:
        history = trainer.state.log_history
        found = {
            "alarm": alarm.alarm.value,
            "message": str(alarm),
            "step": trainer.state.global_step,
            "last": history[-3:],
        }
        (options.work / "alarm.json").write_text(json.dumps(found, indent=2), encoding="utf-8")
        draw_curves(options.work / "curves.png", history, from_log=isinstance(options, LogOptions))
        raise


@contextmanager
def readable_settings() -> Iterator[None]:
    """Turns an error of a trainer about its settings (a tracker that is not installed, for example) into an InputError
    of one line.
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
    """Tells an error that is out of memory in one line that says what to do."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        raise InfrastructureError(
            "out of GPU memory: --set per_device_train_batch_size smaller and gradient_accumulation_steps "
            "larger, or --max-length; "
            "what was done is kept, and the same command goes on"
        ) from error
