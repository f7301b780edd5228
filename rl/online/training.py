"""`rl train --online`: sample, judge, train, and sample from the new revision; the next round is sampled and judged while this one is trained on."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

from agent.databases import open_store, verdicts_beside
from agent.interrupts import stopping
from rl.choosing import AUTO
from rl.grpo.config import grpo_config
from rl.grpo.rows import Row, in_order, row_of
from rl.online.judges import JudgePool
from rl.online.options import OnlineOptions
from rl.online.problem_source import ProblemSource
from rl.online.rounds import Round, Rounds, faults_of, judge_device, judge_options
from rl.online.sampler import Sampler, open_sampler
from rl.reward.formula import DEFAULT, EXECUTION, PRESETS, Formula, find_formula
from rl.safety.alarms import Seen, TrainingAlarm, check_step
from rl.safety.exam import refuse_a_blind_judge
from rl.safety.suspects import suspects_of
from rl.training.checkpoints import facts_of, newest, prepare, training_id
from rl.training.from_log import Trained, finish, quieten, readable_trouble, trainer_step
from rl.training.options import Method
from rl.training.processes import Place, first_before_others, only_first, place_of, shared
from rl.training.subject import Subject, load_weights, open_subject, parameters
from rl.training.watching import Watch, Watching, unwatched
from store.database import Store
from store.records import CandidateFilter

Say = Callable[[str], None]
STEPS = 100
"""Where nothing is said."""
FILLED = 2
"""Rounds that `--zero-variance resample` may take to fill a step."""


def formula_of(options: OnlineOptions) -> Formula:
    """Where none is named: the default if a GPU judges, else execution alone. Raises InputError, also for a speed reward without a GPU."""
    from agent.exits import InputError

    on_gpu = options.judge.startswith("cuda")
    if options.reward == AUTO:
        return PRESETS[DEFAULT if on_gpu else EXECUTION]
    formula = find_formula(options.reward)
    if formula.needs_gpu and not on_gpu:
        raise InputError(
            f"--reward {options.reward} needs a GPU's speed and --judge {options.judge} measures none: use --judge cuda:0, or --reward execution"
        )
    return formula


class OnlineBatches:
    """The trainer's source of rows: by the number of the step, always from the policy as it then is, or (lag 1) was one step before."""

    def __init__(
        self, rounds: Rounds, problems: ProblemSource, sampler: Sampler, judges: JudgePool, options: OnlineOptions, store: Store, steps: int,
    ) -> None:  # fmt: skip
        self._rounds, self._problems, self._sampler = rounds, problems, sampler
        self._judges, self._options, self._store, self._steps = judges, options, store, steps
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="rollouts")
        self._ahead: tuple[int, Future[Round]] | None = None
        self._figures: dict[str, float] = {}
        self._trained_since = time.monotonic()
        self.revisions: list[str] = []
        """That were sampled from, the first first."""
        self.model: Any = None

    def __call__(self, number: int) -> list[Row]:
        """Waits for the round, moves the sampling policy on, and starts the next round where `lag` is 1."""
        training = time.monotonic() - self._trained_since
        waited = time.monotonic()
        if self._options.lag == 0 or self._ahead is None or self._ahead[0] != number:
            self._follow()
            found = self._round(number)
        else:
            found = self._ahead[1].result()
            self._follow()
        if self._options.lag and number + 1 < self._steps:
            self._ahead = (number + 1, self._pool.submit(self._round, number + 1))
        self._figures = found.figures | {"seconds/waiting": time.monotonic() - waited, "seconds/training": training}
        self._check(found)
        self._trained_since = time.monotonic()
        return in_order(row_of(sample)._replace(figures=None) for sample in found.log.samples)

    def figures(self) -> dict[str, float]:
        """Of the step that is trained on."""
        return self._figures

    def close(self) -> None:
        self._rounds.stop()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _follow(self) -> None:
        revision = self._sampler.follow(self.model)
        if revision not in self.revisions[-1:]:
            self.revisions.append(revision)

    def _round(self, number: int) -> Round:
        before, judged, began = self._sampler.drawn(), self._judges.figures, time.monotonic()
        found = self._rounds.run(number, self._problems.at(number, self._options.prompts))
        for extra in range(1, FILLED if self._options.resample else 1):
            found = self._filled(found, number, extra)
        tokens, seconds = (after - was for after, was in zip(self._sampler.drawn(), before, strict=True))
        now = self._judges.figures
        whole = max(time.monotonic() - began, 1e-9)
        more = {
            "seconds/generation": seconds, "seconds/round": whole, "seconds/judging": (now.seconds - judged.seconds) / self._judges.workers,
            "verdicts": float(now.judged - judged.judged), "verdicts_a_second": (now.judged - judged.judged) / whole,
            "known_verdicts": 1.0 - (now.judged - judged.judged) / max(now.asked - judged.asked, 1),
        }  # fmt: skip
        if seconds > 0:
            more["sampled_tokens_a_second"] = tokens / seconds
        return found._replace(figures=found.figures | more)

    def _filled(self, found: Round, number: int, extra: int) -> Round:
        """More problems for the groups that gave no gradient."""
        missing = round(found.figures.get("zero_variance", 0.0) * self._options.prompts)
        if missing == 0:
            return found
        far = 1_000_000 * extra + number
        more = self._rounds.run(number, self._problems.at(far, missing), label=f"more{extra}")
        log = found.log._replace(
            samples=found.log.samples + more.log.samples, all_scored=found.log.all_scored + more.log.all_scored
        )
        return found._replace(log=log)

    def _check(self, found: Round) -> None:
        """Raises TrainingAlarm for what no honest round looks like; writes what a person should look at."""
        run = self._rounds.run_name(found.step, "step")
        faults = faults_of(self._store, run)
        seen = [
            Seen(
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
    options: OnlineOptions, *, say: Say = lambda step: None, watch: Watch = unwatched, judges: JudgePool | None = None
) -> Trained:
    """Begins or goes on. `judges`: that are started and examined already. Raises InputError, PolicyRefused, TrainingAlarm, InfrastructureError, StoreError; KeyboardInterrupt after a checkpoint."""
    from agent.exits import InputError

    if options.method not in (None, Method.GRPO):
        raise InputError(
            f"--online trains by grpo: collect with agent batch, then rl train --from-trajectories DB --method {options.method}"
        )
    place = place_of(options.device)
    say, options = only_first(place, say), options.with_(device=place.device)
    formula, device = formula_of(options), judge_device(options.judge)
    subject = open_subject(options.policy, options.adapter)
    problems = ProblemSource(options.problems, options.seed, options.against)
    with first_before_others(place):
        resumes = prepare(options, {"revision": subject.revision})
    with ExitStack() as held, readable_trouble():
        judges = judges or held.enter_context(examined_judges(options, device, say))
        store = held.enter_context(open_store(options.db))
        say("loading the policy")
        return _train(options, place, subject, formula, problems, judges, store, resumes, say, watch)


@contextmanager
def examined_judges(options: OnlineOptions, device: str, say: Say = lambda step: None) -> Iterator[JudgePool]:
    """Started, and shown to see through what they must see through. Raises TrainingAlarm."""
    say(f"starting {options.judges} judges")
    with JudgePool(device, options.judges, verdicts_beside(options.db)) as judges:
        say("examining the judges")
        refuse_a_blind_judge(judges, judge_options(options.judge), options.judges)
        yield judges


def _train(
    options: OnlineOptions, place: Place, subject: Subject, formula: Formula, problems: ProblemSource, judges: JudgePool, store: Store, resumes: bool, say: Say,
    watch: Watch,
) -> Trained:  # fmt: skip
    from rl.grpo.trainer import TrajectoryGRPOTrainer

    model, steps = load_weights(subject, options.device, options.lora), options.max_steps or STEPS
    config = grpo_config(
        _own_settings(options), output_dir=str(options.work), max_steps=steps, seed=options.seed, device=options.device,
        parameters=parameters(model), lora=options.lora or subject.adapter is not None, temperature=options.temperature,
        longest_completion=options.reply_tokens or 1536,
    )  # fmt: skip
    sampler = open_sampler(subject, options)
    rounds = Rounds(
        store,
        sampler.policy,
        judges,
        options,
        formula,
        f"{options.output.name}-{training_id(options)}",
        place.rank,
        place.world,
    )
    batches = OnlineBatches(rounds, problems, sampler, judges, options, store, steps)
    trainer = TrajectoryGRPOTrainer(
        model,
        config,
        gathered(batches, place),
        decoupled=options.decoupled,
        processing_class=subject.tokenizer,
    )
    batches.model = trainer.accelerator.unwrap_model(trainer.model)
    trainer.step_figures = batches.figures
    checkpoint = newest(options.work) if resumes else None
    facts = {"method": "grpo", "formula": formula.label, "trained_on": list(options.problems)}
    watching = Watching(
        subject, options.work, watch, options.limits, max_minutes=options.max_minutes, lineage=lambda: tuple(batches.revisions), facts=facts,
        earlier=0.0 if checkpoint is None else float(facts_of(checkpoint)["seconds"]),
    )  # fmt: skip
    quieten(trainer)
    trainer.add_callback(watching)
    begun = trainer_step(checkpoint)
    say(f"going on at step {begun}" if begun else f"training online on {', '.join(options.problems)}")
    try:
        with stopping(watching.interrupt):
            trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    except TrainingAlarm as alarm:
        _report_alarm(options, trainer, alarm)
        raise
    finally:
        batches.close()
        sampler.close()
    samples = trainer.state.global_step * options.prompts * options.group
    return finish(
        trainer, options, subject, watching, Method.GRPO, samples, begun, None, facts, tuple(batches.revisions)
    )


def _own_settings(options: OnlineOptions) -> dict[str, Any]:
    """A step is a round: its rows in so many parts that each fits the memory."""
    return {"gradient_accumulation_steps": 4, **options.settings}


def gathered(batches: OnlineBatches, place: Place) -> Callable[[int], list[Row]]:
    """The rows of all processes, in one order: each samples its own share of the problems."""
    if place.world == 1:
        return batches

    def everyone(number: int) -> list[Row]:
        return in_order(row for share in shared(place, lambda: batches(number)) for row in share)

    return everyone


def _report_alarm(options: OnlineOptions, trainer: Any, alarm: TrainingAlarm) -> None:
    """What was seen when it stopped, beside the checkpoints."""
    from rl.training.report import draw_curves

    history = trainer.state.log_history
    found = {"alarm": alarm.alarm.value, "message": str(alarm), "step": trainer.state.global_step, "last": history[-3:]}
    (options.work / "alarm.json").write_text(json.dumps(found, indent=2), encoding="utf-8")
    draw_curves(options.work / "curves.png", history)
