"""One candidate at one size: every answer of its calls compared with what the reference gives.

Trusted side; raises Failed at the first thing that is wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

from kernelwright.tools.comparing.comparison import (
    ComparedOutput,
    describe,
    describe_mismatch,
    failure_of,
    form,
    is_right,
)
from kernelwright.tools.comparing.exactness.arithmetic_kinds import ArithmeticKind
from kernelwright.tools.comparing.mismatch_patterns import NEVER_STORED
from kernelwright.tools.comparing.on_the_host import with_host_memory
from kernelwright.tools.comparing.wrong_elements import holds_byte
from kernelwright.tools.expected.by_draw import measure_by_draw
from kernelwright.tools.expected.choices.other_choices import (
    expected_of_other_choices,
    names_equal_values,
)
from kernelwright.tools.expected.exactness.exact_values import kind_of_output
from kernelwright.tools.expected.exactness.open_elements import fill_open_elements
from kernelwright.tools.expected.exactness.turned_zeros import measure_turned_zeros
from kernelwright.tools.expected.perturbed_outputs import (
    may_move,
    outputs_of_perturbed_inputs,
    steps_of_outputs,
)
from kernelwright.tools.expected.prepared_problem import (
    ExpectedOutputs,
    PreparedProblem,
    run_on,
    tensors_of_run,
)
from kernelwright.tools.judging.calls import MARGIN_BYTE, CandidateCalls
from kernelwright.tools.judging.rules import ELSEWHERE, WHERE
from kernelwright.tools.judging.state import (
    changed_weight,
    in_buffer,
    lacks_buffer,
)
from kernelwright.tools.numerics.bits import RememberedTensor, same_bits
from kernelwright.tools.references.arithmetic import errors_of_tf32_convolutions
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.references.shared_tensors import Buffers, SharedTensor
from kernelwright.tools.replaying.noise import NOISE
from kernelwright.tools.replaying.replayer import Replayer, Reply, Watched
from kernelwright.tools.report import Check, Failed, Failure, Fault, Pattern, clean_text
from kernelwright.tools.trace.forms_of_outputs import describe_difference, shared_memory
from kernelwright.tools.trace.trace import Trace, Traced

POISON_BYTES = (0xFF, 0x4B)
"""NaN in every floating type, and a large finite number."""
POISONS = (POISON_BYTES[0], 0, POISON_BYTES[1], NOISE)
"""What fresh memory is filled with: NaN, zeros, a large finite number, and ordinary numbers."""
OTHER_SHUFFLES = (1, 2)
"""Added to a call's seed, where a wrong answer is asked for once more."""
NUMERIC_FAULTS = (Fault.MISMATCH, Fault.PRECISION, Fault.NON_FINITE)


@contextlib.contextmanager
def refusal_elsewhere(draw: Draw) -> Iterator[None]:
    """Has the message of a numeric failure inside the block say first that the problem's own inputs gave none."""
    try:
        yield
    except Failed as failed:
        if failed.failure.fault not in NUMERIC_FAULTS or draw not in WHERE:
            raise
        message = f"{ELSEWHERE}{WHERE[draw]}: {failed.failure.message}"
        raise Failed(failed.failure.with_(message=clean_text(message, 700))) from failed


