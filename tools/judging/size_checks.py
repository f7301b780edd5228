"""Compares every answer of a candidate's calls at a size with the reference.

Trusted side; raises Failed at the first error.
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
from kernelwright.tools.comparing.wrong_elements import POISON_BYTES, holds_byte
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

POISONS = (POISON_BYTES[0], 0, POISON_BYTES[1], NOISE)
"""Contents of uninitialised memory: NaN, zeros, a large finite number, and ordinary numbers."""
OTHER_SHUFFLES = (1, 2)
"""Offsets to a call's seed for repeating a wrong answer in other program orders."""
NUMERIC_FAULTS = (Fault.MISMATCH, Fault.PRECISION, Fault.NON_FINITE)


@contextlib.contextmanager
def refusal_elsewhere(draw: Draw) -> Iterator[None]:
    """Prefixes numeric failures inside the block: the problem's own inputs passed."""
    try:
        yield
    except Failed as failed:
        if failed.failure.fault not in NUMERIC_FAULTS or draw not in WHERE:
            raise
        message = f"{ELSEWHERE}{WHERE[draw]}: {failed.failure.message}"
        raise Failed(failed.failure.with_(message=clean_text(message, 700))) from failed


class SizeChecks:
    """Calls of a trace, compared with the outputs that a prepared problem expects."""

    def __init__(
        self, prepared: PreparedProblem, traced: Traced, index: int, replayer: Replayer, buffers: Buffers,
        tolerances: list[Any], inputs: tuple[list[Any], Sequence[SharedTensor]] = ([], ()),
    ) -> None:  # fmt: skip
        """index: that of the trace. tolerances: eager's own error by output, if float64 outputs
        exist; filled here. inputs: described, with their memory if allocated before."""
        self.calls = CandidateCalls(prepared, traced, index, replayer, buffers, inputs)
        self.prepared = prepared
        self.checks: list[Check] = []
        self.notes: list[str] = []
        """Remarks on calls with correct answers."""
        self._tolerances = tolerances
        self._on_gpu = buffers.device != "cpu"
        self.watched: Watched | None = None
        self.watched_draw: ExpectedOutputs | None = None
        self.undecided = ""
        """Behaviour of a GPU that the calls so far, under the interpreter, cannot decide."""

    @property
    def trace(self) -> Trace:
        """The replayed trace."""
        return self.calls.trace

    def follows_weights(self, expected: ExpectedOutputs, shuffle: int) -> bool:
        """Returns True if a later call is correct on new weights without a first call on them."""
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
        """Runs a call and checks its form, side effects and values. Returns its outputs. Raises
        Failed.

        watch: stores observations of torch's work beside the kernels in `watched`.
        """
        got, reply = self.calls.call(expected, poison, shuffle, watch=watch)
        if watch:
            self.watched = reply.watched
            self.watched_draw = expected
        if reply.undecided:
            self.undecided = clean_text(reply.undecided, 300)
        check_form(reply, self.trace, self.prepared, self.calls.returned(expected))
        self.check_side_effects(reply, expected)
        counts = len(self.checks), len(self._tolerances)
        try:
            self.compare(got, expected, name or expected.draw)
        except Failed as failed:
            numeric = failed.failure.fault in NUMERIC_FAULTS
            if not numeric or not self._follows_another_choice(
                got, expected, name or expected.draw, counts
            ):
                raise Failed(
                    self._diagnosed(failed.failure, reply, expected, name, shuffle)
                ) from failed
        self._note_reads_outside(reply)
        return got

    def _note_reads_outside(self, reply: Reply) -> None:
        """Notes reads outside of all tensors that did not affect the answer: on a GPU that memory
        may be unmapped."""
        note = f"right, and {clean_text(reply.read_outside, 250)}: a GPU may end the program there; mask the load"
        if reply.read_outside and note not in self.notes:
            self.notes.append(note)

    def _follows_another_choice(
        self, got: list[Any], expected: ExpectedOutputs, name: str, counts: tuple[int, int]
    ) -> bool:
        """Returns True if the outputs are correct under another choice among equals by the
        reference.

        counts: numbers of checks and tolerances before the comparison.
        """
        earlier = self.checks, list(self._tolerances)
        for alternative in expected_of_other_choices(self.prepared, expected):
            self.checks, self._tolerances[counts[1] :] = earlier[0][: counts[0]], []
            with contextlib.suppress(Failed):
                self.compare(got, alternative, name)
                return True
        self.checks, self._tolerances[:] = earlier
        return False

    def check_side_effects(self, reply: Reply, expected: ExpectedOutputs) -> None:
        """Raises Failed for writes outside of tensors, and for changed inputs or weights."""
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
        """Compares every output, and every buffer that the reference updates, with the expected
        values. Raises Failed.

        An answer whose deviation is within the reference's own sensitivity is correct.
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
            label = f"{name}, buffer" if number in buffers else name
            carried = self._tolerances[number] if number < len(self._tolerances) else None
            measured = measure_by_draw(
                mine, expected, number, label, carried, moves, tf32_errors, kind
            )
            if not measured.check.passed and (defined := without_open(number, mine)) is not None:
                measured = measure_by_draw(
                    defined, expected, number, label, carried, moves, tf32_errors, kind
                )
            if not (
                measured.check.passed or mine.is_floating_point() or mine.is_complex()
            ) and names_equal_values(self.prepared, expected, number, mine):
                measured = ComparedOutput(
                    check=measured.check.with_(passed=True, note="an index among near equals")
                )
            if measured.check.passed:
                turned = measure_turned_zeros(self.prepared, expected, number, mine, label)
                measured = turned or measured
            if expected.exact is not None and len(self._tolerances) <= number:
                self._tolerances.append(measured.tolerance)
            self.checks.append(measured.check)
            if failure := failure_of(measured):
                raise Failed(in_buffer(failure, buffers[number]) if number in buffers else failure)

    def _how_far_off(
        self, expected: ExpectedOutputs
    ) -> tuple[Callable[[], list[Any]], Callable[[], list[Any] | None]]:
        """Returns two cached functions: outputs perturbed by the reference's own sensitivity, and
        errors in tf32, per element."""
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
        """Returns a more specific cause of a wrong answer: reads outside of tensors, or dependence
        on the program order."""
        if failure.fault not in NUMERIC_FAULTS:
            return failure
        if reply.read_outside:
            message = "the output depends on memory beyond the inputs: a missing mask on a load"
            return Failure(fault=Fault.OUT_OF_BOUNDS, message=message, mismatch=failure.mismatch)
        failure = self._with_never_stored(failure, expected, shuffle)
        configuration = self.calls.configuration
        self.calls.configuration = (
            shuffle if configuration is None else configuration
        )  # it may be wrong in every order
        other_order = any(
            self.calls.may_go_on and self._right_in_another_order(expected, name, shuffle + other)
            for other in OTHER_SHUFFLES
        )
        self.calls.configuration = configuration
        if not other_order:
            return failure
        cause = (
            "wrong in one order of the programs or of a reduction, right in another (a race, a function whose result "
            "depends on the order, or memory that nothing wrote)"
        )
        return failure.with_(fault=Fault.NONDETERMINISM, message=f"{cause}: {failure.message}")

    def _with_never_stored(
        self, failure: Failure, expected: ExpectedOutputs, shuffle: int
    ) -> Failure:
        """Returns the failure as unwritten elements if wrong integers equal the poison in two
        further calls.

        A number of such bytes could also be computed.
        """
        mismatch = failure.mismatch
        if mismatch is None or expected.eager[mismatch.output].is_floating_point():
            return failure
        eager = expected.eager[mismatch.output]
        filled = []
        for byte in POISON_BYTES:
            if not self.calls.may_go_on:
                break
            with contextlib.suppress(Failed):
                got = self.calls.call(expected, byte, shuffle)[0][mismatch.output]
                filled.append(holds_byte(got, byte)[(got != eager).reshape(-1)].double().mean())
        if len(filled) < len(POISON_BYTES) or not all(float(share) > 0.5 for share in filled):
            return failure
        unwritten = mismatch.with_(pattern=Pattern.UNWRITTEN, hint=NEVER_STORED)
        return failure.with_(mismatch=unwritten, message=describe_mismatch(unwritten))

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
        """Checks the same inputs with other poison and program order; both answers must be correct.
        Raises Failed.

        watch: as in `check`. Returns True if the answers agree bit for bit.
        """
        remembered = [None if o is None else RememberedTensor(o) for o in outputs]
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
        return all(
            was is None or was.is_in(now) for was, now in zip(remembered, second, strict=True)
        )

    def right_without_launches(self, expected: ExpectedOutputs, shuffle: int) -> bool:
        """Returns True if the answer is correct without any launch: the kernels are decoys.

        The model is set up again, so that static buffers hold no earlier answer. Uninitialised
        memory reads as True in a boolean output, which may be correct everywhere; so the check is
        repeated with memory that reads as False.
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
        if not all(reply.copied) or len(reply.copied) != len(self.calls.targets):
            return False
        outputs = len(got) - len(self.prepared.reference.updated)
        got[outputs:] = expected.eager[outputs:]  # the decoys that are looked for give outputs
        return self._right(got, expected)


