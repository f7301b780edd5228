"""Scores one configuration by compiling alone: it is traced, compiled for the target, and rated by its resources and a
cost model.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

from kernelwright.tools.hardware.targets import Target, parse_target
from kernelwright.tools.parsing import parse_module
from kernelwright.tools.report import KernelResources, Number, Value
from kernelwright.tools.tracing.client import TracedCandidate
from kernelwright.tools.tuning.instruction_counts import InstructionCounts, count_instructions
from kernelwright.tools.tuning.kernel_text.kernel_syntax import KernelSyntax, kernels_of
from kernelwright.tools.tuning.launch_facts import LaunchFacts, launches_at
from kernelwright.tools.tuning.loop_trips import trips_of
from kernelwright.tools.tuning.ranking_model import estimate_cycles

TraceText = Callable[[str], TracedCandidate]
CompileTrace = Callable[[TracedCandidate, str], Mapping[str, Any]]
"""Kernels of a trace by key, with their PTX; the second argument is the text."""


class KernelScore(Value):
    """The score of one launch of one configuration."""

    kernel: str
    grid: tuple[int, int, int] = (1, 1, 1)
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None
    occupancy: Number | None = None
    occupancy_limit: str = ""
    instructions: Number = 0.0
    """Instructions that one thread issues; those of a loop count for every iteration."""
    tensor_core: str = ""
    bound: str = ""
    """The resource that bounds the launch by the model: issue, tensor, memory or latency."""
    cycles: Number = 0.0


class CompileScore(Value):
    """The score of one configuration. It is deterministic: the same text gives the same score."""

    failure: str = ""
    """The reason why it cannot be launched, one line; empty where it can."""
    kernels: tuple[KernelScore, ...] = ()
    cycles: Number | None = None
    """The model's figure, all launches of one call: for comparing configurations, no time. None where it failed."""
    identity: str = ""
    """Identifies what is launched: configurations with the same one are the same program."""

    @property
    def passed(self) -> bool:
        """Whether every kernel compiles with this configuration."""
        return not self.failure

    @property
    def bound(self) -> str:
        """The bound of the launch that takes longest by the model."""
        longest = max(self.kernels, key=lambda kernel: kernel.cycles, default=None)
        return longest.bound if longest is not None else ""


def score_by_compiling(
    source: str, trace: TraceText, compile_kernels: CompileTrace, target: str
) -> CompileScore:
    """Scores a text by what its compilation says. Never raises for what a candidate does."""
    found = trace(source)
    launches = launches_at(found.traced)
    if not launches:
        failure = next((f for f in found.failures if f is not None), None)
        return CompileScore(failure=_line(failure.message if failure else "no kernel is launched"))
    compiled = compile_kernels(found, source)
    for launch in launches:
        one = compiled.get(launch.kernel)
        if one is None or one.failure is not None:
            return CompileScore(
                failure=_line(one.failure.message if one is not None else "it was not compiled")
            )
    syntax, kind = kernels_of(parse_module(source)), parse_target(target)
    kernels = tuple(_scored(launch, compiled[launch.kernel], syntax, kind) for launch in launches)
    told = [(compiled[one.kernel].key, one.grid) for one in launches]
    cycles = sum(kernel.cycles for kernel in kernels)
    if not math.isfinite(cycles):
        return CompileScore(failure="not one block fits a multiprocessor", kernels=kernels)
    return CompileScore(
        kernels=kernels,
        cycles=cycles,
        identity=hashlib.sha256(repr(told).encode()).hexdigest()[:24],
    )


def _scored(
    launch: LaunchFacts, compiled: Any, syntax: dict[str, KernelSyntax], target: Target
) -> KernelScore:
    resources: KernelResources = compiled.resources
    ptx = compiled.texts.get("ptx", "")
    kernel = syntax.get(launch.function)
    trips = trips_of(kernel.node, launch) if kernel is not None else []
    counts = count_instructions(ptx, trips) if ptx else InstructionCounts()
    binding = estimate_cycles(launch, resources, counts, target)
    return KernelScore(
        kernel=launch.function, grid=launch.grid, registers=resources.registers, spills=resources.spills,
        shared=resources.shared, occupancy=resources.occupancy, occupancy_limit=resources.occupancy_limit,
        instructions=counts.issued, tensor_core=resources.tensor_core, bound=binding.resource, cycles=binding.cycles,
    )  # fmt: skip


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
