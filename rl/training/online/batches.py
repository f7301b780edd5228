"""The rows of an online training: a round of the agent's own runs for each step, sampled and judged ahead of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

from kernelwright.rl.training.grpo.rows import ScoredCompletion, in_order, row_of
from kernelwright.rl.training.online.options import OnlineOptions
from kernelwright.rl.training.online.pooled_judges import Judges
from kernelwright.rl.training.online.problem_source import ProblemSource
from kernelwright.rl.training.online.rounds import Round, Rounds, faults_of
from kernelwright.rl.training.online.sampler import Sampler
from kernelwright.rl.training.processes import ProcessRank, gather_from_all
from kernelwright.rl.training.safety.alarms import WatchedCandidate, check_step
from kernelwright.rl.training.safety.suspects import suspects_of
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter

Say = Callable[[str], None]
SILENCE_SECONDS = 60.0
"""Seconds that a round is waited for before it is said where it is."""


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
        """Revisions that were sampled from since the first step, the oldest first."""
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
        """Waits for the round and returns it; after a minute it reports what the round waits for."""
        round, began = self._ahead.pop(number), time.monotonic()
        while not wait([round], timeout=SILENCE_SECONDS).done:
            progress = self._slot(number).rounds.progress_in_words()
            self._say(
                f"waiting for round {number + 1} for {time.monotonic() - began:.0f} s: {progress}"
            )
        return round.result()

    def figures(self) -> dict[str, float]:
        """The figures of the step that is trained on."""
        return self._figures

    def close(self) -> None:
        """Stops the rounds that are under way. Their finished turns are in the store, and a later call continues from
        them.
        """
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
        found = self._slot(number).rounds.run(
            number, self._problems.at(number, self._options.prompts)
        )
        if self._options.resample:
            found = self._filled(found, number)
        tokens, seconds = (after - was for after, was in zip(sampler.drawn(), before, strict=True))
        more = {"seconds/generation": seconds, "seconds/round": time.monotonic() - began}
        if seconds > 0:
            more["sampled_tokens_a_second"] = tokens / seconds
        return found._replace(figures=found.figures | more)

    def _judging(self) -> dict[str, float]:
        """Returns the judges' counts since the last step, of all rounds together."""
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
        """Runs one more round, with other problems in the place of the groups that gave no gradient."""
        prompts = self._options.prompts
        missing = round(found.figures.get("zero_variance", 0.0) * prompts)
        if missing == 0:
            return found
        others = self._problems.others(number, prompts)[:missing]
        more = self._slot(number).rounds.run(number, others, label="more1")
        log = found.log._replace(
            samples=found.log.samples + more.log.samples,
            all_scored=found.log.all_scored + more.log.all_scored,
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
                file.writelines(
                    json.dumps({"step": found.step, **suspect.model_dump()}) + "\n"
                    for suspect in suspects
                )
        check_step(seen, self._options.limits)


def gathered(batches: OnlineBatches, place: ProcessRank) -> Callable[[int], list[ScoredCompletion]]:
    """The rows of all processes, in one order: each samples its own share of the problems."""
    if place.world == 1:
        return batches

    def everyone(number: int) -> list[ScoredCompletion]:
        return in_order(
            row for share in gather_from_all(place, lambda: batches(number)) for row in share
        )

    return everyone
