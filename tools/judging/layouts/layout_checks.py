"""Whether a candidate is right on inputs in other memory layouts than the problem gives them.

A candidate may copy such an input, use its strides, or raise. A wrong answer counts only if the candidate
is right on the same values in the problem's own layout, and if the reference takes the other layout.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kernelwright.tools.comparing.comparison import is_right
from kernelwright.tools.comparing.wrong_elements import POISON_BYTES
from kernelwright.tools.expected.prepared_problem import (
    ExpectedOutputs,
    PreparedProblem,
    float64_outputs,
    run_on,
)
from kernelwright.tools.judging.size_checks import SizeChecks
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.reference_trials.contract_sizes import GUARD_FAULTS
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.report import Failed, Failure, Fault, LayoutCheck, SizeOutcome, clean_text
from kernelwright.tools.sizing.input_layouts import InputLayout, copy_values, held_values

if TYPE_CHECKING:
    import torch

    from kernelwright.tools.judging.judge import Judge
    from kernelwright.tools.sizing.at_size import AtSize
    from kernelwright.tools.tracing.client import TracedCandidate

LAYOUT_HINT = "use .contiguous() or .stride() in forward, or raise ValueError"
RESOURCE_FAULTS = (Fault.RESOURCES, Fault.COMPILE)
UNDECIDED_FAULTS = (Fault.TIMEOUT, Fault.MEMORY, Fault.UNTRACEABLE, Fault.UNCHECKED, Fault.UNJUDGED)
"""Faults that do not show whether an answer would be wrong."""
MAX_LAYOUT_MESSAGE_CHARACTERS = 200


class LayoutChecks:
    """Calls a candidate on inputs in other layouts."""

    def __init__(
        self, judge: Judge, candidate: TracedCandidate, seed: int,
        open_checks: Callable[[PreparedProblem, int], SizeChecks],
    ) -> None:  # fmt: skip
        """open_checks: opens the trace of this index. Raises Failed."""
        self._judge = judge
        self._candidate = candidate
        self._seed = seed
        self._open_checks = open_checks

    def check(self, size: AtSize, late: str = "") -> LayoutCheck:
        """Calls the candidate on a variant of a size.

        late: why a kernel of this variant cannot be run; empty if all can.
        """
        prepared = self._judge.prepared(size.problem, self._seed)
        own = self._judge.expected(size.problem, self._seed, Draw.OWN, 0)
        layout_check = LayoutCheck(layouts=named_layouts(size, prepared, own.inputs))
        failure = self._candidate.failures[size.index]
        if failure is not None:
            return _with_failure(layout_check, failure)
        if late:
            return layout_check.with_(outcome=SizeOutcome.UNUSED, message=late)
        try:
            return self._called(size, prepared, own, layout_check)
        except ProblemError as error:
            return layout_check.with_(
                outcome=SizeOutcome.UNUSED, message=clean_text(error, MAX_LAYOUT_MESSAGE_CHARACTERS)
            )

    def _called(
        self, size: AtSize, prepared: PreparedProblem, own: ExpectedOutputs, right: LayoutCheck
    ) -> LayoutCheck:  # fmt: skip
        """Raises ProblemError if the reference fails on values that are equal where memory is shared."""
        expected = _expected(size, prepared, own)
        try:
            self._call(prepared, size.index, size.layouts, expected)
        except Failed as failed:
            check = _with_failure(right, failed.failure)
            if check.outcome is SizeOutcome.WRONG and (
                reason := self._excuse(size, prepared, expected)
            ):
                return right.with_(outcome=SizeOutcome.UNUSED, message=reason)
            return check
        return right

    def _call(
        self,
        prepared: PreparedProblem,
        index: int,
        layouts: Sequence[InputLayout | None],
        expected: ExpectedOutputs,
    ) -> None:
        """Makes one call, and a later one if the candidate keeps state between calls. Raises Failed."""
        checks = self._open_checks(prepared, index)
        checks.calls.layouts = layouts
        for number in range(1 + checks.calls.keeps_state):
            checks.check(
                expected, POISON_BYTES[number % 2], self._seed & 0x7FFFFFFF, name="other layouts"
            )

    def _excuse(self, size: AtSize, prepared: PreparedProblem, expected: ExpectedOutputs) -> str:
        """Returns why a wrong answer is not due to the layout; empty if the layout is to blame."""
        if not _reference_takes(prepared, expected, size.layouts):
            return "the reference itself does not give the same answer on inputs with these strides"
        if size.like is None or expected.draw == Draw.OWN:
            return ""
        try:
            self._call(prepared, size.like, (), expected)
        except Failed:
            return "wrong on these values in the problem's own layout, too"
        return ""


def is_dense(size: AtSize) -> bool:
    """Returns True if a variant's strides are the usual ones, and only the start of its inputs
    differs."""
    return all(layout is None or layout.is_dense for layout in size.layouts)


def shows_strides(size: AtSize, check: LayoutCheck) -> bool:
    """Returns True if a correct answer on a variant shows that a candidate uses the stride of every
    dimension.

    A wrong answer on another variant then costs the full reward: `x.reshape(-1)` copies most
    layouts and is a view of some.
    """
    changed_layouts = [layout for layout in size.layouts if layout is not None]
    return check.outcome is SizeOutcome.RIGHT and all(
        layout.follows_strides for layout in changed_layouts
    )


def failure_of_layouts(size: AtSize, check: LayoutCheck) -> Failure:
    """Returns the failure of a candidate that answers wrongly on a variant of a size."""
    if is_dense(size):
        message = f"depends on where its inputs lie in memory: wrong where {check.where}"
        mismatch = check.mismatch
    else:
        subject = "it is" if len(check.layouts) == 1 else "they are"
        message = f"ignores strides: wrong where {check.where}, right where {subject} contiguous: {LAYOUT_HINT}"
        hint = f"It ignores strides: {LAYOUT_HINT}."
        mismatch = check.mismatch and check.mismatch.with_(hint=hint, pattern=None)
    return Failure(fault=Fault.LAYOUT, message=clean_text(message, 700), mismatch=mismatch)


def named_layouts(
    size: AtSize, prepared: PreparedProblem, inputs: Sequence[object]
) -> dict[str, str]:
    """Returns the layout of each input that lies otherwise, by its name: `input 0 (x)`."""
    parameters = list(inspect.signature(prepared.model.forward).parameters)
    names = []
    for path, value in zip(prepared.reference.input_names, inputs, strict=True):
        if hasattr(value, "stride"):
            argument = (
                f" ({parameters[int(path)]})"
                if path.isdigit() and int(path) < len(parameters)
                else ""
            )
            names.append(f"input {path}{argument}")
    pairs = zip(names, size.layouts, strict=True)
    return {name: layout.description for name, layout in pairs if layout is not None}


def _expected(size: AtSize, prepared: PreparedProblem, own: ExpectedOutputs) -> ExpectedOutputs:
    """Returns the problem's own draw, with values that are equal where elements of an input share memory.

    Raises ProblemError if the reference fails on these values, or writes to such an input.
    """
    if not any(layout is not None and layout.repeats for layout in size.layouts):
        return own
    waiting = iter(size.layouts)
    inputs = []
    for index, value in enumerate(own.inputs):
        layout = next(waiting) if hasattr(value, "stride") else None
        if layout is not None and layout.repeats:
            if index in prepared.mutated:
                raise ProblemError(
                    "the reference writes to an input whose elements would share memory"
                )
            value = held_values(value, layout)
        inputs.append(value)
    expected = ExpectedOutputs(
        inputs, [], None, own.rng, own.weights, "own, equal where memory is shared"
    )
    expected.eager = run_on(prepared, expected, own.weights, inputs)
    expected.exact = float64_outputs(prepared, expected) if own.exact is not None else None
    return expected


def _reference_takes(
    prepared: PreparedProblem, expected: ExpectedOutputs, layouts: Sequence[InputLayout | None]
) -> bool:  # fmt: skip
    """Tells whether the reference runs on inputs in these layouts and answers as it does on contiguous ones."""
    waiting = iter(layouts)
    inputs = [
        _laid_out(value, next(waiting)) if hasattr(value, "stride") else value
        for value in expected.inputs
    ]
    try:
        outputs = run_on(prepared, expected, expected.weights, inputs)
    except ProblemError:
        return False
    exact = expected.exact or [None] * len(outputs)
    return all(
        is_right(output, eager, float64)
        for output, eager, float64 in zip(outputs, expected.eager, exact, strict=True)
        if hasattr(eager, "stride")
    )


def _laid_out(value: torch.Tensor, layout: InputLayout | None) -> torch.Tensor:
    if layout is None:
        return value
    storage = value.new_zeros(layout.elements(value.shape))
    view = storage.as_strided(value.shape, layout.strides, layout.offset)
    copy_values(view, value)
    return view


def _with_failure(check: LayoutCheck, failure: Failure) -> LayoutCheck:
    """Returns the check with the outcome that a failure stands for."""
    outcome = _outcome(failure)
    mismatch = failure.mismatch if outcome is SizeOutcome.WRONG else None
    message = clean_text(failure.message, MAX_LAYOUT_MESSAGE_CHARACTERS)
    if mismatch is not None:  # its hint looks for the cause in the kernel's arithmetic
        message = f"{mismatch.wrong} of {mismatch.total} elements wrong"
    changed: LayoutCheck = check.with_(outcome=outcome, message=message, mismatch=mismatch)
    return changed


def _outcome(failure: Failure) -> SizeOutcome:
    if failure.fault in GUARD_FAULTS:
        return SizeOutcome.OUTSIDE_CONTRACT
    if failure.fault in RESOURCE_FAULTS:
        return SizeOutcome.REFUSED
    return SizeOutcome.UNUSED if failure.fault in UNDECIDED_FAULTS else SizeOutcome.WRONG
