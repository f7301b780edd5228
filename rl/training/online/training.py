"""`rl train --online`: sample, judge, train, and sample from the new revision; the next rounds are sampled and
judged while this one is trained on.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple

from kernelwright.agent.databases import open_store, verdict_cache_folder
from kernelwright.agent.interrupts import STOPPING_AFTER_STEP, stop_on_interrupt
from kernelwright.rl.credit.formula import DEFAULT_FORMULA, EXECUTION_FORMULA, PRESETS, Formula, find_formula
from kernelwright.rl.log.defaults import AUTO
from kernelwright.rl.training.checkpoints import facts_of, newest_checkpoint, prepare_output, training_id
from kernelwright.rl.training.from_log import (
    finish_training,
    readable_settings,
    readable_trouble,
    record_alarm,
    silence_libraries,
    trainer_step,
)
from kernelwright.rl.training.grpo.config import grpo_config
from kernelwright.rl.training.grpo.rows import ScoredCompletion, in_order, row_of
from kernelwright.rl.training.online.judges import JudgePool
from kernelwright.rl.training.online.options import OnlineOptions
from kernelwright.rl.training.online.pooled_judges import Judges, PooledJudges
from kernelwright.rl.training.online.problem_source import ProblemSource
from kernelwright.rl.training.online.rounds import Round, Rounds, faults_of, judge_device, judge_options
from kernelwright.rl.training.online.sampler import Sampler, open_samplers, refuse_engine
from kernelwright.rl.training.options import Method
from kernelwright.rl.training.processes import (
    ProcessRank,
    first_before_others,
    only_first,
    place_of,
    refuse_spread_weights,
    shared,
)
from kernelwright.rl.training.report import TrainingResult
from kernelwright.rl.training.safety.alarms import WatchedCandidate, check_step
from kernelwright.rl.training.safety.judge_exam import refuse_failing_judge
from kernelwright.rl.training.safety.suspects import suspects_of
from kernelwright.rl.training.subject import Subject, load_weights, open_subject, parameters
from kernelwright.rl.training.watching import Watch, Watching, unwatched
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter

Say = Callable[[str], None]
DEFAULT_STEPS = 100
"""Where nothing is said."""
SILENCE_SECONDS = 60.0
"""Seconds that a round is waited for before it is said where it is."""


def formula_of(options: OnlineOptions) -> Formula:
    """Where none is named: the default if a GPU judges, else execution alone.

    Raises InputError, also for a speed reward without a GPU.
    """
    from kernelwright.errors import InputError

    on_gpu = options.judge.startswith("cuda")
    if options.reward == AUTO:
        return PRESETS[DEFAULT_FORMULA if on_gpu else EXECUTION_FORMULA]
    formula = find_formula(options.reward)
    if formula.needs_gpu and not on_gpu:
        raise InputError(
            f"--reward {options.reward} needs a GPU's speed and --judge {options.judge} measures none: use "
            "--judge cuda:0, or --reward "
            "execution"
        )
    return formula


class RoundSlot(NamedTuple):
    """A place for one round at a time."""

    rounds: Rounds
    sampler: Sampler


class OnlineBatches:
    """The trainer's source of rows: by the number of the step, always from the policy as it then is, or as it was `lag`
    steps before.

    Each of the rounds under way has a sampling policy of its own, which is moved on when its round has ended: a round
    comes from one revision, whole.
    """

    def __init__(
        self, slots: Sequence[RoundSlot], problems: ProblemSource, judges: Judges, options: OnlineOptions, store: Store,
        steps: int,
        revision: str, say: Say = lambda line: None,
    ) -> None:  # fmt: skip
        """`slots`: one for each round that is under way at once. `revision`: of the policy before the first step."""
        self._say = say
        self._slots, self._problems = slots, problems
        self._judges, self._options, self._store, self._steps = judges, options, store, steps
        self._pool = ThreadPoolExecutor(len(slots), thread_name_prefix="rollouts")
        self._ahead: dict[int, Future[Round]] = {}
        self._figures: dict[str, float] = {}
        self._trained_since = self._asked_since = time.monotonic()
        self._judged, self._own_revision = judges.figures, revision
        self.revisions: list[str] = []
        """That were sampled from since the first step, the oldest first."""
        self.model: Any = None

    def __call__(self, number: int) -> list[ScoredCompletion]:
        """Waits for the round, moves the policy that sampled it on, and starts the round that is `lag` steps ahead."""
        training = time.monotonic() - self._trained_since
        waited = time.monotonic()
        for missing in range(number, min(number + max(1, self._options.lag), self._steps)):
            if missing not in self._ahead:
                self._start(missing, number)
        found = self._ended(number)
        if self._options.lag and number + self._options.lag < self._steps:
            self._start(number + self._options.lag, number)
        waiting = {"seconds/waiting": time.monotonic() - waited, "seconds/training": training}
        self._figures = found.figures | self._judging() | waiting
        self._check(found)
        self._trained_since = time.monotonic()
        return in_order(row_of(sample)._replace(figures=None) for sample in found.log.samples)

    def _ended(self, number: int) -> Round:
        """The round, once it is over; where that takes long it is said what it waits for."""
        round, began = self._ahead.pop(number), time.monotonic()
        while not wait([round], timeout=SILENCE_SECONDS).done:
            standing = self._slot(number).rounds.standing()
            self._say(f"waiting for round {number + 1} for {time.monotonic() - began:.0f} s: {standing}")
        return round.result()

    def figures(self) -> dict[str, float]:
        """The figures of the step that is trained on."""
        return self._figures

    def close(self) -> None:
        """What is under way is left: what was finished of it is in the store, and is gone on with."""
        for slot in self._slots:
            slot.rounds.stop()
            slot.sampler.stop_answering()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _slot(self, number: int) -> RoundSlot:
        return self._slots[number % len(self._slots)]

    def _start(self, number: int, step: int) -> None:
        """From the weights as they are at this step; before the first one they are the policy's that was given, and
        are called so.
        """
        own = self._own_revision if step == 0 else None
        revision = self._slot(number).sampler.follow(self.model, own)
        if revision not in (*self.revisions[-1:], self._own_revision):
            self.revisions.append(revision)
        self._ahead[number] = self._pool.submit(self._round, number)

    def _round(self, number: int) -> Round:
        sampler, began = self._slot(number).sampler, time.monotonic()
        before = sampler.drawn()
        found = self._slot(number).rounds.run(number, self._problems.at(number, self._options.prompts))
        if self._options.resample:
            found = self._filled(found, number)
        tokens, seconds = (after - was for after, was in zip(sampler.drawn(), before, strict=True))
        more = {"seconds/generation": seconds, "seconds/round": time.monotonic() - began}
        if seconds > 0:
            more["sampled_tokens_a_second"] = tokens / seconds
        return found._replace(figures=found.figures | more)

    def _judging(self) -> dict[str, float]:
        """What the judges did since the last step, for whichever round."""
        now, was = self._judges.figures, self._judged
        since = max(time.monotonic() - self._asked_since, 1e-9)
        self._judged, self._asked_since = now, time.monotonic()
        judged, asked = now.judged - was.judged, now.asked - was.asked
        return {
            "seconds/judging": (now.seconds - was.seconds) / self._judges.workers,
            "verdicts": float(judged), "verdicts_a_second": judged / since,
            "known_verdicts": 1.0 - judged / max(asked, 1),
        }  # fmt: skip

    def _filled(self, found: Round, number: int) -> Round:
        """One more round, with other problems in the place of the groups that gave no gradient."""
        prompts = self._options.prompts
        missing = round(found.figures.get("zero_variance", 0.0) * prompts)
        if missing == 0:
            return found
        others = self._problems.others(number, prompts)[:missing]
        more = self._slot(number).rounds.run(number, others, label="more1")
        log = found.log._replace(
            samples=found.log.samples + more.log.samples, all_scored=found.log.all_scored + more.log.all_scored
        )
        return found._replace(log=log)

    def _check(self, found: Round) -> None:
        """Raises TrainingAlarm for what no honest round looks like; writes what a person should look at."""
        run = self._slot(found.step).rounds.run_name(found.step, "step")
        faults = faults_of(self._store, run)
        seen = [
            WatchedCandidate(
                candidate_id=s.candidate_id, problem_hash=s.problem_hash, source_hash=s.source_hash, correct=s.correct,
                cheat=s.candidate_id in faults.cheats, speed_of_light=faults.light.get(s.candidate_id),
            )
            for s in found.log.all_scored
        ]  # fmt: skip
        self._figures["cheats"] = sum(one.cheat for one in seen) / max(len(seen), 1)
        if suspects := suspects_of(self._store, CandidateFilter(run=run)):
            with (self._options.work / "quarantine.jsonl").open("a", encoding="utf-8") as file:
                file.writelines(json.dumps({"step": found.step, **suspect.model_dump()}) + "\n" for suspect in suspects)
        check_step(seen, self._options.limits)


def train_online(
    options: OnlineOptions, *, say: Say = lambda step: None, watch: Watch = unwatched, judges: Judges | None = None
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
    place = place_of(options.device)
    say, options = only_first(place, say), options.with_(device=place.device)
    formula, device = formula_of(options), judge_device(options.judge, elsewhere=options.ray is not None)
    subject = open_subject(options.policy, options.adapter)
    refuse_engine(subject, options, place.world)
    problems = ProblemSource(options.problems, options.seed, options.against)
    with first_before_others(place):
        resumes = prepare_output(options, {"revision": subject.revision})
    with ExitStack() as held, readable_trouble():
        judges = judges or held.enter_context(examined_judges(options, device, say))
        options = options.with_(workers=judges.workers) if options.ray is not None else options
        store = held.enter_context(open_store(options.db))
        say("loading the policy")
        return _train(options, place, subject, formula, problems, judges, store, resumes, say, watch)


@contextmanager
def examined_judges(options: OnlineOptions, device: str, say: Say = lambda step: None) -> Iterator[Judges]:
    """Started, and shown to see through what they must see through. Raises TrainingAlarm."""
    with _open_judges(options, device, say) as judges:
        say("examining the judges")
        refuse_failing_judge(judges, judge_options(options.judge), judges.workers)
        yield judges


def _open_judges(options: OnlineOptions, device: str, say: Say) -> JudgePool | PooledJudges:
    """On this machine, or on the cluster that was asked for. Raises InputError and InfrastructureError."""
    if options.ray is None:
        say(f"starting {options.judges} judges")
        return JudgePool(device, options.judges, verdict_cache_folder(options.db), options.judge_gpus)
    from kernelwright.agent.judging.pool import DeviceKind
    from kernelwright.agent.judging.ray_pool import RayPool

    kind = DeviceKind.CPU if device == "cpu" else DeviceKind.CUDA
    sampling = max(1, options.lag) * options.rollout_actors if options.device.startswith("cuda") else 0
    judges = PooledJudges(RayPool(options.ray, kind=kind, spare=sampling), kind)
    say(f"judging on the Ray cluster {options.ray}: {judges.workers} verdicts at once")
    return judges


def _train(
    options: OnlineOptions, place: ProcessRank, subject: Subject, formula: Formula, problems: ProblemSource,
    judges: Judges, store: Store, resumes: bool, say: Say,
    watch: Watch,
) -> TrainingResult:  # fmt: skip
    from kernelwright.rl.training.grpo.trainer import TrajectoryGRPOTrainer

    model, steps = load_weights(subject, options.device, options.lora), options.max_steps or DEFAULT_STEPS
    config = grpo_config(
        _own_settings(options), output_dir=str(options.work), max_steps=steps, seed=options.seed, device=options.device,
        parameters=parameters(model), lora=options.lora or subject.adapter is not None, temperature=options.temperature,
        longest_completion=options.reply_tokens or 1536,
    )  # fmt: skip
    samplers = open_samplers(subject, options, place.world)
    name = f"{options.output.name}-{training_id(options)}"
    slots = [
        RoundSlot(
            Rounds(store, sampler.policy, judges, options, formula, name, place.rank, place.world, sampler.together),
            sampler,
        )
        for sampler in samplers
    ]
    tell = say if place.first else partial(_aside, place.rank)
    batches = OnlineBatches(slots, problems, judges, options, store, steps, subject.revision, tell)
    with readable_settings():
        trainer = TrajectoryGRPOTrainer(
            model, config, gathered(batches, place), decoupled=options.decoupled, processing_class=subject.tokenizer
        )
    batches.model = trainer.accelerator.unwrap_model(trainer.model)
    trainer.step_figures = batches.figures
    checkpoint = newest_checkpoint(options.work) if resumes else None
    facts = {"method": "grpo", "formula": formula.label, "trained_on": list(options.problems)}
    watching = Watching(
        subject, options.work, watch, options.limits, max_minutes=options.max_minutes,
        lineage=lambda: tuple(batches.revisions), facts=facts,
        earlier=0.0 if checkpoint is None else float(facts_of(checkpoint)["seconds"]),
    )  # fmt: skip
    silence_libraries(trainer)
    trainer.add_callback(watching)
    begun = trainer_step(checkpoint)
    say(f"going on at step {begun}" if begun else f"training online on {', '.join(options.problems)}")
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
        trainer, options, subject, watching, Method.GRPO, samples, begun, None, facts, tuple(batches.revisions)
    )


def _aside(rank: int, line: str) -> None:
    """What another process than the first has to say."""
    print(f"process {rank}: {line}", file=sys.stderr, flush=True)


def _own_settings(options: OnlineOptions) -> dict[str, Any]:
    """A step is a round: its rows in so many parts that each fits the memory."""
    return {"gradient_accumulation_steps": 4, **options.settings}


def gathered(batches: OnlineBatches, place: ProcessRank) -> Callable[[int], list[ScoredCompletion]]:
    """The rows of all processes, in one order: each samples its own share of the problems."""
    if place.world == 1:
        return batches

    def everyone(number: int) -> list[ScoredCompletion]:
        return in_order(row for share in shared(place, lambda: batches(number)) for row in share)

    return everyone
