"""`rl train --online`: sample, judge, train, and sample from the new revision; the next rounds
are sampled and judged during the training step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from kernelwright.agent.rewards.formula import (
    DEFAULT_FORMULA,
    EXECUTION_FORMULA,
    FORMULA_PRESETS,
    Formula,
    find_formula,
)
from kernelwright.agent.runtime.databases import open_store, verdict_cache_folder
from kernelwright.agent.runtime.interrupts import STOPPING_AFTER_STEP, stop_on_interrupt
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
from kernelwright.rl.training.grpo.config import GRPOFacts, checked_settings, grpo_config
from kernelwright.rl.training.online.batches import OnlineBatches, RoundSlot, Say, gathered
from kernelwright.rl.training.online.evaluation import Evaluations
from kernelwright.rl.training.online.judges import TrainingJudges
from kernelwright.rl.training.online.options import DEFAULT_STEPS, HELD_OUT_SPLITS, OnlineOptions
from kernelwright.rl.training.online.pooled_judges import Judges, PooledJudges
from kernelwright.rl.training.online.problem_source import ProblemSource, held_out
from kernelwright.rl.training.online.rounds import RoundContext, Rounds, judge_device, judge_options
from kernelwright.rl.training.online.sampler import Sampler, open_samplers, refuse_engine
from kernelwright.rl.training.options import Method
from kernelwright.rl.training.precision.keeping import gather_weights, keep_masters
from kernelwright.rl.training.processes import (
    ProcessRank,
    first_before_others,
    only_in_first_process,
    process_rank,
)
from kernelwright.rl.training.report import TrainingResult
from kernelwright.rl.training.safety.judge_exam import refuse_failing_judge
from kernelwright.rl.training.subject import Subject, load_for_training, open_subject, parameters
from kernelwright.rl.training.trl_settings import keep_trainer_quiet
from kernelwright.rl.training.watching import TrainingRun, TrainingWatcher, Watch, ignore_step

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PreTrainedModel

    from kernelwright.rl.training.grpo.trainer import TrajectoryGRPOTrainer


def formula_of(options: OnlineOptions) -> Formula:
    """Returns the reward formula. `auto`: the default formula if a GPU judges, else execution
    alone.

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
    """Starts or continues an online training.

    `judges`: already started and examined. Raises InputError, PolicyRefused, TrainingAlarm,
    InfrastructureError, StoreError; KeyboardInterrupt after a checkpoint.
    """
    from kernelwright.errors import InputError

    if options.method not in (None, Method.GRPO):
        raise InputError(
            "--online trains by grpo: collect with agent batch, then rl train --from-trajectories DB "
            f"--method {options.method}"
        )
    process = process_rank(options.device)
    say = only_in_first_process(process, say)
    options = options.with_(device=process.device)
    formula = formula_of(options)
    device = judge_device(options.judge, elsewhere=options.ray is not None)
    subject = open_subject(options.policy, options.adapter)
    checked_settings(options.settings, options.decoupled)
    refuse_engine(subject, options, process.world)
    problems = ProblemSource(options.problems, options.seed, options.against)
    with first_before_others(process):
        resumes = prepare_output(options, {"revision": subject.revision})
        checkpoint = newest_checkpoint(options.work) if resumes else None
    with ExitStack() as held, readable_trouble():
        judges = judges or held.enter_context(examined_judges(options, device, say))
        if options.ray is not None:
            options = options.with_(workers=judges.workers)
        store = held.enter_context(open_store(options.db))
        say("loading the policy")
        context = RoundContext(store, judges, options, formula)
        prepared = _prepare(context, process, subject, problems, say)
        return _train(prepared, checkpoint, say, watch)


@contextmanager
def examined_judges(
    options: OnlineOptions, device: str, say: Say = lambda step: None
) -> Iterator[Judges]:
    """Starts the judges and examines them with known cheats. Raises TrainingAlarm."""
    with _open_judges(options, device, say) as judges:
        say("examining the judges")
        refuse_failing_judge(judges, judge_options(options.judge), judges.workers)
        yield judges


