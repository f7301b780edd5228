"""The rows of an online training: for each step a round of the agent's runs, sampled and judged
ahead of the step.

With `lag` 0, round n is sampled with the weights after n steps: sampling and training alternate.
With `lag` 1, round n + 1 is under way during step n, with the weights after n steps:

    step 0   trains on round 0 (initial weights)          round 1 under way (initial weights)
    step 1   trains on round 1 (initial weights)          round 2 under way (weights after 1 step)
    step 2   trains on round 2 (weights after 1 step)     round 3 under way (weights after 2 steps)
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

from kernelwright.rl.training.grpo.rows import ScoredCompletion, in_order, row_of
from kernelwright.rl.training.online.evaluation import Evaluations
from kernelwright.rl.training.online.options import DEFAULT_STEPS
from kernelwright.rl.training.online.problem_source import ProblemSource
from kernelwright.rl.training.online.rounds import Round, RoundContext, Rounds, faults_of
from kernelwright.rl.training.online.sampler import Sampler
from kernelwright.rl.training.processes import ProcessRank, gather_from_all
from kernelwright.rl.training.safety.alarms import WatchedCandidate, check_step
from kernelwright.rl.training.safety.suspects import suspects_of
from kernelwright.store.records import CandidateFilter

Say = Callable[[str], None]
SILENCE_SECONDS = 60.0
"""Seconds of waiting for a round before its progress is reported."""


class RoundSlot(NamedTuple):
    """A sampler with the rounds that use it; a slot runs one round at a time."""

    rounds: Rounds
    sampler: Sampler


class OnlineBatches:
    """The trainer's source of rows: for each step, samples of the policy as of this step, or as
    of `lag` steps earlier.

    Each round under way has its own sampling policy, updated after the round's end: all samples
    of a round come from a single revision.
    """

    def __init__(
        self,
        slots: Sequence[RoundSlot],
        problems: ProblemSource,
        context: RoundContext,
        revision: str,
        say: Say = lambda line: None,
    ) -> None:
        """Takes `slots`, each for a concurrent round, and `revision`, the policy's revision
        before the first step.
        """
        self._slots = slots
        self._problems = problems
        self._store, self._judges, self._options, _ = context
        self._steps = self._options.max_steps or DEFAULT_STEPS
        self._say = say
        self._pool = ThreadPoolExecutor(len(slots), thread_name_prefix="rollouts")
        self._ahead: dict[int, Future[Round]] = {}
        self._figures: dict[str, float] = {}
        self._measured: dict[str, float] = {}
        """Figures of an evaluation since the last step."""
        self._trained_since = self._asked_since = time.monotonic()
        self._judged = self._judges.figures
        self._own_revision = revision
        self.revisions: list[str] = []
        """Revisions sampled since the first step, the oldest first."""
        self.model: Any = None
        self.evaluations: Evaluations | None = None
        self.masking_tokenizer: Any = None
        """Tokenizer of a policy whose thoughts are left out of the loss."""

    def __call__(self, number: int) -> list[ScoredCompletion]:
        """Waits for a round, updates its sampling policy, and starts the round `lag` steps ahead."""
        training = time.monotonic() - self._trained_since
        waited = time.monotonic()
        # At the first call, or after a resumption, the rounds up to `lag` ahead are not started.
        for missing in range(number, min(number + max(1, self._options.lag), self._steps)):
            if missing not in self._ahead:
                self._start(missing, number)
        current_round = self._ended(number)
        if self._options.lag and number + self._options.lag < self._steps:
            self._start(number + self._options.lag, number)
        waiting = {"seconds/waiting": time.monotonic() - waited, "seconds/training": training}
        self._figures = current_round.figures | self._judging() | waiting | self._measured
        self._measured = {}
        self._check(current_round)
        self._trained_since = time.monotonic()
        samples = current_round.log.samples
        # The figures of the whole round are logged instead of means over the trained rows.
        return in_order(
            row_of(sample, self.masking_tokenizer)._replace(figures=None) for sample in samples
        )

    def _ended(self, number: int) -> Round:
        """Waits for a round and returns it; reports every minute what the round waits for."""
        round, began = self._ahead.pop(number), time.monotonic()
        while not wait([round], timeout=SILENCE_SECONDS).done:
            progress = self._slot(number).rounds.progress_in_words()
            self._say(
                f"waiting for round {number + 1} for {time.monotonic() - began:.0f} s: {progress}"
            )
        return round.result()

    def figures(self) -> dict[str, float]:
        """Returns the figures of the current step."""
        return self._figures

    def close(self) -> None:
        """Stops the rounds under way. Their finished turns are in the store, and a later call
        continues from them.
        """
        for slot in self._slots:
            slot.rounds.stop()
            slot.sampler.stop_answering()
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _slot(self, number: int) -> RoundSlot:
        return self._slots[number % len(self._slots)]

    def _start(self, number: int, step: int) -> None:
        """Starts a round with the weights of this step. Before the first step they are the
        initial policy's weights, with its revision.
        """
        # Before the first step the weights are the initial policy's, whose revision is known.
        known_revision = self._own_revision if step == 0 else None
        revision = self._slot(number).sampler.follow(self.model, known_revision)
        if revision not in (*self.revisions[-1:], self._own_revision):
            self.revisions.append(revision)
        self._evaluate(step, number)
        self._ahead[number] = self._pool.submit(self._round, number)

    def _evaluate(self, step: int, number: int) -> None:
        """Measures the policy after `step` steps with the sampler of round `number`, if it is due."""
        if self.evaluations is None or not self.evaluations.is_due(step):
            return
        began = time.monotonic()
        evaluation = self.evaluations.evaluate(step, self._slot(number).rounds)
        self._say(f"after {step} steps: pass@1 {evaluation.pass_at_1:.1%} on held-out problems")
        self._measured = evaluation.figures | {"seconds/evaluation": time.monotonic() - began}

    def end(self, step: int) -> None:
        """Measures the policy after the last step, if it is due."""
        if self.evaluations is None or not self.evaluations.is_due(step):
            return
        self._slot(step).sampler.follow(self.model, None)
        self._evaluate(step, step)

    def _round(self, number: int) -> Round:
        slot, began = self._slot(number), time.monotonic()
        tokens_before, seconds_before = slot.sampler.drawn()
        problems = self._problems.at(number, self._options.prompts)
        current_round = slot.rounds.run(number, problems)
        if self._options.resample:
            current_round = self._filled(current_round, number)
        tokens_after, seconds_after = slot.sampler.drawn()
        seconds = seconds_after - seconds_before
        timings = {"seconds/generation": seconds, "seconds/round": time.monotonic() - began}
        if seconds > 0:
            timings["sampled_tokens_a_second"] = (tokens_after - tokens_before) / seconds
        return current_round._replace(figures=current_round.figures | timings)

    def _judging(self) -> dict[str, float]:
        """Returns the judges' counts since the last step, over all rounds."""
        totals, before = self._judges.figures, self._judged
        duration = max(time.monotonic() - self._asked_since, 1e-9)
        self._judged, self._asked_since = totals, time.monotonic()
        judged = totals.judged - before.judged
        requested = totals.requested - before.requested
        return {
            "seconds/judging": (totals.seconds - before.seconds) / self._judges.workers,
            "verdicts": float(judged),
            "verdicts_a_second": judged / duration,
            "known_verdicts": 1.0 - judged / max(requested, 1),
        }

    def _filled(self, current_round: Round, number: int) -> Round:
        """Runs a second round, with other problems instead of the groups without a gradient."""
        prompts = self._options.prompts
        # The share of groups without variance, as a number of problems.
        missing = round(current_round.figures.get("zero_variance", 0.0) * prompts)
        if missing == 0:
            return current_round
        replacements = self._problems.replacements(number, prompts)[:missing]
        second_round = self._slot(number).rounds.run(number, replacements, label="more1")
        log = current_round.log._replace(
            samples=current_round.log.samples + second_round.log.samples,
            all_scored=current_round.log.all_scored + second_round.log.all_scored,
        )
        return current_round._replace(log=log)

    def _check(self, current_round: Round) -> None:
        """Raises TrainingAlarm for an implausible round; writes suspects to quarantine.jsonl for
        a person to inspect.
        """
        run = self._slot(current_round.step).rounds.run_name(current_round.step, "step")
        faults = faults_of(self._store, run)
        candidates = [
            WatchedCandidate(
                candidate_id=sample.candidate_id,
                problem_hash=sample.problem_hash,
                source_hash=sample.source_hash,
                correct=sample.correct,
                cheat=sample.candidate_id in faults.cheats,
                speed_of_light=faults.light.get(sample.candidate_id),
            )
            for sample in current_round.log.all_scored
        ]
        cheats = sum(candidate.cheat for candidate in candidates)
        self._figures["cheats"] = cheats / max(len(candidates), 1)
        if suspects := suspects_of(self._store, CandidateFilter(run=run)):
            with (self._options.work / "quarantine.jsonl").open("a", encoding="utf-8") as file:
                for suspect in suspects:
                    entry = {"step": current_round.step, **suspect.model_dump()}
                    file.write(json.dumps(entry) + "\n")
        check_step(candidates, self._options.limits)


def gathered(
    batches: OnlineBatches, process: ProcessRank
) -> Callable[[int], list[ScoredCompletion]]:
    """Returns a source of the rows of all processes, in a common order: each process samples its
    share of the problems.
    """
    if process.world == 1:
        return batches

    def rows_of_all(number: int) -> list[ScoredCompletion]:
        shares = gather_from_all(process, lambda: batches(number))
        return in_order(itertools.chain.from_iterable(shares))

    return rows_of_all
