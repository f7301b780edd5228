"""`rl train --online`: sample, judge, train, and sample from the new revision; the next rounds are sampled and
judged while this one is trained on.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from kernelwright.agent.runtime.databases import open_store, verdict_cache_folder
from kernelwright.agent.runtime.interrupts import STOPPING_AFTER_STEP, stop_on_interrupt
from kernelwright.rl.credit.formula import (
    DEFAULT_FORMULA,
    EXECUTION_FORMULA,
    FORMULA_PRESETS,
    Formula,
    find_formula,
)
from kernelwright.rl.log.defaults import AUTO
from kernelwright.rl.training.checkpoints import (
    facts_of,
    newest_checkpoint,
    prepare_output,
    training_id,
)
from kernelwright.rl.training.from_log import (
    finish_training,
    readable_settings,
    readable_trouble,
    record_alarm,
    trainer_step,
)
from kernelwright.rl.training.grpo.config import checked_settings, grpo_config
from kernelwright.rl.training.online.batches import OnlineBatches, RoundSlot, Say, gathered
from kernelwright.rl.training.online.judges import TrainingJudges
from kernelwright.rl.training.online.options import OnlineOptions
from kernelwright.rl.training.online.pooled_judges import Judges, PooledJudges
from kernelwright.rl.training.online.problem_source import ProblemSource
from kernelwright.rl.training.online.rounds import Rounds, judge_device, judge_options
from kernelwright.rl.training.online.sampler import open_samplers, refuse_engine
from kernelwright.rl.training.options import Method
from kernelwright.rl.training.precision.keeping import keep_masters
from kernelwright.rl.training.processes import (
    ProcessRank,
    first_before_others,
    only_in_first_process,
    process_rank,
    refuse_spread_weights,
)
from kernelwright.rl.training.report import TrainingResult
from kernelwright.rl.training.safety.judge_exam import refuse_failing_judge
from kernelwright.rl.training.subject import Subject, load_for_training, open_subject, parameters
from kernelwright.rl.training.trl_settings import keep_trainer_quiet
from kernelwright.rl.training.watching import TrainingWatcher, Watch, ignore_step
from kernelwright.store.database import Store

DEFAULT_STEPS = 100
"""Where nothing is said."""


def formula_of(options: OnlineOptions) -> Formula:
    """Where none is named: the default if a GPU judges, else execution alone.

    Raises InputError, also for a speed reward without a GPU.
    """
    from kernelwright.errors import InputError

    on_gpu = options.judge.startswith("cuda")
    if options.reward == AUTO:
        return FORMULA_PRESETS[DEFAULT_FORMULA if on_gpu else EXECUTION_FORMULA]
    formula = find_formula(options.reward)
    if formula.needs_gpu and not on_gpu:
        raise InputError(
            f"--reward {options.reward} needs a GPU's speed and --judge {options.judge} measures none: use "
            "--judge cuda:0, or --reward "
            "execution"
        )
    return formula


def train_online(
    options: OnlineOptions,
    *,
    say: Say = lambda step: None,
    watch: Watch = ignore_step,
    judges: Judges | None = None,
) -> TrainingResult:
    """Begins or goes on.

    `judges`: that are started and examined already. Raises InputError, PolicyRefused, TrainingAlarm,
    InfrastructureError, StoreError; KeyboardInterrupt after a checkpoint.
    """
    from kernelwright.errors import InputError

    if options.method not in (None, Method.GRPO):
        raise InputError(
            "--online trains by grpo: collect with agent batch, then rl train --from-trajectories DB "
            f"--method {options.method}"
        )
    refuse_spread_weights()
    place = process_rank(options.device)
    say, options = only_in_first_process(place, say), options.with_(device=place.device)
    formula, device = (
        formula_of(options),
        judge_device(options.judge, elsewhere=options.ray is not None),
    )
    subject = open_subject(options.policy, options.adapter)
    checked_settings(options.settings, options.decoupled)
    refuse_engine(subject, options, place.world)
    problems = ProblemSource(options.problems, options.seed, options.against)
    with first_before_others(place):
        resumes = prepare_output(options, {"revision": subject.revision})
    with ExitStack() as held, readable_trouble():
        judges = judges or held.enter_context(examined_judges(options, device, say))
        options = options.with_(workers=judges.workers) if options.ray is not None else options
        store = held.enter_context(open_store(options.db))
        say("loading the policy")
        return _train(
            options, place, subject, formula, problems, judges, store, resumes, say, watch
        )


@contextmanager
def examined_judges(
    options: OnlineOptions, device: str, say: Say = lambda step: None
) -> Iterator[Judges]:
    """Started, and shown to see through what they must see through. Raises TrainingAlarm."""
    with _open_judges(options, device, say) as judges:
        say("examining the judges")
        refuse_failing_judge(judges, judge_options(options.judge), judges.workers)
        yield judges


def _open_judges(options: OnlineOptions, device: str, say: Say) -> TrainingJudges | PooledJudges:
    """Opens the judges on this machine, or on the cluster that was asked for. Raises InputError and
    InfrastructureError.
    """
    if options.ray is None:
        say("starting the judge" if options.judges == 1 else f"starting {options.judges} judges")
        return TrainingJudges(
            device, options.judges, verdict_cache_folder(options.db), options.judge_gpus
        )
    from kernelwright.agent.judging.pool import DeviceKind
    from kernelwright.agent.judging.ray_pool import RayPool

    kind = DeviceKind.CPU if device == "cpu" else DeviceKind.CUDA
    sampling = (
        max(1, options.lag) * options.rollout_actors if options.device.startswith("cuda") else 0
    )
    judges = PooledJudges(RayPool(options.ray, kind=kind, spare=sampling), kind)
    say(f"judging on the Ray cluster {options.ray}: {judges.workers} verdicts at once")
    return judges


def _train(
    options: OnlineOptions, place: ProcessRank, subject: Subject, formula: Formula, problems: ProblemSource,
    judges: Judges, store: Store, resumes: bool, say: Say,
    watch: Watch,
) -> TrainingResult:  # fmt: skip
    from kernelwright.rl.training.grpo.trainer import TrajectoryGRPOTrainer

    held, steps = load_for_training(subject, options), options.max_steps or DEFAULT_STEPS
    model = held.model
    config = grpo_config(
        _own_settings(options), output_dir=str(options.work), max_steps=steps, seed=options.seed, device=options.device,
        parameters=parameters(model), lora=options.lora or subject.adapter is not None, temperature=options.temperature,
        longest_completion=options.reply_tokens or 1536,
    )  # fmt: skip
    samplers = open_samplers(subject, options, place.world)
    name = f"{options.output.name}-{training_id(options)}"
    slots = [
        RoundSlot(
            Rounds(
                store,
                sampler.policy,
                judges,
                options,
                formula,
                name,
                place.rank,
                place.world,
                sampler.together,
            ),
            sampler,
        )
        for sampler in samplers
    ]
    tell = say if place.first else partial(_aside, place.rank)
    batches = OnlineBatches(slots, problems, judges, options, store, steps, subject.revision, tell)
    with readable_settings():
        trainer = TrajectoryGRPOTrainer(
            model,
            config,
            gathered(batches, place),
            decoupled=options.decoupled,
            processing_class=subject.tokenizer,
        )
    keep_masters(trainer, held.masters)
    batches.model = trainer.accelerator.unwrap_model(trainer.model)
    trainer.step_figures = batches.figures
    checkpoint = newest_checkpoint(options.work) if resumes else None
    facts = _facts(options, subject, formula)
    watching = TrainingWatcher(
        subject, options.work, watch, options.limits, max_minutes=options.max_minutes,
        lineage=lambda: tuple(batches.revisions), facts=facts,
        earlier=0.0 if checkpoint is None else float(facts_of(checkpoint)["seconds"]),
    )  # fmt: skip
    keep_trainer_quiet(trainer)
    trainer.add_callback(watching)
    begun = trainer_step(checkpoint)
    doing = (
        f"going on at step {begun}"
        if begun
        else f"training online on {', '.join(options.problems)}"
    )
    say(f"{doing}; {held.text}")
    try:
        with (
            stop_on_interrupt(watching.interrupt, STOPPING_AFTER_STEP),
            record_alarm(options, trainer),
        ):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    finally:
        batches.close()
        for sampler in samplers:
            sampler.close()
    samples = trainer.state.global_step * options.prompts * options.group
    return finish_training(
        trainer,
        options,
        subject,
        watching,
        Method.GRPO,
        samples,
        begun,
        None,
        facts,
        tuple(batches.revisions),
    )


def _facts(options: OnlineOptions, subject: Subject, formula: Formula) -> dict[str, Any]:
    """Returns what the card says of this training."""
    return {
        "method": "grpo", "formula": formula.label, "trained_on": list(options.problems), "seed": options.seed,
        "base": subject.base,
    }  # fmt: skip


def _aside(rank: int, line: str) -> None:
    """What another process than the first has to say."""
    print(f"process {rank}: {line}", file=sys.stderr, flush=True)


def _own_settings(options: OnlineOptions) -> dict[str, Any]:
    """A step is a round: its rows in so many parts that each fits the memory."""
    return {"gradient_accumulation_steps": 4, **options.settings}