class SizeChecks:
    """Calls of one trace, compared with what one prepared problem expects."""

    def __init__(
        self, prepared: PreparedProblem, traced: Traced, index: int, replayer: Replayer, buffers: Buffers,
        tolerances: list[Any], inputs: tuple[list[Any], Sequence[SharedTensor]] = ([], ()),
    ) -> None:  # fmt: skip
        """index: which of the traces. tolerances: eager's own error by output, where float64 is; filled here. inputs:
        described, and the memory for them that there is already.
        """
        self.calls = CandidateCalls(prepared, traced, index, replayer, buffers, inputs)
        self.prepared = prepared
        self.checks: list[Check] = []
        self.notes: list[str] = []
        """Remarks on calls whose answers are right."""
        self._tolerances = tolerances
        self._on_gpu = buffers.device != "cpu"
        self.watched: Watched | None = None
        self.watched_draw: ExpectedOutputs | None = None
        self.undecided = ""
        """What a GPU may do otherwise than the calls so far, which an interpreter cannot decide."""

    @property
    def trace(self) -> Trace:
        """The trace that is replayed."""
        return self.calls.trace

    def follows_weights(self, expected: ExpectedOutputs, shuffle: int) -> bool:
        """Whether a later call is right on new weights without a first call on them."""
        before = self.calls.model
        if self.calls.is_first:
            self.calls.call(
                expected, POISON_BYTES[0], shuffle
            )  # the first call, on the old weights
        self.calls.put_weights(expected.weights)
        try:
            self.check(expected, POISON_BYTES[0], shuffle, name="other_weights")
        except Failed as failed:
            if failed.failure.fault not in NUMERIC_FAULTS:
                raise
            return False
        finally:
            self.calls.put_weights(before)
        return True

    def check(
        self,
        expected: ExpectedOutputs,
        poison: int,
        shuffle: int,
        name: str = "",
        *,
        watch: bool = False,
    ) -> list[Any]:
        """One call, everything looked at.

        watch: what torch did beside the kernels is in `watched` afterwards. Raises Failed.
        """
        got, reply = self.calls.call(expected, poison, shuffle, watch=watch)
        if watch:
            self.watched, self.watched_draw = reply.watched, expected
        if reply.undecided:
            self.undecided = clean_text(reply.undecided, 300)
        check_form(reply, self.trace, self.prepared, self.calls.returned(expected))
        self.check_side_effects(reply, expected)
        noted = len(self.checks), len(self._tolerances)
        try:
            self.compare(got, expected, name or expected.draw)
        except Failed as failed:
            numeric = failed.failure.fault in NUMERIC_FAULTS
            if not numeric or not self._follows_another_choice(
                got, expected, name or expected.draw, noted
            ):
                raise Failed(
                    self._diagnosed(failed.failure, reply, expected, name, shuffle)
                ) from failed
        self._note_reads_outside(reply)
        return got

    def _note_reads_outside(self, reply: Reply) -> None:
        """Notes reads outside of all tensors that changed no answer: elsewhere the memory there may not be mapped."""
        note = f"right, and {clean_text(reply.read_outside, 250)}: a GPU may end the program there; mask the load"
        if reply.read_outside and note not in self.notes:
            self.notes.append(note)

    def _follows_another_choice(
        self, got: list[Any], expected: ExpectedOutputs, name: str, noted: tuple[int, int]
    ) -> bool:
        """Whether all is right where the reference chooses otherwise among equals. noted: checks, tolerances before."""
        was = self.checks, list(self._tolerances)
        for other in expected_of_other_choices(self.prepared, expected):
            self.checks, self._tolerances[noted[1] :] = was[0][: noted[0]], []
            with contextlib.suppress(Failed):
                self.compare(got, other, name)
                return True
        self.checks, self._tolerances[:] = was
        return False

    def check_side_effects(self, reply: Reply, expected: ExpectedOutputs) -> None:
        """Writes outside of tensors; inputs and weights that are not as they were. Raises Failed."""
        import torch

        if reply.written_outside:
            raise Failed(
                Failure(fault=Fault.OUT_OF_BOUNDS, message=clean_text(reply.written_outside, 300))
            )
        tensors = [(i, v) for i, v in enumerate(expected.inputs) if isinstance(v, torch.Tensor)]
        for shared, (index, value) in zip(self.calls.inputs, tensors, strict=True):
            name = self.prepared.input_named(index)
            if self._on_gpu and not shared.margins_hold(MARGIN_BYTE):
                raise Failed(
                    Failure(fault=Fault.OUT_OF_BOUNDS, message=f"a kernel writes outside {name}")
                )
            if index not in self.prepared.mutated and not same_bits(shared.tensor, value):
                message = f"{name} is changed by the call, and the reference does not change it"
                raise Failed(Failure(fault=Fault.MUTATION, message=message))
        if failure := changed_weight(
            self.calls.model, self.prepared.reference.changing or (), self.calls.weights
        ):
            raise Failed(failure)

    def compare(self, got: list[Any], expected: ExpectedOutputs, name: str) -> None:
        """Every output, and every buffer that the reference updates, against what should have come.

        Where an answer is wrong only by what the reference itself moves by, it is right. Raises Failed.
        """
        moved, tf32_errors = self._how_far_off(expected)
        compute_steps = partial(steps_of_outputs, self.prepared, expected)
        steps = cache(
            lambda: with_host_memory(compute_steps, lambda: (), partial(tensors_of_run, expected))
        )
        without_open = partial(fill_open_elements, self.prepared, expected)
        updated = self.prepared.reference.updated
        buffers = dict(enumerate(updated, len(expected.eager) - len(updated)))
        for number, mine in enumerate(got):
            if mine is None:
                if number in buffers:
                    raise Failed(lacks_buffer(buffers[number], self.prepared.model))
                self._tolerances += [None] * (len(self._tolerances) == number)
                continue
            small = name.startswith(
                "sizes"
            )  # of many rows one is a sum of which next to nothing is left
            kind = kind_of_output(self.prepared, expected, number, mine)
            moves: Callable[[], Sequence[Any]] | None = (
                steps if kind is ArithmeticKind.STEPPED else moved
            )
            if not may_move(expected, number, kind, at_size=small):
                moves = None
            told = f"{name}, buffer" if number in buffers else name
            carried = self._tolerances[number] if number < len(self._tolerances) else None
            measured = measure_by_draw(
                mine, expected, number, told, carried, moves, tf32_errors, kind
            )
            if not measured.check.passed and (defined := without_open(number, mine)) is not None:
                measured = measure_by_draw(
                    defined, expected, number, told, carried, moves, tf32_errors, kind
                )
            if not (
                measured.check.passed or mine.is_floating_point() or mine.is_complex()
            ) and names_equal_values(self.prepared, expected, number, mine):
                measured = ComparedOutput(
                    check=measured.check.with_(passed=True, note="an index among near equals")
                )
            if measured.check.passed:
                turned = measure_turned_zeros(self.prepared, expected, number, mine, told)
                measured = turned or measured
            if expected.exact is not None and len(self._tolerances) <= number:
                self._tolerances.append(measured.tolerance)
            self.checks.append(measured.check)
            if failure := failure_of(measured):
                raise Failed(in_buffer(failure, buffers[number]) if number in buffers else failure)

    def _how_far_off(
        self, expected: ExpectedOutputs
    ) -> tuple[Callable[[], list[Any]], Callable[[], list[Any] | None]]:
        """Two functions that each give one number an element, worked out when first asked for: the outputs off by what
        the reference moves by, and by how much they are off in tf32.
        """
        needed = partial(tensors_of_run, expected)
        compute_moved = partial(outputs_of_perturbed_inputs, self.prepared, expected)
        moved = cache(lambda: with_host_memory(compute_moved, lambda: expected.eager, needed))
        run = partial(run_on, self.prepared, expected, expected.weights, expected.inputs)
        in_tf32 = partial(errors_of_tf32_convolutions, run, expected.exact)

        def idle() -> list[Any]:
            return [*expected.eager, *(moved() if moved.cache_info().currsize else ())]

        return moved, cache(lambda: with_host_memory(in_tf32, idle, needed))

    def _diagnosed(
        self, failure: Failure, reply: Reply, expected: ExpectedOutputs, name: str, shuffle: int
    ) -> Failure:
        """Why an answer is wrong: kernels that read beyond their tensors, or programs whose order decides."""
        if failure.fault not in NUMERIC_FAULTS:
            return failure
        if reply.read_outside:
            message = "the output depends on memory beyond the inputs: a missing mask on a load"
            return Failure(fault=Fault.OUT_OF_BOUNDS, message=message, mismatch=failure.mismatch)
        failure = self._with_never_stored(failure, expected, shuffle)
        kept = self.calls.configuration
        self.calls.configuration = (
            shuffle if kept is None else kept
        )  # it may be wrong in every order
        other_order = any(
            self._right_in_another_order(expected, name, shuffle + other)
            for other in OTHER_SHUFFLES
        )
        self.calls.configuration = kept
        if not other_order:
            return failure
        told = (
            "wrong in one order of the programs or of a reduction, right in another (a race, a function whose result "
            "depends on the order, or memory that nothing wrote)"
        )
        return failure.with_(fault=Fault.NONDETERMINISM, message=f"{told}: {failure.message}")

    def _with_never_stored(
        self, failure: Failure, expected: ExpectedOutputs, shuffle: int
    ) -> Failure:
        """The same failure, told as elements that are never stored where wrong whole numbers follow the poison of two
        further calls. A number of such bytes may be computed, too.
        """
        mismatch = failure.mismatch
        if mismatch is None or expected.eager[mismatch.output].is_floating_point():
            return failure
        eager = expected.eager[mismatch.output]
        filled = []
        for byte in POISON_BYTES:
            with contextlib.suppress(Failed):
                got = self.calls.call(expected, byte, shuffle)[0][mismatch.output]
                filled.append(holds_byte(got, byte)[(got != eager).reshape(-1)].double().mean())
        if len(filled) < len(POISON_BYTES) or not all(float(share) > 0.5 for share in filled):
            return failure
        told = mismatch.with_(pattern=Pattern.UNWRITTEN, hint=NEVER_STORED)
        return failure.with_(mismatch=told, message=describe_mismatch(told))

    def _right_in_another_order(self, expected: ExpectedOutputs, name: str, shuffle: int) -> bool:
        checks, tolerances = self.checks, list(self._tolerances)
        self.checks = []
        try:
            got, _ = self.calls.call(expected, POISON_BYTES[0], shuffle)
            self.compare(got, expected, name or expected.draw)
        except Failed:
            return False
        finally:
            self.checks, self._tolerances[:] = checks, tolerances
        return True

    def _right(self, got: list[Any], expected: ExpectedOutputs) -> bool:
        pairs = zip(got, expected.eager, expected.exact or [None] * len(got), strict=True)
        return all(g is None or is_right(g, e, x) for g, e, x in pairs)

    def check_again(
        self, expected: ExpectedOutputs, outputs: list[Any], shuffle: int, watch: bool = False
    ) -> bool:
        """The same inputs, other poison, programs in another order: both must be right.

        watch: as in `check`. Gives whether they agree bit for bit. Raises Failed.
        """
        kept = [None if o is None else RememberedTensor(o) for o in outputs]
        try:
            second = self.check(expected, POISON_BYTES[1], shuffle, name="own, again", watch=watch)
        except Failed as failed:
            if failed.failure.fault not in NUMERIC_FAULTS:
                raise
            raise Failed(failed.failure.with_(
                fault=Fault.NONDETERMINISM,
                message="right once, wrong the second time on the same inputs (unwritten memory or a race): "
                f"{failed.failure.message}",
            )) from failed  # fmt: skip
        return all(was is None or was.is_in(now) for was, now in zip(kept, second, strict=True))

    def right_without_launches(self, expected: ExpectedOutputs, shuffle: int) -> bool:
        """Whether the answer is there when no kernel of the candidate's runs: another model of the same trace, so
        static buffers hold no earlier answer. Memory that nothing wrote reads as True in a boolean output, which may be
        right everywhere; there it must be right as False, too.
        """
        import torch

        poisons = [POISON_BYTES[1]]
        if any(isinstance(o, torch.Tensor) and o.dtype == torch.bool for o in expected.eager):
            poisons.append(0)
        return all(self._right_without_launches(expected, shuffle, poison) for poison in poisons)

    def _right_without_launches(self, expected: ExpectedOutputs, shuffle: int, poison: int) -> bool:
        try:
            self.calls.set_up()
            got, reply = self.calls.call(expected, poison, shuffle, launches=False)
        except Failed:
            return False
        finally:
            self.calls.set_up()
        if not all(reply.copied) or len(reply.copied) != len(self.calls.places):
            return False
        outputs = len(got) - len(self.prepared.reference.updated)
        got[outputs:] = expected.eager[outputs:]  # the decoys that are looked for give outputs
        return self._right(got, expected)


