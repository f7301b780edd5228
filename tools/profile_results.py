"""Timing results of a candidate: frozen values, JSON-safe.

Also exported by `tools.report`, whose schema version covers them. Nothing imports torch.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from kernelwright.tools.faults import Failure, Number, Value


class TimingMethod(StrEnum):
    """How a call was timed. Times by different methods are never divided by each other."""

    GRAPH = "cuda_graph"
    """Device events around the replay of a CUDA graph: neither host code nor gaps between launches."""
    QUEUED = "queued_events"
    """Device events around a call whose launches are queued before: includes gaps between launches,
    but no host code."""
    WITH_HOST = "events_with_host"
    """Device events around a call on an idle device: includes host code for which the device waits.
    """


class MixedTimings(ValueError):
    """Raised for the ratio of two times measured by different methods."""

    def __init__(self, baseline: Timing, candidate: Timing) -> None:
        methods = " and ".join(
            str(timing.method or "an unknown method") for timing in (baseline, candidate)
        )
        super().__init__(f"times by {methods} cannot be compared: time both by the same method")


class Timing(Value):
    """Milliseconds per call on a device."""

    median: Number
    low: Number
    """Lower end of the 95 % confidence interval of the median."""
    high: Number
    mean: Number
    std: Number
    minimum: Number
    calls: int
    method: TimingMethod | None = None
    """None: a report before version 3."""


class Speedup(Value):
    """Ratio of baseline time to candidate time, with an interval of at least 95 %."""

    median: Number
    low: Number
    high: Number

    @classmethod
    def between(cls, baseline: Timing, candidate: Timing) -> Self:
        """Returns the baseline's time over the candidate's; `low` and `high` are quotients of the
        ends of their intervals.

        Raises MixedTimings unless both were timed by the same known method.
        """
        if baseline.method is None or baseline.method is not candidate.method:
            raise MixedTimings(baseline, candidate)
        return cls(
            median=baseline.median / candidate.median,
            low=baseline.low / candidate.high,
            high=baseline.high / candidate.low,
        )

    def chained(self, other: Speedup) -> Speedup:
        """The product of two speedups: of A over B, and of B over C, that of A over C."""
        return Speedup(
            median=self.median * other.median,
            low=self.low * other.low,
            high=self.high * other.high,
        )


class Clocks(Value):
    """Clocks, temperature and power of a GPU while it was timed."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature: int | None = None
    """Temperature in degrees Celsius."""
    power_watts: Number | None = None
    throttle: tuple[str, ...] = ()


class Neighbour(Value):
    """Another GPU of this machine in use while a candidate was timed."""

    uuid: str
    name: str
    busy: Number
    """Share of the driver's last sampling period (up to a second) in which the GPU computed, 0 to
    1."""
    power_watts: Number | None = None


class Roofline(Value):
    """Speed of light of the problem on a device."""

    bytes: int | None = None
    """Bytes to move: inputs which affect the output, weights and outputs, counted once each."""
    operations: int | None = None
    """Floating-point operations counted on the reference."""
    bytes_per_second: Number | None = None
    operations_per_second: Number | None = None
    """Peak dense rate for the problem's precision."""
    rate_name: str = ""
    """fp32, tf32, bf16 ...: which peak was taken."""
    milliseconds: Number | None = None
    """The larger of bytes and operations over their peaks."""
    bound: str = ""
    """memory, compute, or of an estimate for a card launch: bytes and operations take less than to launch a kernel."""


class LaunchTime(Value):
    """Time of a launch of the candidate's steady state, measured alone.

    A kernel launched several times per call has an entry for each launch.
    """

    kernel: str
    """The function's name, as `KernelResources.name` has it."""
    grid: tuple[int, int, int] = (1, 1, 1)
    ms: Number | None = None
    """Median over calls; None if not measurable."""
    share: Number | None = None
    """Share of the time of all launches and operators of a call, 0 to 1."""


