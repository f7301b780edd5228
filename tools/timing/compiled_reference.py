"""Times a reference and its torch.compile version in alternating blocks on the same inputs, by
the clock of record.

Both are called through a `ReferenceClock`, like the judge's own reference: captured as CUDA
graphs alike, with the L2 cache written over before each call, and the same number of calls. Both
times always come from the same method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Number, Speedup, Timing, TimingMethod, Value
from kernelwright.tools.timing.reference_clock import ReferenceClock, time_in_turns

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from kernelwright.tools.references.reference import Reference

SETS_MEMORY_FACTOR = 8
"""Free memory, in multiples of the inputs' bytes, above which a second set of inputs is drawn."""
INPUT_SEEDS = (0, 1)


class Baseline(Value):
    """The times of a reference: eager, and compiled by torch.compile."""

    compiled: Timing | None = None
    eager: Timing | None = None
    """Taken in turns with `compiled`, by the same method."""
    compiled_host_ms: Number | None = None
    """Host time for launching a call of the compiled reference without a CUDA graph, in
    milliseconds.
    """
    eager_host_ms: Number | None = None
    note: str = ""
    """Why there are no times, or why they were not taken by the method that was asked for."""

    @property
    def ratio(self) -> Number | None:
        """Ratio of torch.compile's median to eager's."""
        return (
            Speedup.between(self.compiled, self.eager).median
            if self.compiled and self.eager
            else None
        )


class CompiledReference:
    """Reference on the current GPU with its compiled version, both warmed up.

    Raises any error of the reference or the compiler.
    """

    def __init__(self, problem: Problem, device: str, mode: str | None = None) -> None:
        """mode: of `torch.compile`; None is its default."""
        import torch

        from kernelwright.tools.references.models.model_state import BuffersAsTheyWere
        from kernelwright.tools.references.reference import Reference

        reference = Reference(problem, device)
        model = reference.model(0)
        sets, changed = _input_sets(reference, model)
        buffers = BuffersAsTheyWere(model, reference.changing or ())
        with reference.settings(), torch.no_grad():
            compiled = torch.compile(model, mode=mode)

        def clock_of(call: Callable[..., Any]) -> ReferenceClock:
            return ReferenceClock(
                call,
                [reference.arguments(values) for values in sets],
                [values[i] for values in sets for i in changed],
                buffers=buffers,
                settings=reference.settings,
            )

        self._eager, self._compiled = clock_of(model), clock_of(compiled)
        self._compiled.warm_up()
        self._eager.warm_up()

    def time(self, method: TimingMethod) -> Baseline:
        """Times both by a method. If either cannot be captured, both are timed by QUEUED instead
        of GRAPH, with a note.
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
            eager=eager,
            compiled=compiled,
            note=note,
            eager_host_ms=self._eager.host_us / 1e3,
            compiled_host_ms=self._compiled.host_us / 1e3,
        )
        for clock in clocks:
            clock.release()
        return baseline

    def _why_not_captured(self) -> str:
        named = (("the reference", self._eager), ("what torch.compile made of it", self._compiled))
        reasons = [f"{name} cannot be captured ({clock.why})" for name, clock in named if clock.why]
        return f"torch.compile timed without CUDA graphs: {'; '.join(reasons)}" if reasons else ""


def _input_sets(reference: Reference, model: torch.nn.Module) -> tuple[list[list[Any]], list[int]]:
    """Draws one or two sets of inputs; returns them with the positions of inputs which forward
    writes.

    A single set if memory is short, or if plain values differ between two draws: torch.compile
    would then compile again, for dynamic sizes. The run also tells the reference which buffers
    forward changes.
    """
    import torch

    from kernelwright.tools.numerics.bits import RememberedTensor

    first = reference.inputs(INPUT_SEEDS[0])
    before = [
        RememberedTensor(value) if isinstance(value, torch.Tensor) else None for value in first
    ]
    reference.run(model, first, 0)
    changed = [
        position
        for position, (value, remembered) in enumerate(zip(first, before, strict=True))
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


def _form(value: object) -> Any:
    import torch

    return (
        (value.shape, value.stride(), value.dtype)
        if isinstance(value, torch.Tensor)
        else repr(value)
    )
