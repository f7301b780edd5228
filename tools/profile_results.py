"""What the clock found out about one candidate: frozen values, JSON-safe.

Also imported from `tools.report`, whose schema version covers them.

Nothing here imports torch.
"""

from __future__ import annotations

from kernelwright.tools.faults import Failure, Number, Value


class Timing(Value):
    """Milliseconds a call on one device."""

    median: Number
    low: Number
    """Lower end of the 95 % confidence interval of the median."""
    high: Number
    mean: Number
    std: Number
    minimum: Number
    calls: int


class Clocks(Value):
    """Clocks, temperature and power of a GPU while it was timed."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature: int | None = None
    """Degrees Celsius."""
    power_watts: Number | None = None
    throttle: tuple[str, ...] = ()


class Neighbour(Value):
    """Another GPU of this machine that was at work while a candidate was timed."""

    uuid: str
    name: str
    busy: Number
    """Share of the driver's last sampling period (up to a second) in which it computed, 0 to 1."""
    power_watts: Number | None = None


class Roofline(Value):
    """Speed of light of the problem on one device."""

    bytes: int | None = None
    """Bytes that must move: inputs that the output depends on, weights and outputs, once each."""
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
    """memory or compute."""


class LaunchTime(Value):
    """One launch of the candidate's steady state, timed by itself.

    A kernel that is launched several times in a call has one of these a launch.
    """

    kernel: str
    """The function's name, as `KernelResources.name` has it."""
    grid: tuple[int, int, int] = (1, 1, 1)
    ms: Number | None = None
    """Median over calls; None where it could not be timed."""
    share: Number | None = None
    """The share of the time of all launches and operators of one call, 0 to 1."""


class ProfileResult(Value):
    """What the clock says of a candidate on one GPU. Times are in milliseconds."""

    device: str
    failure: Failure | None = None
    candidate: Timing | None = None
    eager: Timing | None = None
    compiled: Timing | None = None
    """torch.compile of the reference; None where it was not asked for or did not work (see notes)."""
    speedup: Number | None = None
    """Eager's median over the candidate's."""
    speedup_low: Number | None = None
    """Lower 95 % bound of the speedup: what rewards use."""
    speedup_compiled: Number | None = None
    roofline: Roofline | None = None
    speed_of_light: Number | None = None
    """Roofline time over the candidate's median, 0 to 1."""
    wall_ms: Number | None = None
    """The judge's own clock, a call, from go to verified done."""
    setup_ms: Number | None = None
    """What the candidate does once (in `__init__` and at its first call), replayed alone; no part of `candidate`.

    None where it does nothing once.
    """
    host_ms: Number | None = None
    """Of a call that is not captured in a CUDA graph, over the device's time: what Python and the driver take.

    No part of `candidate` or `speedup`.
    """
    precision: str = ""
    """The precision in which the candidate's kernels multiply (fp32, tf32, bf16, fp16, fp8): the lowest operand type
    seen; empty where it is unknown.
    """
    eager_precision: str = ""
    """The precision in which eager was timed: "fp32" or "tf32" as torch's switches were set, or the dtype of the
    problem's inputs.
    """
    launches: tuple[LaunchTime, ...] = ()
    """Launches of one steady call, in order."""
    own_share: Number | None = None
    """The share of GPU time in the candidate's own kernels."""
    gpu_kernels: dict[str, Number] = {}
    """Milliseconds a call by kernel name, from the profiler."""
    peak_memory: int | None = None
    """Bytes allocated by the candidate at most."""
    ncu: dict[str, Number] = {}
    clocks: Clocks | None = None
    neighbours: tuple[Neighbour, ...] = ()
    """Other GPUs of the machine that were at work meanwhile: they share its power, its heat and its links."""
    notes: tuple[str, ...] = ()
    seconds: Number = 0.0

    @property
    def passed(self) -> bool:
        """Whether the candidate was timed to the end without a failure."""
        return self.failure is None
