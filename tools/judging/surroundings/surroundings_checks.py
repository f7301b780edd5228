"""Checks a candidate in changed surroundings: while gradients are recorded, with weights from a
checkpoint, at another time.

The tracer traces a size in many surroundings, and sends the traces that differ from the usual one.
Each is replayed on the problem's own inputs. A candidate may refuse surroundings by raising an
exception.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kernelwright.tools.expected.prepared_problem import ExpectedOutputs, PreparedProblem, run_on
from kernelwright.tools.judging.size_checks import NUMERIC_FAULTS, POISON_BYTES, SizeChecks
from kernelwright.tools.judging.weights.mapping import map_by_name
from kernelwright.tools.numerics.bits import same_bits
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.report import Failed, Failure, Fault, clean_text
from kernelwright.tools.sizing.at_size import AtSize
from kernelwright.tools.sizing.layout_draws import cheapest_size
from kernelwright.tools.sizing.selection import Selection
from kernelwright.tools.trace.trace import OF_WEIGHTS, Change

if TYPE_CHECKING:
    from kernelwright.tools.judging.judge import Judge
    from kernelwright.tools.tracing.client import TracedCandidate

WRONG_ANSWERS = (*NUMERIC_FAULTS, Fault.OUT_OF_BOUNDS, Fault.NONDETERMINISM)
"""Faults that count as wrong. Others are refusals: a tensor of the default dtype visibly differs
from the reference's."""


def with_surroundings(selection: Selection) -> Selection:
    """Chooses the size that is traced in changed surroundings, too: the cheapest."""
    size = cheapest_size(selection)
    chosen: Selection = selection.with_(surrounded=size.index if size is not None else None)
    return chosen


def traced_in_surroundings(selection: Selection, candidate: TracedCandidate) -> tuple[AtSize, ...]:
    """Returns a size for each trace of the candidate in changed surroundings."""
    size = next((size for size in selection.every if size.index == selection.surrounded), None)
    if size is None:
        return ()
    first = len(candidate.traced.traces) - len(candidate.changed)
    return tuple(
        size.with_(index=first + i, changes=changes) for i, changes in enumerate(candidate.changed)
    )


class SurroundingsChecks:
    """Calls a candidate in changed surroundings."""

    def __init__(
        self,
        judge: Judge,
        candidate: TracedCandidate,
        seed: int,
        open_checks: Callable[[PreparedProblem, int], SizeChecks],
    ) -> None:
        """open_checks: opens the trace of this index. Raises Failed."""
        self._judge = judge
        self._candidate = candidate
        self._seed = seed
        self._open_checks = open_checks

    def check(self, size: AtSize, late: str = "") -> tuple[Failure | None, str]:
        """Returns the failure in these surroundings, and a remark on an answer without effect.

        late: why a kernel of this trace cannot be run; empty if all can.
        """
        surroundings = " and ".join(size.changes)
        if late:
            return None, f"not checked where {surroundings}: {late}"
        prepared = self._judge.prepared(size.problem, self._seed)
        expected = self._judge.expected(size.problem, self._seed, Draw.OWN, 0)
        if Change.OTHER_MODE in size.changes and _depends_on_mode(prepared, expected):
            return None, ""
        if Change.DEFAULT_TYPE in size.changes and self._has_other_dtypes(size.index, expected):
            return (
                None,
                f"refused where {surroundings}: outputs have another dtype, which a caller sees",
            )
        try:
            checks = self._open_checks(prepared, size.index)
            if OF_WEIGHTS & set(size.changes) and self._unnamed_weights(size.index, prepared):
                return None, f"not checked where {surroundings}: its weights have other names"
            if (
                checks.calls.has_weights
            ):  # a constructor draws the same initial weights as the reference's
                expected = self._judge.expected(
                    size.problem, self._seed, Draw.OWN, 1, perturbed=True
                )
                checks.calls.load_weights(expected.weights)
            for number in range(1 + checks.calls.keeps_state):
                checks.check(
                    expected,
                    POISON_BYTES[number % 2],
                    self._seed & 0x7FFFFFFF,
                    name=f"own, where {surroundings}",
                )
        except Failed as failed:
            message = clean_text(f"where {surroundings}: {failed.failure.message}", 700)
            if Change.STRIDED in size.changes:
                return None, f"wrong {message}"
            if failed.failure.fault not in WRONG_ANSWERS:
                return None, f"refused {message}"
            return failed.failure.with_(
                message=f"right in the usual surroundings; wrong {message}"
            ), ""
        return None, ""

    def _unnamed_weights(self, index: int, prepared: PreparedProblem) -> bool:
        """Returns True if parameters of a loaded checkpoint lack a known name.

        Such parameters are identified by the constructor's values, which a checkpoint replaces.
        """
        trace = self._candidate.traced.traces[index]
        if trace is None:
            return True
        return bool(set(trace.parameters) - set(map_by_name(prepared, trace)))

    def _has_other_dtypes(self, index: int, expected: ExpectedOutputs) -> bool:
        """Returns True if a trace's outputs have other dtypes than the reference's.

        `torch.empty(rows)` has the default dtype: if this is float64, no answer is written into
        float32.
        """
        import torch

        trace = self._candidate.traced.traces[index]
        forms = trace.forms if trace is not None else ()
        dtypes = [form.dtype for form in forms if form.dtype != "other"]
        answers = [value for value in expected.eager if isinstance(value, torch.Tensor)]
        return any(
            dtype != str(output.dtype).removeprefix("torch.")
            for dtype, output in zip(dtypes, answers, strict=False)
        )


def _depends_on_mode(prepared: PreparedProblem, expected: ExpectedOutputs) -> bool:
    """Returns True if the reference's answer differs in the other mode of train and eval."""
    import torch

    model = expected.weights
    model.train(not model.training)
    try:
        outputs = run_on(prepared, expected, model, expected.inputs)
    finally:
        model.train(not model.training)
    pairs = zip(outputs, expected.eager, strict=True)
    return not all(
        same_bits(a, b)
        for a, b in pairs
        if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor)
    )
