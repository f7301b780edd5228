"""What the offline compile of a candidate found, as values: its kernels, their resources, and what its host code did.

Nothing imports torch.
"""

from __future__ import annotations

from typing import Any

from kernelwright.tools.faults import Failure, Number, Value


class KernelResources(Value):
    """One compiled specialisation of one kernel."""

    name: str
    hash: str = ""
    """The SHA-256 of the binary, or of the PTX where there is no binary, as hex."""
    config: dict[str, Any] = {}
    """Constexprs and options of this specialisation (num_warps, num_stages, BLOCK ...)."""
    signature: dict[str, str] = {}
    grid: tuple[int, int, int] | None = None
    launches: int = 0
    registers: int | None = None
    """A thread."""
    spills: int | None = None
    """Bytes a thread of local memory."""
    shared: int | None = None
    """Bytes a block, static and dynamic."""
    stack: int | None = None
    """Bytes a thread."""
    warps: int | None = None
    occupancy: Number | None = None
    """Resident warps over the most the multiprocessor holds, 0 to 1."""
    occupancy_limit: str = ""
    """What holds it down: registers, shared, warps or blocks."""
    tensor_core: str = ""
    """wgmma, mma, tcgen05, mfma; empty where none."""
    mma_types: tuple[str, ...] = ()
    """Operand types of the tensor-core instructions: tf32, bf16, f16, e4m3 ..."""
    vector_bits: int | None = None
    """Widest global load in bits."""
    approximate: tuple[str, ...] = ()
    """Approximate instructions seen (ex2.approx, tanh.approx ...)."""
    seconds: Number = 0.0
    autotuned: bool = False


class Census(Value):
    """What the host code did besides launching: names to counts."""

    launches: dict[str, int] = {}
    """Own kernels launched, by exact name."""
    compute_ops: dict[str, int] = {}
    """aten operators that compute (`aten.mm.default`): what `strict` refuses."""
    layout_ops: dict[str, int] = {}
    """Allocation, views and layout copies."""
    host_reads: dict[str, int] = {}
    """Tensor contents read by the host: item, tolist, numpy, cpu."""
    foreign_kernels: dict[str, int] = {}
    """GPU kernels seen by the profiler that are not the candidate's own."""
    threads: int = 0
    """Threads that the candidate started."""


class CompileResult(Value):
    """The offline compile of every launch for one target."""

    target: str
    """sm_90 ..., gfx942."""
    failure: Failure | None = None
    kernels: tuple[KernelResources, ...] = ()
    census: Census = Census()
    tensors: str = ""
    """What the host code ran on: fake (full shapes) or cpu (shrunk shapes)."""
    mode: str = ""
    """jit (true specialisation) or plain (triton.compile fallback: what it may miss is in notes)."""
    notes: tuple[str, ...] = ()
    seconds: Number = 0.0

    @property
    def passed(self) -> bool:
        """Whether there was no failure."""
        return self.failure is None