def _open_judges(options: OnlineOptions, device: str, say: Say) -> TrainingJudges | PooledJudges:
    """Opens the judges on this machine, or on the requested cluster. Raises InputError and
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


class _PreparedTraining(NamedTuple):
    """A trainer with its source of rows, ready to start."""

    run: TrainingRun
    options: OnlineOptions
    trainer: TrajectoryGRPOTrainer
    batches: OnlineBatches
    samplers: list[Sampler]
    weights_text: str
    """Description of how the weights are held."""


def _prepare(
    context: RoundContext,
    process: ProcessRank,
    subject: Subject,
    problems: ProblemSource,
    say: Say,
) -> _PreparedTraining:
    from kernelwright.rl.training.grpo.trainer import TrajectoryGRPOTrainer

    options = context.options
    held = load_for_training(subject, options)
    config = grpo_config(_own_settings(options), _grpo_facts(options, subject, held.model))
    samplers = open_samplers(subject, options, process)
    slots = [RoundSlot(_rounds(context, sampler, process), sampler) for sampler in samplers]
    report = say if process.first else partial(_aside, process.rank)
    batches = OnlineBatches(slots, problems, context, subject.revision, report)
    with readable_settings():
        trainer = TrajectoryGRPOTrainer(
            held.model,
            config,
            gathered(batches, process),
            decoupled=options.decoupled,
            processing_class=subject.tokenizer,
        )
    keep_masters(trainer, held.masters)
    batches.model = trainer.accelerator.unwrap_model(trainer.model)
    trainer.step_figures = batches.figures
    batches.masking_tokenizer = subject.tokenizer if options.mask_thoughts else None
    batches.evaluations = _evaluations(options, process, trainer)
    facts = _facts(options, subject, context.formula)
    run = TrainingRun(
        subject, options, Method.GRPO, facts, lineage=lambda: tuple(batches.revisions)
    )
    return _PreparedTraining(run, options, trainer, batches, samplers, held.text)


def _evaluations(
    options: OnlineOptions, process: ProcessRank, trainer: TrajectoryGRPOTrainer
) -> Evaluations | None:
    """Returns the evaluations of a training; None without `--evaluate-every`."""
    if options.evaluate_every is None:
        return None
    splits = held_out(options.held_out or HELD_OUT_SPLITS, options.held_out_count, options.seed)
    return Evaluations(
        options.evaluate_every,
        options.samples,
        splits,
        options.work,
        process,
        lambda: gather_weights(trainer),
    )


def _grpo_facts(options: OnlineOptions, subject: Subject, model: PreTrainedModel) -> GRPOFacts:
    return GRPOFacts(
        output_dir=str(options.work),
        max_steps=options.max_steps or DEFAULT_STEPS,
        seed=options.seed,
        device=options.device,
        parameters=parameters(model),
        lora=options.lora or subject.adapter is not None,
        temperature=options.temperature,
        longest_completion=options.reply_tokens or 1536,
    )


def _rounds(context: RoundContext, sampler: Sampler, process: ProcessRank) -> Rounds:
    options = context.options
    return Rounds(
        context,
        sampler.policy,
        f"{options.output.name}-{training_id(options)}",
        rank=process.rank,
        world=process.world,
        together=sampler.together,
    )


def _train(
    prepared: _PreparedTraining, checkpoint: Path | None, say: Say, watch: Watch
) -> TrainingResult:
    options, trainer = prepared.options, prepared.trainer
    earlier = 0.0 if checkpoint is None else float(facts_of(checkpoint)["seconds"])
    watching = TrainingWatcher(prepared.run, watch, earlier)
    keep_trainer_quiet(trainer)
    trainer.add_callback(watching)
    begun = trainer_step(checkpoint)
    action = f"training online on {', '.join(options.problems)}"
    if begun:
        action = f"going on at step {begun}"
    say(f"{action}; {prepared.weights_text}")
    try:
        with (
            stop_on_interrupt(watching.interrupt, STOPPING_AFTER_STEP),
            record_alarm(options, trainer),
        ):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
        if not watching.paused:
            prepared.batches.end(trainer.state.global_step)
    finally:
        prepared.batches.close()
        for sampler in prepared.samplers:
            sampler.close()
    samples = trainer.state.global_step * options.prompts * options.group
    return finish_training(trainer, prepared.run, watching, samples, begun)


def _facts(options: OnlineOptions, subject: Subject, formula: Formula) -> dict[str, object]:
    """Returns the facts of this training for the policy card."""
    return {
        "method": "grpo",
        "formula": formula.label,
        "trained_on": list(options.problems),
        "seed": options.seed,
        "base": subject.base,
    }


def _aside(rank: int, line: str) -> None:
    """Prints a line of a process other than the first to stderr."""
    print(f"process {rank}: {line}", file=sys.stderr, flush=True)


def _own_settings(options: OnlineOptions) -> dict[str, Any]:
    """Returns the user's settings over the default number of parts of a step: each part must fit
    the memory.
    """
    return {"gradient_accumulation_steps": 4, **options.settings}