def check_form(
    reply: Reply, trace: Trace, prepared: PreparedProblem, expected: Sequence[Any]
) -> None:
    """Checks count, type, shape, dtype, device, layout and aliasing of outputs. Raises Failed.

    expected: the reference's outputs, without the inputs that it changes and the buffers that it
    updates.
    """
    for outputs in (trace.first_outputs, trace.later_outputs if trace.later is not None else None):
        if outputs is not None and (
            difference := describe_difference(outputs, prepared.reference.paths, expected)
        ):
            raise Failed(Failure(fault=Fault.OUTPUT, message=clean_text(difference, 200)))
    if failure := form(reply.outputs, [describe(o) for o in expected]):
        raise Failed(failure)
    _check_aliases(reply, prepared, expected)


def _check_aliases(reply: Reply, prepared: PreparedProblem, expected: Sequence[Any]) -> None:
    for number, other in enumerate(reply.shared):
        if other is not None and shared_memory([expected[other], expected[number]])[1] is None:
            raise _alias(number, f"output {other}")
    for number, alias in enumerate(reply.aliases):
        if alias is not None and (alias.input is None or alias.input != prepared.aliases[number]):
            is_input = alias.state is None
            raise _alias(
                number,
                prepared.input_named(alias.input)
                if is_input
                else f"weight {clean_text(alias.state, 60)}",
            )


def _alias(number: int, owner: str) -> Failed:
    message = f"output {number} shares memory with {owner}; the reference's does not"
    return Failed(Failure(fault=Fault.ALIAS, message=message))
