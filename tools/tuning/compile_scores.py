"""Scores a configuration by compiling alone: traces and compiles the text, and rates its
resources by a cost model.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any

from kernelwright.tools.compiling.compiled import Compiled
from kernelwright.tools.hardware.targets import Target, parse_target
from kernelwright.tools.parsing import parse_module
from kernelwright.tools.report import Number, Value
from kernelwright.tools.tracing.client import TracedCandidate
from kernelwright.tools.tuning.instruction_counts import InstructionCounts, count_instructions
from kernelwright.tools.tuning.kernel_text.kernel_syntax import KernelSyntax, kernels_of
from kernelwright.tools.tuning.launch_facts import TracedLaunchFacts, launches_at
from kernelwright.tools.tuning.loop_trips import trips_of
from kernelwright.tools.tuning.ranking_model import estimate_cycles

TraceText = Callable[[str], TracedCandidate]
CompileTrace = Callable[[TracedCandidate, str], Mapping[str, Any]]
"""Kernels of a trace by key, with their PTX; the second argument is the text."""


class KernelScore(Value):
    """Score of a launch of a configuration."""

    kernel: str
    grid: tuple[int, int, int] = (1, 1, 1)
    registers: int | None = None
    spills: int | None = None
    shared: int | None = None
    occupancy: Number | None = None
    occupancy_limit: str = ""
    instructions: Number = 0.0
    """Instructions issued by a thread; instructions in a loop count once per iteration."""
    tensor_core: str = ""
    bound: str = ""
    """Resource bounding the launch in the model: issue, tensor, memory or latency."""
    cycles: Number = 0.0


class CompileScore(Value):
    """Score of a configuration, deterministic in its text."""

    failure: str = ""
    """Reason why the configuration cannot be launched, in one line; empty if launchable."""
    kernels: tuple[KernelScore, ...] = ()
    cycles: Number | None = None
    """Estimated cycles of all launches of a call, for comparing configurations; no time. None for
    a failed configuration.
    """
    identity: str = ""
    """Identity of the launched programs: configurations with equal identities are the same
    program.
    """

    @property
    def passed(self) -> bool:
        """Whether every kernel compiles with this configuration."""
        return not self.failure

    @property
    def bound(self) -> str:
        """Bound of the longest launch in the model."""
        longest = max(self.kernels, key=lambda kernel: kernel.cycles, default=None)
        return longest.bound if longest is not None else ""


def score_by_compiling(
    source: str, trace: TraceText, compile_kernels: CompileTrace, target: str
) -> CompileScore:
    """Scores a text by its compilation. Never raises for errors of a candidate."""
    candidate = trace(source)
    launches = launches_at(candidate.traced)
    if not launches:
        failure = next((f for f in candidate.failures if f is not None), None)
        return CompileScore(failure=_line(failure.message if failure else "no kernel is launched"))
    compiled = compile_kernels(candidate, source)
    for launch in launches:
        binary = compiled.get(launch.kernel)
        if binary is None or binary.failure is not None:
            return CompileScore(
                failure=_line(
                    binary.failure.message if binary is not None else "it was not compiled"
                )
            )
    syntax = kernels_of(parse_module(source))
    kind = parse_target(target)
    kernels = tuple(_scored(launch, compiled[launch.kernel], syntax, kind) for launch in launches)
    keys_and_grids = [(compiled[launch.kernel].key, launch.grid) for launch in launches]
    cycles = sum(kernel.cycles for kernel in kernels)
    if not math.isfinite(cycles):
        return CompileScore(failure="not one block fits a multiprocessor", kernels=kernels)
    return CompileScore(
        kernels=kernels,
        cycles=cycles,
        identity=hashlib.sha256(repr(keys_and_grids).encode()).hexdigest()[:24],
    )


def _scored(
    launch: TracedLaunchFacts,
    compiled: Compiled,
    syntax: dict[str, KernelSyntax],
    target: Target,
) -> KernelScore:
    resources = compiled.resources
    assert resources is not None, "a kernel that compiled has resources"
    ptx = compiled.texts.get("ptx", "")
    kernel = syntax.get(launch.function)
    trips = trips_of(kernel.node, launch) if kernel is not None else []
    counts = count_instructions(ptx, trips) if ptx else InstructionCounts()
    binding = estimate_cycles(launch, resources, counts, target)
    return KernelScore(
        kernel=launch.function,
        grid=launch.grid,
        registers=resources.registers,
        spills=resources.spills,
        shared=resources.shared,
        occupancy=resources.occupancy,
        occupancy_limit=resources.occupancy_limit,
        instructions=counts.issued,
        tensor_core=resources.tensor_core,
        bound=binding.resource,
        cycles=binding.cycles,
    )


def _line(text: str) -> str:
    return " ".join(text.split())[:300]
