"""One candidate on its way through the checks of one judge: the base size with every distribution, then the other
sizes.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from kernelwright.tools.comparing.movement import converts_inputs, draws_of, gives_back_inputs, only_moves
from kernelwright.tools.judging import own_work
from kernelwright.tools.judging.compile_report import late_kernel
from kernelwright.tools.judging.rules import (
    AtSize,
    JudgeFindings,
    Rules,
    Thoroughness,
    distributions_for,
    require_enough_sizes,
)
from kernelwright.tools.judging.size_checks import NUMERIC_FAULTS, POISON_BYTES, POISONS, SizeChecks
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.input_distributions import WITH_INFINITIES, Draw
from kernelwright.tools.references.prepared_problem import Expected, PreparedProblem
from kernelwright.tools.references.weights import require_visible_weights
from kernelwright.tools.replaying.interpreter.needs_gpu import NeedsGpu
from kernelwright.tools.replaying.noise import NOISE
from kernelwright.tools.report import (
    Cheat,
    Check,
    CorrectnessResult,
    Failed,
    Failure,
    Fault,
    OwnWork,
    SizeOutcome,
    Tried,
    clean_text,
)
from kernelwright.tools.sizing.long_sizes import longest
from kernelwright.tools.tracing.alternatives import configuration_named, untaken
from kernelwright.tools.tracing.client import TracedCandidate

if TYPE_CHECKING:
    from kernelwright.tools.judging.judge import Judge

ALL, FEW, ONE_CALL = Thoroughness
LATER_CALLS = ((30, 99), (100, 2_000), (20_000, 100_000))
"""How many calls later the answer is looked at where something kept changes from call to call: least and most."""


class Verdict:
    """One candidate on its way through the checks."""

    def __init__(
        self,
        judge: Judge,
        candidate: TracedCandidate,
        seed: int,
        rules: Rules,
        binaries: Any,
        progress: Callable[[str], None],
    ) -> None:
        self._judge, self._candidate = judge, candidate
        self._seed, self._rules, self._binaries, self._progress = seed, rules, binaries, progress
        self._begun = time.monotonic()
        self._checks: list[Check] = []
        self._notes: list[str] = []
        self._tried: list[Tried] = []
        self._tolerances: list[Any] = []
        self._work: OwnWork | None = None
        self._deterministic: bool | None = None
        self._reloaded: bool | None = None
        self._needs_gpu = ""
        self._first_call_works_ahead = False
        self._share: float | None = None
        self._prepared: PreparedProblem | None = None  # at the base size
        self._long: tuple[AtSize, ...] = ()  # where every distribution is tried, too
        self._randomness = ""
        """What is to be done about a reference that is random; empty where none was seen."""

    def _left(self) -> float:
        return max(self._rules.seconds - (time.monotonic() - self._begun), 0.05)

    def run(self, base: AtSize, others: Sequence[AtSize]) -> Failure | None:
        """The first failure, or None. Raises ProblemError where what differs is the random numbers of the reference."""
        try:
            carrier = self._carrier(others)
            interpreted = self._candidate.traced.traces if self._judge.device == "cpu" else ()
            self._long = longest([s for s in others if s is not carrier], base, interpreted)
            if carrier is None:
                self._whole(base, ALL)
                for size in others:
                    self._other(size)
                if self._judge.device == "cpu":  # there the problem's own size is not run
                    require_enough_sizes(self._tried, len(others), self._rules)
            else:
                for size in others:
                    self._other(size, ALL if size is carrier else ONE_CALL)
                self._whole(base, FEW)
        except Failed as failed:
            self._require_fixed_reference(failed)
            return failed.failure
        except NeedsGpu as needs:
            self._needs_gpu = needs.reason
        return None

    def _require_fixed_reference(self, failed: Failed) -> None:
        """Raises ProblemError where a reference that is random explains the failure: two of its own answers differ, so
        that numbers which differ say nothing of a candidate.
        """
        if self._randomness and failed.failure.fault in (*NUMERIC_FAULTS, Fault.NONDETERMINISM):
            raise ProblemError(self._randomness) from failed

    def _carrier(self, others: Sequence[AtSize]) -> AtSize | None:
        """On a GPU, where the problem's own size is large: the small size at which every distribution is tried,
        with float64 at hand.
        """
        if self._judge.device == "cpu":
            return None
        fine = (s for s in others if self._candidate.failures[s.index] is None and not self._late(s))
        return next(fine, None)

    # -------------------------------------------------------------- the base size
    def _whole(self, base: AtSize, how: Thoroughness) -> None:
        """Own inputs, other weights, and as many distributions as `how` says: at one size. Raises Failed."""
        failure = self._candidate.failures[base.index]
        if failure is not None:
            raise Failed(failure)
        self._at(base, how)
        self._tried.append(Tried(sizes=base.sizes, why=base.why, outcome=SizeOutcome.RIGHT))

    def _at(self, base: AtSize, how: Thoroughness) -> None:
        problem = base.problem
        prepared = self._judge.prepared(problem, self._seed)
        self._prepared = self._prepared or prepared
        self._randomness = self._randomness or prepared.randomness
        self._notes += [n for n in prepared.notes if n not in self._notes]
        checks = self._open(problem, prepared, base.index)
        try:
            self._own_inputs(checks, problem, how)
            shaken = checks.calls.has_weights
            if shaken:
                self._other_weights(checks, problem)
            else:
                checks.check(self._judge.expected(problem, self._seed, Draw.OWN, 1), NOISE, self._shuffle(3))
            asked = self._distributions(checks) if how is ALL else [(Draw.SIGNED, ())]
            checks.watched_draw = None  # the next draw may be of gigabytes, too
            for number, (draw, numbers) in enumerate(asked, 2):
                self._distribution(checks, problem, draw, number, shaken, numbers)
        finally:
            self._checks += checks.checks

    def _own_inputs(self, checks: SizeChecks, problem: Problem, how: Thoroughness) -> None:
        """The problem's own inputs, twice. The draw is let go of on return: it may take gigabytes. Raises Failed."""
        first = self._judge.expected(problem, self._seed, Draw.OWN, 0)
        if checks.calls.reloaded is False:
            require_visible_weights(checks.prepared, first)
        if self._rules.own_work.mode != "report":
            own_work.require_no_work_on_weights(checks.trace, checks.calls.reloaded, checks.calls.bound)
        self._progress("checking own inputs")
        outputs = checks.check(first, POISON_BYTES[0], self._shuffle(0), watch=True)
        needed = self._work.needed if self._work is not None else None
        self._first_call_works_ahead = own_work.first_call_works_ahead(checks.trace, checks.watched)
        self._work = self._own_work(checks, needed=needed)
        self._deterministic = checks.again(first, outputs, self._shuffle(1), watch=checks.calls.keeps_something)
        if checks.calls.keeps_something:
            self._work = self._own_work(checks, needed=needed)
            like_first = self._judge.like(problem, self._seed, first)
            checks.check(like_first, POISON_BYTES[0], self._shuffle(60), name="own, equal at its edges")
        if how is ALL:
            self._other_configurations(checks, first)
            self._many_calls_later(checks, first)
            decoy = checks.right_without_launches(first, self._shuffle(2))
            self._work = self._own_work(checks, needed=not decoy)

    def _other_weights(self, checks: SizeChecks, problem: Problem) -> None:
        """Raises Failed."""
        self._progress("checking other weights")
        expected = self._judge.expected(problem, self._seed, Draw.OWN, 1, shaken=True)
        if self._first_call_works_ahead and not checks.follows_the_weights(expected, self._shuffle(61)):
            raise Failed(Failure(fault=Fault.CHEAT, cheat=Cheat.WEIGHTS, message=own_work.FOLDED_WEIGHTS))
        checks.calls.load_weights(expected.weights)
        checks.check(expected, NOISE, self._shuffle(3), name="other_weights")

    def _other_configurations(self, checks: SizeChecks, drawn: Expected, at: str = "") -> None:
        """Every configuration of autotuned launches that the calls on own inputs at the base size have not taken, or
        every one (`at` another size). Raises Failed.
        """
        taken = () if at else (self._shuffle(0), self._shuffle(1))
        left = untaken(own_work.steps_of(checks.trace), self._candidate.traced, taken)
        for number in left:
            checks.calls.configuration = number
            try:
                checks.check(drawn, POISON_BYTES[0], self._shuffle(70 + number), name=f"own{at}")
            except Failed as failed:
                label = configuration_named(own_work.steps_of(checks.trace), number)
                message = f"with the configuration {label}: {failed.failure.message}"
                raise Failed(failed.failure.with_(message=clean_text(message, 700))) from failed
        checks.calls.configuration = None

    def _many_calls_later(self, checks: SizeChecks, first: Expected) -> None:
        """Where what is kept between calls changes at each of them, as a counter does, it is moved on as if there had
        been many more calls: the answer must still be right. Raises Failed.
        """
        replayer = self._judge.replayer
        if not replayer.ask({"do": "note_kept"}, seconds=self._left()).get("kept"):
            return
        for _ in range(2):
            checks.check(first, POISON_BYTES[0], self._shuffle(0), name="own")
            moved = replayer.ask({"do": "note_kept"}, seconds=self._left()).get("moved")
        chance = random.Random(self._shuffle(62))
        for times in [chance.randrange(*bounds) for bounds in LATER_CALLS] if moved else ():
            replayer.ask({"do": "advance_kept", "times": times}, seconds=self._left())
            try:
                checks.check(first, POISON_BYTES[0], self._shuffle(0), name="own")
            except Failed as failed:
                told = f"wrong {times:,} calls later, by what it keeps between calls: {failed.failure.message}"
                raise Failed(Failure(fault=Fault.CHEAT, cheat=Cheat.CACHE, message=clean_text(told, 700))) from failed

    def _distributions(self, checks: SizeChecks) -> list[tuple[Draw, tuple[float, ...]]]:
        assert checks.watched_draw is not None
        return distributions_for(self._candidate.traced, checks.trace, checks.watched_draw.inputs)

    def _distribution(
        self,
        checks: SizeChecks,
        problem: Problem,
        draw: Draw,
        number: int,
        shaken: bool,
        numbers: tuple[float, ...],
        at: str = "",
    ) -> None:
        """at: where it is not the base size, as it is told. Raises Failed."""
        try:
            expected = self._judge.expected(problem, self._seed, draw, number, shaken=shaken, numbers=numbers)
        except ProblemError as error:
            self._notes.append(f"{draw}: not used, {error}")
            return
        if draw in WITH_INFINITIES and any(
            hasattr(one, "is_floating_point") and not one.is_floating_point() for one in expected.eager
        ):
            return  # where a NaN arises on the way, an index or a comparison does not show it
        if draw not in (*WITH_INFINITIES, Draw.ZERO_ROWS, Draw.NAN) and not expected.finite():
            self._notes.append(f"{draw}: not used, the reference is not finite on it")
            return
        self._progress(f"checking {draw}")
        checks.check(expected, POISONS[number % len(POISONS)], self._shuffle(number + 3), name=f"{draw}{at}")

    def _open(self, problem: Problem, prepared: PreparedProblem, index: int) -> SizeChecks:
        if index == 0:  # the largest; asking torch's allocator takes more than a call at a small size
            self._judge.leave_room()
        checks = SizeChecks(
            prepared, self._candidate.traced, index, self._judge.replayer, self._judge.buffers, self._tolerances
        )
        checks.calls.open(prepared.weights_seed, self._left(), self._binaries)
        if checks.calls.reloaded is False and self._reloaded is not False:
            self._notes.append(
                "the parameters cannot be matched with the reference's by name or order: both were drawn "
                "from one seed, and never "
                "reloaded"
            )
        self._reloaded = checks.calls.reloaded
        return checks

    def _shuffle(self, number: int) -> int:
        return (self._seed * 31 + number * 7919) & 0x7FFFFFFF

    def _own_work(self, checks: SizeChecks, needed: bool | None) -> OwnWork:
        work = OwnWork(
            mode=self._rules.own_work.text,
            census=own_work.census_of(checks.trace, self._candidate.traced),
            needed=needed,
        )
        watched, operations = checks.watched, checks.prepared.operations
        if self._judge.device == "cpu" and work.census.launches and watched is not None and operations:
            self._share = max(0.0, 1.0 - watched.operations / operations)
        if self._share is not None:
            work = work.with_(share=self._share, share_of="operations")
        self._work = work
        judged = own_work.judge(work, self._rules.own_work, own_work.depends_on_a_launch(checks.trace))
        self._judge_watched(checks)
        return judged

    def _judge_watched(self, checks: SizeChecks) -> None:
        """What the last watched call showed, once. Raises Failed."""
        watched, drawn = checks.watched, checks.watched_draw
        checks.watched = None
        own_work.require_inputs_left_alone(watched, checks.prepared, checks.calls.kept_names())
        if drawn is not None and not gives_back_inputs(drawn):
            moves = partial(only_moves, draws_of(checks.prepared, self._seed))
            own_work.judge_watched(watched, self._rules.own_work, moves, only_converts=converts_inputs(drawn))

    # -------------------------------------------------------------- other sizes
    def _other(self, size: AtSize, how: Thoroughness = ONE_CALL) -> None:
        """Right by its own work, or an exception of its own (which is noted)."""
        told = ", ".join(f"{k}={v}" for k, v in size.sizes.items())
        failure = self._candidate.failures[size.index]
        if failure is not None:
            self._refused(size, failure)
            return
        if late := self._late(size):
            self._tried.append(Tried(sizes=size.sizes, why=size.why, outcome=SizeOutcome.UNUSED, message=late))
            return
        self._progress(f"checking at {told}")
        try:
            self._at(size, how) if how is ALL else self._one_call(size, told)
        except ProblemError as error:
            unused = Tried(sizes=size.sizes, why=size.why, outcome=SizeOutcome.UNUSED, message=str(error)[:200])
            self._tried.append(unused)
            return
        except Failed as failed:
            message = failed.failure.message
            if failed.failure.fault in (Fault.LAUNCH, Fault.RESOURCES) and not size.required:
                self._refused(size, failed.failure)
                return
            wrong = Tried(sizes=size.sizes, why=size.why, outcome=SizeOutcome.WRONG, message=message[:200])
            self._tried.append(wrong)
            raise Failed(failed.failure.with_(message=f"at other sizes ({told}): {message}")) from failed
        self._tried.append(Tried(sizes=size.sizes, why=size.why, outcome=SizeOutcome.RIGHT))

    def _late(self, size: AtSize) -> str:
        return late_kernel(self._candidate.traced, size.index, self._binaries)

    def _one_call(self, size: AtSize, told: str) -> None:
        """On one draw, and on other weights than those that the model is made with. Raises Failed and ProblemError."""
        problem = size.problem
        prepared = self._judge.prepared(problem, self._seed, self._prepared)
        self._randomness = self._randomness or prepared.randomness
        checks = self._open(problem, prepared, size.index)
        try:
            expected = self._drawn_at(size, checks.calls.has_weights)
            if checks.calls.has_weights:
                checks.calls.load_weights(expected.weights)
            for number in range(1 + checks.calls.keeps_something):  # a later call may ask for something else
                poison, shuffle = POISON_BYTES[(size.index + number) % 2], self._shuffle(size.index + 40 + 100 * number)
                checks.check(expected, poison, shuffle, name=f"sizes: {told}", watch=True)
                self._judge_watched(checks)
            self._own_work_elsewhere(checks)
            if size.index in [long.index for long in self._long]:
                self._every_distribution(checks, problem, expected, f" at {told}")
        finally:
            self._checks += checks.checks

    def _drawn_at(self, size: AtSize, shaken: bool) -> Expected:
        """Numbers of several sizes at every second size, if the reference is finite on them, else its own."""
        if size.index % 2:
            with contextlib.suppress(ProblemError):
                drawn = self._judge.expected(size.problem, self._seed, Draw.SPECIAL, 0, shaken=shaken)
                if drawn.finite():
                    return drawn
        return self._judge.expected(size.problem, self._seed, Draw.OWN, 0, shaken=shaken)

    def _every_distribution(self, checks: SizeChecks, problem: Problem, drawn: Expected, at: str) -> None:
        """Every distribution and every configuration: loops over several blocks are seldom right on all that short rows
        are right on. Raises Failed.
        """
        if checks.trace is self._candidate.traced.traces[self._long[0].index]:
            self._other_configurations(checks, drawn, at)
        for number, (draw, numbers) in enumerate(self._distributions(checks), 2):
            self._distribution(checks, problem, draw, number, checks.calls.has_weights, numbers, at)

    def _own_work_elsewhere(self, checks: SizeChecks) -> None:
        kept = self._work
        try:
            self._own_work(checks, needed=kept.needed if kept else None)
        finally:
            self._work = kept

    def _refused(self, size: AtSize, failure: Failure) -> None:
        """The candidate's own exception at a size that is not the problem's: allowed, and told.

        What is no exception of its own is a failure.
        """
        told = ", ".join(f"{k}={v}" for k, v in size.sizes.items())
        allowed = failure.fault in (Fault.RUNTIME, Fault.LAUNCH, Fault.ENTRY_POINT, Fault.RESOURCES, Fault.COMPILE)
        outcome = SizeOutcome.REFUSED if allowed and not size.required else SizeOutcome.WRONG
        self._tried.append(Tried(sizes=size.sizes, why=size.why, outcome=outcome, message=failure.message[:200]))
        if outcome is SizeOutcome.WRONG:
            raise Failed(failure.with_(message=f"at other sizes ({told}): {failure.message}"))

    # -------------------------------------------------------------- the result
    def judged(self, failure: Failure | None) -> JudgeFindings:
        """Everything that was found, as a value."""
        own = [c.passed_kb for c in self._checks if c.draw == "own"]
        correct_kb = (bool(own) and all(own)) if own or failure else None
        result = CorrectnessResult(
            device=self._judge.name(), interpreted=self._judge.device == "cpu", failure=failure,
            checks=tuple(self._checks), correct_kb=correct_kb,
            own_work=self._work, weights_reloaded=self._reloaded, deterministic=self._deterministic, seed=self._seed,
            notes=tuple(self._notes),
            random_outputs=self._prepared.random_outputs if self._prepared else (),
            tried=tuple(self._tried), seconds=time.monotonic() - self._begun,
        )  # fmt: skip
        return JudgeFindings(result, self._needs_gpu)
