"""Ranks configurations of a launch by a simple cost model of the compiler's figures, without a
GPU.

The result compares configurations of a kernel, and is no time. Programs run in waves over the
multiprocessors; each wave takes the longest of issue slots, tensor cores, memory and latency: the
roofline (Williams et al. 2009) with occupancy and latency. The constants are round figures.
"""

from __future__ import annotations

import math

from kernelwright.tools.hardware.peaks import Peak, peak_of_target
from kernelwright.tools.hardware.targets import Target
from kernelwright.tools.report import KernelResources, Number, Value
from kernelwright.tools.tuning.instruction_counts import InstructionCounts
from kernelwright.tools.tuning.launch_facts import TracedLaunchFacts

INSTRUCTIONS_PER_CYCLE = 4
"""Warp instructions issued by a multiprocessor per cycle: one for each partition."""
WARPS_FOR_FULL_ISSUE = 16
"""Approximate number of resident warps with which a multiprocessor issues in every cycle; fewer
wait for own results.
"""
LATENCY_CYCLES = 700.0
"""Approximate latency of a load from memory, in cycles."""
L2_BANDWIDTH_FACTOR = 2.5
"""Approximate ratio of L2 bandwidth to memory bandwidth."""
MMA_SYNC_SHARE_OF_PEAK = 0.62
"""Approximate share of the tensor cores' peak reached by `mma.sync` on GPUs with `wgmma`."""
BLOCK_START_CYCLES = 1500.0
"""Cycles of a block before its work: launching and first loads."""
_FORMATS = {
    "f16": "fp16",
    "bf16": "bf16",
    "tf32": "tf32",
    "e4m3": "fp8",
    "e5m2": "fp8",
    "s8": "int8",
    "f32": "tf32",
}


class Binding(Value):
    """Cycles for which a launch occupies each resource."""

    issue: Number = 0.0
    tensor: Number = 0.0
    memory: Number = 0.0
    latency: Number = 0.0
    cycles: Number = 0.0
    """Returns the cycles of the launch."""

    @property
    def resource(self) -> str:
        """Returns the most occupied resource: issue, tensor, memory or latency."""
        held = {
            "issue": self.issue,
            "tensor": self.tensor,
            "memory": self.memory,
            "latency": self.latency,
        }
        return max(held, key=lambda name: held[name])


def estimate_cycles(
    launch: TracedLaunchFacts, resources: KernelResources, counts: InstructionCounts, target: Target
) -> Binding:
    """Returns the estimated cycles of a launch; infinite if not a single block fits."""
    warps = resources.warps or 4
    resident = int((resources.occupancy or 0.0) * target.warps / warps + 1e-6)
    if resident < 1:
        return Binding(cycles=math.inf)
    peak = peak_of_target(target.name)
    clock = _clock(peak, target)
    threads = warps * target.warp_size
    together = max(1, min(resident, -(-launch.programs // target.multiprocessors)))
    waves = -(-launch.programs // (target.multiprocessors * together))
    stages = int(launch.options.get("num_stages") or 3)
    spilled = (resources.spills or 0) * threads * max(1.0, counts.iterations) / 128
    busy = min(1.0, together * warps / WARPS_FOR_FULL_ISSUE)
    issue = together * (counts.issued * warps / INSTRUCTIONS_PER_CYCLE + spilled) / busy
    memory = together * counts.bytes * threads / _bytes_per_cycle(peak, target, clock)
    tensor = (
        together * counts.operations * threads / _products_per_cycle(peak, target, clock, resources)
    )
    waits = counts.iterations if counts.iterations > 1 else 0.0
    latency = BLOCK_START_CYCLES + waits * LATENCY_CYCLES / max(1, stages - 1)
    longest = max(issue, memory, tensor, latency)
    return Binding(
        issue=waves * issue,
        tensor=waves * tensor,
        memory=waves * memory,
        latency=waves * latency,
        cycles=waves * (longest + BLOCK_START_CYCLES),
    )


def _clock(peak: Peak | None, target: Target) -> float:
    """Returns the cycles per second, derived from the published rate of fp32: 128 lanes with a
    multiply-add each.
    """
    rate = peak.rates.get("fp32") if peak is not None else None
    return rate / (target.multiprocessors * 128 * 2) if rate else 1.7e9


def _bytes_per_cycle(peak: Peak | None, target: Target, clock: float) -> float:
    """Returns the bytes which a multiprocessor moves per cycle."""
    bandwidth = peak.bytes_per_second if peak is not None else 2e12
    return L2_BANDWIDTH_FACTOR * bandwidth / (target.multiprocessors * clock)


def _products_per_cycle(
    peak: Peak | None, target: Target, clock: float, resources: KernelResources
) -> float:
    """Returns the operations per cycle of a multiprocessor's tensor cores, in the slowest format
    of the kernel.
    """
    rates = peak.rates if peak is not None else {"fp32": 1e13}
    named = [_FORMATS.get(kind, "fp16") for kind in resources.mma_types]
    rate = min((rates[name] for name in named if name in rates), default=max(rates.values()))
    if resources.tensor_core == "mma" and target.backend == "cuda" and target.capability[0] == 9:
        rate *= MMA_SYNC_SHARE_OF_PEAK
    return rate / (target.multiprocessors * clock)
