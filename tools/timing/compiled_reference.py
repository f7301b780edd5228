"""A reference and what torch.compile makes of it, timed in turns on the same inputs by the clock of record.

Both are called through a `ReferenceClock`, as the judge's own reference is: captured as CUDA graphs alike, the L2 cache
written over before each call, as many calls. A pair of times is always of one method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Number, Speedup, Timing, TimingMethod, Value
from kernelwright.tools.timing.reference_clock import ReferenceClock, time_in_turns

if TYPE_CHECKING:
    from kernelwright.tools.references.reference import Reference

SETS_MEMORY_FACTOR = 8
"""A second set of inputs is drawn where so many times their bytes are free."""
INPUT_SEEDS = (0, 1)


class Baseline(Value):
    """The times of a reference: eager, and compiled by torch.compile."""

    compiled: Timing | None = None
    eager: Timing | None = None
    """Taken in turns with `compiled`, by the same method."""
    compiled_host_ms: Number | None = None
    """Milliseconds that the host takes to launch one call of the compiled reference without a CUDA graph."""
    eager_host_ms: Number | None = None
    note: str = ""
    """Why there are no times, or why they were not taken by the method that was asked for."""

    @property
    def ratio(self) -> Number | None:
        """torch.compile's median over eager's."""
        return (
            Speedup.between(self.compiled, self.eager).median
            if self.compiled and self.eager
            else None
        )


class CompiledReference:
    """One reference on the current GPU with its compiled twin, warm.

    Raises what the reference or the compiler raises.
    """

    def __init__(self, problem: Problem, device: str, mode: str | None = None) -> None:
        """mode: of `torch.compile`; None is its default."""
        import torch

        from kernelwright.tools.references.reference import BuffersAsTheyWere, Reference

        reference = Reference(problem, device)
        model = reference.model(0)
        sets, changed = _input_sets(reference, model)
        buffers = BuffersAsTheyWere(model, reference.changing or ())
        with reference.settings(), torch.no_grad():
            compiled = torch.compile(model, mode=mode)

        def clock_of(call: Any) -> ReferenceClock:
            return ReferenceClock(
                call, [reference.arguments(values) for values in sets],
                [values[i] for values in sets for i in changed],
                buffers=buffers, settings=reference.settings,
            )  # fmt: skip

        self._eager, self._compiled = clock_of(model), clock_of(compiled)
        self._compiled.warm_up()
        self._eager.warm_up()

    def time(self, method: TimingMethod) -> Baseline:
        """Times both by a method. Where either cannot be captured, both are timed by QUEUED instead of GRAPH, and the
        note says why.
        """
        clocks = (self._eager, self._compiled)
        for clock in clocks:
            clock.open(method)
            clock.release_if_large()
        note = self._why_not_captured() if method is TimingMethod.GRAPH else ""
        if any(clock.method is not method for clock in clocks):
            method = TimingMethod.QUEUED
        time_in_turns(clocks, method)
        eager, compiled = (clock.record for clock in clocks)
        baseline = Baseline(
            eager=eager, compiled=compiled, note=note,
            eager_host_ms=self._eager.host_us / 1e3, compiled_host_ms=self._compiled.host_us / 1e3,
        )  # fmt: skip
        for clock in clocks:
            clock.release()
        return baseline

    def _why_not_captured(self) -> str:
        named = (("the reference", self._eager), ("what torch.compile made of it", self._compiled))
        reasons = [f"{name} cannot be captured ({clock.why})" for name, clock in named if clock.why]
        return f"torch.compile timed without CUDA graphs: {'; '.join(reasons)}" if reasons else ""


def _input_sets(reference: Reference, model: Any) -> tuple[list[list[Any]], list[int]]:
    """One or two draws of the inputs, and the places of those that forward writes to.

    One where memory is short, or where plain values differ between two draws: torch.compile would then compile once
    more, for sizes that vary. The run also tells the reference which buffers forward changes.
    """
    import torch

    from kernelwright.tools.numerics.bits import RememberedTensor

    first = reference.inputs(INPUT_SEEDS[0])
    before = [
        RememberedTensor(value) if isinstance(value, torch.Tensor) else None for value in first
    ]
    reference.run(model, first, 0)
    changed = [
        place
        for place, (value, remembered) in enumerate(zip(first, before, strict=True))
        if remembered is not None and not remembered.is_in(value)
    ]
    if changed:
        first = reference.inputs(INPUT_SEEDS[0])
    nbytes = sum(value.nbytes for value in first if isinstance(value, torch.Tensor))
    if reference.device != "cpu" and SETS_MEMORY_FACTOR * nbytes > torch.cuda.mem_get_info()[0]:
        return [first], changed
    second = reference.inputs(INPUT_SEEDS[1])
    alike = [_form(value) for value in first] == [_form(value) for value in second]
    return ([first, second] if alike else [first]), changed


def _form(value: Any) -> Any:
    import torch

    return (
        (value.shape, value.stride(), value.dtype)
        if isinstance(value, torch.Tensor)
        else repr(value)
    )