def check_form(
    reply: Reply, trace: Trace, prepared: PreparedProblem, wanted: Sequence[Any]
) -> None:
    """Count, type, shape, dtype, device, layout, aliasing.

    wanted: what the reference returned, without the inputs that it changes and the buffers that it updates. Raises
    Failed.
    """
    for outputs in (trace.first_outputs, trace.later_outputs if trace.later is not None else None):
        if outputs is not None and (
            told := describe_difference(outputs, prepared.reference.paths, wanted)
        ):
            raise Failed(Failure(fault=Fault.OUTPUT, message=clean_text(told, 200)))
    if failure := form(reply.outputs, [describe(o) for o in wanted]):
        raise Failed(failure)
    _check_aliases(reply, prepared, wanted)


def _check_aliases(reply: Reply, prepared: PreparedProblem, wanted: Sequence[Any]) -> None:
    for number, other in enumerate(reply.shared):
        if other is not None and shared_memory([wanted[other], wanted[number]])[1] is None:
            raise _alias(number, f"output {other}")
    for number, alias in enumerate(reply.aliases):
        if alias is not None and (alias.input is None or alias.input != prepared.aliases[number]):
            given = alias.state is None
            raise _alias(
                number,
                prepared.input_named(alias.input)
                if given
                else f"weight {clean_text(alias.state, 60)}",
            )


def _alias(number: int, what: str) -> Failed:
    message = f"output {number} shares memory with {what}; the reference's does not"
    return Failed(Failure(fault=Fault.ALIAS, message=message))
