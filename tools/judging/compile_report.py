"""Reports the compile rung: the kernels launched at the problem's own size, compiled for a target."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kernelwright.tools.judging.own_work import census_of, with_first_configurations
from kernelwright.tools.references.input_spec import TensorSpec
from kernelwright.tools.report import CompileResult, Failure, Fault, KernelResources, clean_text
from kernelwright.tools.trace.trace import (
    MAX_OUTPUTS,
    Choice,
    Form,
    Launch,
    Trace,
    Traced,
    all_steps,
)
from kernelwright.tools.tracing.client import TracedCandidate

MAX_REPORTED_KERNELS = 48
"""Maximum number of reported specialisations: a report stays under 64 KiB."""
NO_KERNEL = "no Triton kernel is launched: forward returns without one"


def kernels_of(traced: Traced, indices: Iterable[int]) -> list[str]:
    """Returns keys of the kernels that these traces launch, without repetition, in order."""
    keys: dict[str, None] = {}
    for index in indices:
        trace = traced.traces[index]
        if trace is not None:
            keys.update(
                dict.fromkeys(s.kernel for s in all_steps(_steps(trace)) if isinstance(s, Launch))
            )
    return list(keys)


def _steps(trace: Trace) -> list[Any]:
    return [*trace.setup, *trace.first, *(trace.later or ())]


def compile_result(
    target: str,
    candidate: TracedCandidate,
    compiled: Mapping[str, Any],
    seconds: float,
    outputs: Sequence[TensorSpec] = (),
) -> CompileResult:
    """Returns the result for a target, from the trace at the problem's own size (index 0)."""
    trace = candidate.traced.traces[0] if candidate.traced.traces else None
    failure = candidate.failures[0] if candidate.failures else None
    if trace is None:
        return CompileResult(
            target=target, failure=failure, tensors="fake", notes=candidate.notes, seconds=seconds
        )
    launched = Counter(
        s.kernel for s in with_first_configurations(_steps(trace)) if isinstance(s, Launch)
    )
    notes = [*candidate.notes]
    failure = first_failure(trace, compiled, notes) or (
        find_wrong_form(trace, outputs)
        if _launches_in_a_call(trace)
        else Failure(fault=Fault.NO_KERNEL, message=NO_KERNEL)
    )
    grids = {s.kernel: s.grid for s in all_steps(_steps(trace)) if isinstance(s, Launch)}
    tuned = {
        s.kernel
        for c in _steps(trace)
        if isinstance(c, Choice)
        for s in all_steps([c])
        if isinstance(s, Launch)
    }
    resources = [
        _with_launches(compiled[key].resources, launched[key], grids[key], key in tuned)
        for key in grids
        if key in compiled and compiled[key].resources is not None
    ]
    return CompileResult(
        target=target, failure=failure, kernels=tuple(resources[:MAX_REPORTED_KERNELS]),
        census=census_of(trace, candidate.traced),
        tensors="fake", mode="jit", notes=tuple(clean_text(n, 300) for n in notes[:20]), seconds=seconds,
    )  # fmt: skip


def _launches_in_a_call(trace: Trace) -> bool:
    """Returns True if a call launches: a launch at import or in the constructor does not compute
    the answer."""
    return any(isinstance(s, Launch) for s in all_steps([*trace.first, *(trace.later or ())]))


def _with_launches(
    resources: KernelResources, launches: int, grid: tuple[int, int, int], autotuned: bool
) -> KernelResources:
    return resources.with_(launches=launches, grid=grid, autotuned=autotuned)


def find_wrong_form(trace: Trace, expected: Sequence[TensorSpec]) -> Failure | None:
    """Compares number, shape, dtype and device of forward's outputs at the problem's own size with
    the reference's.

    None if they agree or are unknown.
    """
    if not expected or len(expected) > len(trace.forms) == MAX_OUTPUTS:
        return None
    if len(trace.forms) != len(expected):
        message = f"forward returns {len(trace.forms)} values, the reference {len(expected)}"
        return Failure(fault=Fault.OUTPUT, message=message)
    return next(
        (
            f
            for i, (g, w) in enumerate(zip(trace.forms, expected, strict=True))
            if (f := _find_wrong_output(i, g, w))
        ),
        None,
    )


def _find_wrong_output(index: int, got: Form, expected: TensorSpec) -> Failure | None:
    if expected.dtype == "none":
        return None
    if got.dtype == "other":
        return Failure(fault=Fault.OUTPUT, message=f"output {index} is no tensor")
    if got.shape != expected.shape:
        message = f"output {index} has shape {got.shape}, the reference's has {expected.shape}"
        return Failure(fault=Fault.SHAPE, message=message)
    if got.dtype != expected.dtype:
        message = (
            f"output {index} is {clean_text(got.dtype, 40)}, the reference's is {expected.dtype}"
        )
        return Failure(fault=Fault.DTYPE, message=message)
    if got.device != "cuda":
        return Failure(
            fault=Fault.OUTPUT,
            message=f"output {index} is on {clean_text(got.device, 20)}, not on the GPU",
        )
    return None


def first_failure(trace: Trace, compiled: Mapping[str, Any], notes: list[str]) -> Failure | None:
    """Returns the failure of the first launch that is not possible; None without any.

    A configuration of an autotuned launch that does not compile is skipped, as Triton does, and
    noted.
    """
    for step in _steps(trace):
        if isinstance(step, Launch) and (failure := _failure_of(step, compiled)):
            return failure
        if isinstance(step, Choice):
            failures = [
                _first_launch_failure(alternative, compiled) for alternative in step.alternatives
            ]
            skipped = [f for f in failures if f is not None]
            notes += [f"autotune left a config out: {f.message[:200]}" for f in skipped]
            if skipped and len(skipped) == len(failures):
                return skipped[0]
    return None


def _first_launch_failure(steps: Iterable[Any], compiled: Mapping[str, Any]) -> Failure | None:
    return next(
        (f for s in steps if isinstance(s, Launch) and (f := _failure_of(s, compiled))), None
    )


def _failure_of(step: Launch, compiled: Mapping[str, Any]) -> Failure | None:
    kernel = compiled.get(step.kernel)
    return None if kernel is None else kernel.failure


def late_kernel(traced: Traced, index: int, binaries: Mapping[str, Any]) -> str:
    """Returns the error for a kernel whose compilation timed out at a size; empty if all compiled
    in time."""
    if not binaries or traced.traces[index] is None:
        return ""
    failures = (binaries[k].failure for k in kernels_of(traced, [index]) if k in binaries)
    return next(
        (f.message[:200] for f in failures if f is not None and f.fault is Fault.TIMEOUT), ""
    )