class ProfileResult(Value):
    """Timing of a candidate on a GPU, in milliseconds."""

    device: str
    failure: Failure | None = None
    candidate: Timing | None = None
    eager: Timing | None = None
    compiled: Timing | None = None
    """Time of the reference compiled by torch.compile; None if not requested or failed (see
    notes).
    """
    eager_beside_compiled: Timing | None = None
    """Eager's time, measured alternately with `compiled` in the compiling process. The ratio of
    the two carries over to this profile's own `eager`, for which a baseline from another day still
    compares.
    """
    speedup: Number | None = None
    """Eager's median over the candidate's."""
    speedup_low: Number | None = None
    """Lower 95 % bound of the speedup, used by rewards."""
    speedup_compiled: Number | None = None
    """Speedup over torch.compile, with all times from the same method; None otherwise."""
    speedup_compiled_low: Number | None = None
    """Lower 95 % bound of `speedup_compiled`."""
    speedup_compiled_estimate: Number | None = None
    """Lowest estimate of the speedup over torch.compile from times of different methods,
    explained in `notes`. In reports before version 3 torch.compile was timed with its host code.
    """
    roofline: Roofline | None = None
    speed_of_light: Number | None = None
    """Roofline time over the candidate's median, 0 to 1."""
    wall_ms: Number | None = None
    """The judge's own clock, a call, from go to verified done."""
    setup_ms: Number | None = None
    """Time of the candidate's one-time work (in `__init__` and at its first call), replayed
    alone; no part of `candidate`.

    None without one-time work.
    """
    host_ms: Number | None = None
    """Host time for launching a call of the candidate without a CUDA graph, in milliseconds,
    beside the device's work or before it. No part of `candidate` or of any speedup.
    """
    eager_host_ms: Number | None = None
    """Host time of eager for launching a call, in milliseconds."""
    compiled_host_ms: Number | None = None
    """Host time of torch.compile for launching a call, in milliseconds."""
    precision: str = ""
    """Precision in which the candidate's kernels multiply (fp32, tf32, bf16, fp16, fp8): the
    lowest operand type; empty if unknown.
    """
    eager_precision: str = ""
    """The precision in which eager was timed: "fp32" or "tf32" as torch's switches were set, or
    the dtype of the problem's inputs.
    """
    launches: tuple[LaunchTime, ...] = ()
    """Launches of a steady call, in order."""
    own_share: Number | None = None
    """The share of GPU time in the candidate's own kernels."""
    gpu_kernels: dict[str, Number] = {}
    """Milliseconds a call by kernel name, from the profiler."""
    peak_memory: int | None = None
    """Bytes allocated by the candidate at most."""
    ncu: dict[str, Number] = {}
    clocks: Clocks | None = None
    neighbours: tuple[Neighbour, ...] = ()
    """Other GPUs of the machine in use meanwhile: they share its power, heat and links."""
    notes: tuple[str, ...] = ()
    seconds: Number = 0.0

    @property
    def passed(self) -> bool:
        """Whether the candidate was timed to the end without a failure."""
        return self.failure is None

    @property
    def method(self) -> TimingMethod:
        """Timing method of candidate and eager; GRAPH without timing, or in a report older than
        version 3.
        """
        return (self.candidate.method if self.candidate is not None else None) or TimingMethod.GRAPH

    def over_eager(self) -> Speedup | None:
        """Returns the speedup over eager; None unless both were timed by the same method."""
        return _speedup(self.eager, self.candidate)

    def over_compiled(self) -> Speedup | None:
        """Returns the speedup over torch.compile; None unless all four times come from the same
        method.
        """
        beside = _speedup(self.compiled, self.eager_beside_compiled)
        over_eager = self.over_eager()
        if beside is None or over_eager is None or self.compiled is None or self.candidate is None:
            return None
        return over_eager.chained(beside) if self.compiled.method is self.candidate.method else None

    def lowest_estimate_over_compiled(self) -> float | None:
        """Returns the lower of two estimates from times of different methods.

        The estimates are torch.compile's time over the candidate's directly, and through eager,
        which was timed by either method. Each is wrong if gaps between launches weigh differently
        on its two sides.
        """
        if self.compiled is None or self.candidate is None:
            return None
        estimates = [self.compiled.median / self.candidate.median]
        beside = _speedup(self.compiled, self.eager_beside_compiled)
        if beside is not None and self.speedup is not None:
            estimates.append(self.speedup * beside.median)
        return min(estimates)


def _speedup(baseline: Timing | None, candidate: Timing | None) -> Speedup | None:
    if baseline is None or candidate is None or not candidate.low > 0.0:
        return None
    try:
        return Speedup.between(baseline, candidate)
    except MixedTimings:
        return None
