"""Decides at which sizes a candidate is examined and how thoroughly, and combines the outcomes to a
result.

Order under the interpreter: the base size with every distribution, the other sizes with a single
call each (every distribution at long ones), spare sizes for refused ones, empty sizes, changed
surroundings, other input layouts. On a GPU the first usable small size takes every distribution,
and the base size follows last with few.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.comparison_coverage import Coverage
from kernelwright.tools.compiling.text.address_overflow import overflow_failure
from kernelwright.tools.expected.prepared_problem import PreparedProblem
from kernelwright.tools.host_choices import MOVES_ON
from kernelwright.tools.judging.compile_report import late_kernel
from kernelwright.tools.judging.examination import Examination
from kernelwright.tools.judging.layouts.layout_checks import (
    LayoutChecks,
    failure_of_layouts,
    is_dense,
    shows_strides,
)
from kernelwright.tools.judging.rules import (
    ChecksOf,
    Evidence,
    JudgeFindings,
    Rules,
    Thoroughness,
    refused_sizes,
    require_enough_sizes,
    unanswered,
)
from kernelwright.tools.judging.searching.replayed_outcomes import forget_outcomes, told_outcomes
from kernelwright.tools.judging.size_checks import NUMERIC_FAULTS, POISON_BYTES, SizeChecks
from kernelwright.tools.judging.surroundings.surroundings_checks import SurroundingsChecks
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.reference_trials.admission import require_survival
from kernelwright.tools.reference_trials.contract_sizes import GUARD_FAULTS
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.replaying.interpreter.needs_gpu import NeedsGpu
from kernelwright.tools.report import (
    CorrectnessResult,
    Failed,
    Failure,
    Fault,
    LayoutCheck,
    Pattern,
    SizeOutcome,
    Tried,
)
from kernelwright.tools.sizing.at_size import AtSize
from kernelwright.tools.sizing.interpreted_costs import (
    HANG_FACTOR,
    CallWork,
    MeasuredCalls,
    choose_long_sizes,
    programs_of,
)
from kernelwright.tools.tracing.client import TracedCandidate

if TYPE_CHECKING:
    from kernelwright.tools.judging.judge import Judge

ALL, FEW, ONE_CALL = Thoroughness
SHARE_OF_A_SIZE = 0.5
"""Share of the remaining seconds available to a size other than the base under the interpreter."""
MAX_SIZE_MESSAGE_CHARACTERS = 200
"""Maximum length of a message in the entry of a size."""


class _TooSlow(Exception):
    """Raised for a size that takes an interpreter too long. The message holds the time."""


def _is_wrong_without_elements(failure: Failure) -> bool:
    """Returns True for a wrong shape or wrong numbers at an extent of zero. Errors, NaN, and memory
    that no program of an empty grid writes count as a refusal."""
    is_unwritten = failure.mismatch is not None and failure.mismatch.pattern is Pattern.UNWRITTEN
    wrong = failure.fault in (Fault.MISMATCH, Fault.PRECISION, Fault.SHAPE)
    return wrong and not is_unwritten


class VerdictProcess:
    """Verdict on a candidate in progress."""

    def __init__(
        self,
        judge: Judge,
        candidate: TracedCandidate,
        seed: int,
        rules: Rules,
        binaries: Any,
        progress: Callable[[str], None],
        before_base: Callable[[], None] = lambda: None,
    ) -> None:
        """before_base: called once before the base size is examined, which may take much of a GPU's
        memory."""
        self._judge = judge
        self._candidate = candidate
        self._seed = seed
        self._rules = rules
        self._binaries = binaries
        self._progress = progress
        self._before_base = before_base
        self._begun, self._spent_before = time.monotonic(), judge.replayer.spent
        self._evidence = Evidence()
        self._tried: list[Tried] = []
        self._layouts: list[LayoutCheck] = []
        self._calls = MeasuredCalls()
        self._share = 1.0
        """Share of the remaining seconds available to the current size."""
        self._slow = 0
        """Number of sizes skipped because they take an interpreter too long."""
        judge.replayer.allowance = rules.seconds
        self._needs_gpu = ""
        self._opened = False
        self._coverage: Coverage | None = None
        self._prepared: PreparedProblem | None = None  # at the base size
        self._long: tuple[AtSize, ...] = ()  # where every distribution is tried, too
        self._randomness = ""
        """Instruction for a random reference; empty if the reference is deterministic."""

    def _seconds_left(self) -> float:
        """Returns seconds left for replays of this candidate; the judge's own work does not count."""
        return max(
            (self._rules.seconds - (self._judge.replayer.spent - self._spent_before)) * self._share,
            0.05,
        )

    def run(self, base: AtSize, others: Sequence[AtSize]) -> Failure | None:
        """Returns the first failure, or None. Raises ProblemError if the difference is due to
        random numbers of the reference.

        others: the other sizes, and variants of a size with inputs in other layouts or changed
        surroundings.
        """
        variants = [size for size in others if size.layouts]
        changed = [size for size in others if size.changes]
        empty = [size for size in others if size.is_empty]
        sizes = [s for s in others if not (s.layouts or s.changes or s.is_empty)]
        return (
            self._at_sizes(base, sizes)
            or self._check_empty(empty)
            or self._check_surroundings(changed)
            or self.check_layouts(variants)
        )

    def _at_sizes(self, base: AtSize, others: Sequence[AtSize]) -> Failure | None:
        """Examines base and other sizes. Spare sizes replace those that the candidate itself
        refuses."""
        spare = [size for size in others if size.spare]
        others = [size for size in others if not size.spare]
        try:
            if self._judge.device == "cpu":  # on a GPU the problem's own size shows it
                self._require_addresses_that_fit()
            thorough = self._thorough_size(others)
            interpreted = self._candidate.traced.traces if self._judge.device == "cpu" else ()
            if self._rules.checks is not ChecksOf.INTERPRETER_BESIDE_GPU:
                self._long = choose_long_sizes(
                    [s for s in others if s is not thorough], base, interpreted
                )
            if thorough is None:
                self._base_size(base, ALL)
                for size in others:
                    self._other_size(size)
                tried = list(self._tried)
                for size in spare[: len(refused_sizes(tried))]:
                    self._other_size(size)
                if base.sizes:  # the problem's own size was not run
                    require_enough_sizes(tried, len(others), self._rules, self._slow)
            else:
                for size in others:
                    self._other_size(size, ALL if size is thorough else ONE_CALL)
                self._base_size(base, FEW)
            if (search := self._evidence.search) is not None and self._judge.device == "cpu":
                replayer = self._judge.replayer
                self._coverage = search.coverage(
                    told_outcomes(replayer, self._seconds_left)
                    if replayer.is_open
                    else search.outcomes
                )
        except Failed as failed:
            self._require_fixed_reference(failed)
            return failed.failure
        except NeedsGpu as needs:
            self._needs_gpu = needs.reason
        return None

    def _require_addresses_that_fit(self) -> None:
        """Raises Failed if addresses overflow 32 bits at the problem's own size, which is not run
        without a GPU."""
        if failure := overflow_failure(self._candidate.traced, self._evidence.notes):
            raise Failed(failure)

    def _require_fixed_reference(self, failed: Failed) -> None:
        """Raises ProblemError if a random reference explains the failure: two of its answers differ."""
        if self._randomness and failed.failure.fault in (*NUMERIC_FAULTS, Fault.NONDETERMINISM):
            raise ProblemError(self._randomness) from failed

    def _thorough_size(self, others: Sequence[AtSize]) -> AtSize | None:
        """Returns the small size at which every distribution is checked on a GPU, with float64
        outputs; None on a CPU."""
        if self._judge.device == "cpu":
            return None
        fine = (
            s for s in others if self._candidate.failures[s.index] is None and not self._late(s)
        )
        return next(fine, None)

    # -------------------------------------------------------------- the base size
    def _base_size(self, base: AtSize, how: Thoroughness) -> None:
        """Examines the base size: own inputs, other weights, and as many distributions as `how`
        says. Raises Failed."""
        failure = self._candidate.failures[base.index]
        if failure is not None:
            raise Failed(failure)
        self._before_base()
        self._at(base, how)
        self._tried.append(self._entry(base, SizeOutcome.RIGHT))

    def _at(self, size: AtSize, how: Thoroughness) -> None:
        prepared = self._judge.prepared(size.problem, self._seed)
        is_base = self._prepared is None
        self._prepared = self._prepared or prepared
        self._randomness = self._randomness or prepared.randomness
        self._evidence.notes += [n for n in prepared.notes if n not in self._evidence.notes]
        spent = self._judge.replayer.spent
        calls = self._judge.replayer.answered
        self._examination(size, prepared).examine(how)
        if is_base and self._judge.device == "cpu":
            seconds = self._judge.replayer.spent - spent
            self._calls.note(
                self._work(size), seconds / max(self._judge.replayer.answered - calls, 1)
            )

    def _examination(self, size: AtSize, prepared: PreparedProblem) -> Examination:
        return Examination(
            self._judge, self._candidate, size, self._open(prepared, size.index), self._evidence,
            self._seed, self._rules, self._seconds_left, self._progress,
        )  # fmt: skip

    def _open(self, prepared: PreparedProblem, index: int) -> SizeChecks:
        if (
            index == 0
        ):  # the largest; asking torch's allocator takes more than a call at a small size
            self._judge.give_back_unused_memory()
        checks = SizeChecks(
            prepared,
            self._candidate.traced,
            index,
            self._judge.replayer,
            self._judge.buffers,
            self._evidence.tolerances,
        )
        checks.calls.open(prepared.weights_seed, self._seconds_left(), self._binaries)
        if not self._opened and self._judge.device == "cpu":
            forget_outcomes(
                self._judge.replayer, self._seconds_left
            )  # of an earlier verdict on the same text
        self._opened = True
        if checks.calls.reloaded is False and self._evidence.reloaded is not False:
            self._evidence.notes.append(
                f"no tensor of the candidate holds {', '.join(checks.calls.missing[:3])} of the reference: never loaded"
            )
        self._evidence.reloaded = checks.calls.reloaded
        return checks

    # -------------------------------------------------------------- other sizes
    def _other_size(self, size: AtSize, how: Thoroughness = ONE_CALL) -> None:
        """Examines another size: the candidate must be correct by its own work, or raise an
        exception, which is noted."""
        failure = self._candidate.failures[size.index]
        if failure is not None:
            self._note_refusal(size, failure)
            return
        if late := self._late(size):
            self._tried.append(self._entry(size, SizeOutcome.UNUSED, late))
            return
        self._progress(f"checking at {size.text}")
        self._judge.give_way()
        try:
            self._at(size, how) if how is ALL else self._one_call(size)
        except ProblemError as error:
            self._tried.append(self._entry(size, SizeOutcome.UNUSED, str(error)))
            return
        except _TooSlow as slow:
            self._slow += 1
            self._tried.append(self._entry(size, SizeOutcome.UNUSED, str(slow)))
            return
        except Failed as failed:
            message = failed.failure.message
            if (
                failed.failure.fault in (Fault.LAUNCH, Fault.RESOURCES, Fault.COMPILE)
                and not size.required
            ):
                self._note_refusal(size, failed.failure)
                return
            self._tried.append(self._entry(size, SizeOutcome.WRONG, message))
            raise Failed(
                failed.failure.with_(message=f"at other sizes ({size.text}): {message}")
            ) from failed
        self._tried.append(self._entry(size, SizeOutcome.RIGHT))

    def _entry(self, size: AtSize, outcome: SizeOutcome, message: str = "") -> Tried:
        return Tried(
            sizes=size.sizes,
            why=size.why,
            strategy=size.strategy,
            outcome=outcome,
            message=message[:MAX_SIZE_MESSAGE_CHARACTERS],
        )

    def _late(self, size: AtSize) -> str:
        return late_kernel(self._candidate.traced, size.index, self._binaries)

    def _one_call(self, size: AtSize) -> None:
        """Examines a call on a single draw, or on every draw at long sizes. Raises Failed and
        ProblemError."""
        if size.is_degenerate:
            require_survival(size.problem)
        prepared = self._judge.prepared(size.problem, self._seed, self._prepared)
        self._randomness = self._randomness or prepared.randomness
        with self._timed(size):
            self._examination(size, prepared).examine_one_call(
                size.text,
                every_distribution=size.index in [long.index for long in self._long],
                every_configuration=bool(self._long) and size.index == self._long[0].index,
            )

    @contextlib.contextmanager
    def _timed(self, size: AtSize) -> Iterator[None]:
        """Limits the calls of a block under the interpreter to half of the remaining seconds.

        Raises _TooSlow if an estimate exceeds them, or if the calls do and the estimate shows no
        hang.
        """
        if self._judge.device != "cpu":
            yield
            return
        replayer, work = self._judge.replayer, self._work(size)
        spent = replayer.spent
        calls = replayer.answered
        self._share = SHARE_OF_A_SIZE
        estimate, allowed = self._calls.estimate(work), self._seconds_left()
        try:
            if estimate > allowed:
                reason = (
                    f"about {estimate:.0f} s a call of {self._rules.seconds:g} s for all replays"
                )
                raise _TooSlow(f"too slow for the interpreter: {reason}")
            yield
        except Failed as failed:
            if failed.failure.fault is Fault.TIMEOUT and HANG_FACTOR * estimate > allowed:
                raise _TooSlow(
                    f"too slow for the interpreter: {failed.failure.message}"
                ) from failed
            raise
        finally:
            self._share = 1.0
            self._calls.note(work, (replayer.spent - spent) / max(replayer.answered - calls, 1))

    def _work(self, size: AtSize) -> CallWork:
        return CallWork(programs_of(self._candidate.traced.traces[size.index]), size.sizes)

    def _note_refusal(self, size: AtSize, failure: Failure) -> None:
        """Notes an exception of the candidate at another size; raises Failed for other failures."""
        allowed = failure.fault in (*GUARD_FAULTS, Fault.RESOURCES, Fault.COMPILE)
        refusal = (
            SizeOutcome.OUTSIDE_CONTRACT if failure.fault in GUARD_FAULTS else SizeOutcome.REFUSED
        )
        outcome = refusal if allowed and not size.required else SizeOutcome.WRONG
        self._tried.append(self._entry(size, outcome, failure.message))
        if outcome is SizeOutcome.WRONG:
            raise Failed(failure.with_(message=f"at other sizes ({size.text}): {failure.message}"))

    # -------------------------------------------------------------- no elements
    def _check_empty(self, sizes: Sequence[AtSize]) -> Failure | None:
        """Returns the failure at an extent of zero, or None."""
        for size in sizes if not self._needs_gpu else ():
            refusal = self._candidate.failures[size.index]
            may_refuse = not size.required or (refusal and refusal.fault is Fault.NO_KERNEL)
            if (refusal is not None and may_refuse) or self._late(size):
                continue
            try:
                self._one_empty_call(size)
                self._tried += [self._entry(size, SizeOutcome.RIGHT)] if size.required else []
            except (ProblemError, NeedsGpu):
                continue
            except Failed as failed:
                if size.required or _is_wrong_without_elements(failed.failure):
                    self._tried.append(self._entry(size, SizeOutcome.WRONG, failed.failure.message))
                    return failed.failure.with_(
                        message=f"wrong without elements ({size.text}): {failed.failure.message}"
                    )
        return None

    def _one_empty_call(self, size: AtSize) -> None:
        """Calls the candidate over memory with a finite poison. Raises Failed and ProblemError."""
        if (refusal := self._candidate.failures[size.index]) is not None:
            raise Failed(refusal)
        require_survival(size.problem)
        prepared = self._judge.prepared(size.problem, self._seed, self._prepared)
        expected = self._judge.expected(size.problem, self._seed, Draw.OWN, 0)
        if not expected.finite():
            return
        checks = self._open(prepared, size.index)
        shuffle = self._seed & 0x7FFFFFFF
        checks.check(expected, POISON_BYTES[1], shuffle, name="own, without elements")

    # -------------------------------------------------------------- other surroundings
    def _check_surroundings(self, variants: Sequence[AtSize]) -> Failure | None:
        """Returns the first failure in changed surroundings, or None."""
        checks = SurroundingsChecks(self._judge, self._candidate, self._seed, self._open)
        for variant in variants if not self._needs_gpu else ():
            self._progress(f"checking where {', '.join(variant.changes)}")
            self._judge.give_way()
            failure, note = checks.check(variant, self._late(variant))
            if failure is not None:
                return failure
            self._evidence.notes += [note] if note else []
        return None

    # -------------------------------------------------------------- other layouts of the inputs
    def check_layouts(self, variants: Sequence[AtSize]) -> Failure | None:
        """Returns the first failure on inputs in other layouts, or None. Stops at the first wrong
        answer."""
        checks, followed = LayoutChecks(self._judge, self._candidate, self._seed, self._open), False
        for variant in variants if not self._needs_gpu else ():
            self._progress("checking other layouts of the inputs")
            self._judge.give_way()
            check = checks.check(variant, self._late(variant))
            self._layouts.append(check)
            if check.outcome is SizeOutcome.WRONG:
                self._evidence.goes_by_strides = followed
                is_fault = is_dense(variant) and check.mismatch is not None
                is_refused = is_fault or not self._rules.contiguous_inputs
                return failure_of_layouts(variant, check) if is_refused else None
            followed = followed or (self._has_float_outputs() and shows_strides(variant, check))
        return None

    def _has_float_outputs(self) -> bool:
        """Returns True if every output is floating: an index is often correct by chance on inputs
        read without their strides.

        Example: the position of a flat minimum.
        """
        outputs = self._prepared.outputs if self._prepared else ()
        return all("float" in output.dtype for output in outputs)

    # -------------------------------------------------------------- the result
    def judged(self, failure: Failure | None) -> JudgeFindings:
        """Returns all findings as a value."""
        evidence = self._evidence
        own = [c.passed_kb for c in evidence.checks if c.draw == "own"]
        correct_kb = (bool(own) and all(own)) if own or failure else None
        result = CorrectnessResult(
            device=self._judge.name(),
            interpreted=self._judge.device == "cpu",
            failure=failure,
            checks=tuple(evidence.checks),
            correct_kb=correct_kb,
            own_work=evidence.work,
            weights_reloaded=evidence.reloaded,
            deterministic=evidence.deterministic,
            seed=self._seed,
            notes=tuple(evidence.notes),
            random_outputs=self._prepared.random_outputs if self._prepared else (),
            tried=tuple(self._tried),
            layouts=tuple(self._layouts),
            host_choices=(MOVES_ON,) * evidence.moves_on,
            unanswered=unanswered(evidence),
            seconds=time.monotonic() - self._begun,
        )
        return JudgeFindings(result, self._needs_gpu, self._coverage)
