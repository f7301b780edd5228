"""Values of a candidate's offline compilation: its kernels, their resources, and the operators of
its host code.

Nothing imports torch.
"""

from __future__ import annotations

from typing import Any

from kernelwright.tools.faults import Failure, Number, Value


class KernelResources(Value):
    """Resources of a compiled specialisation of a kernel."""

    name: str
    hash: str = ""
    """SHA-256 of the binary, or of the PTX without a binary, as hex."""
    config: dict[str, Any] = {}
    """Constexprs and options of this specialisation (num_warps, num_stages, BLOCK ...)."""
    signature: dict[str, str] = {}
    grid: tuple[int, int, int] | None = None
    launches: int = 0
    registers: int | None = None
    """Registers per thread."""
    spills: int | None = None
    """Bytes a thread of local memory."""
    shared: int | None = None
    """Bytes a block, static and dynamic."""
    stack: int | None = None
    """Stack per thread, in bytes."""
    warps: int | None = None
    occupancy: Number | None = None
    """Resident warps over the most the multiprocessor holds, 0 to 1."""
    occupancy_limit: str = ""
    """Resource limiting the occupancy: registers, shared, warps or blocks."""
    tensor_core: str = ""
    """Kind of tensor-core instructions: wgmma, mma, tcgen05, mfma; empty without any."""
    mma_types: tuple[str, ...] = ()
    """Operand types of the tensor-core instructions: tf32, bf16, f16, e4m3 ..."""
    vector_bits: int | None = None
    """Widest global load in bits."""
    approximate: tuple[str, ...] = ()
    """Approximate instructions seen (ex2.approx, tanh.approx ...)."""
    seconds: Number = 0.0
    autotuned: bool = False


class Census(Value):
    """Calls of the host code besides launches: names to counts."""

    launches: dict[str, int] = {}
    """Own kernels launched, by exact name."""
    compute_ops: dict[str, int] = {}
    """Computing aten operators (`aten.mm.default`), which `strict` refuses."""
    layout_ops: dict[str, int] = {}
    """Allocation, views and layout copies."""
    host_reads: dict[str, int] = {}
    """Tensor contents read by the host: item, tolist, numpy, cpu."""
    foreign_kernels: dict[str, int] = {}
    """GPU kernels in the profile other than the candidate's."""
    threads: int = 0
    """Threads started by the candidate."""


class CompileResult(Value):
    """Offline compilation of every launch for a target."""

    target: str
    """Compile target, such as sm_90 or gfx942."""
    failure: Failure | None = None
    kernels: tuple[KernelResources, ...] = ()
    census: Census = Census()
    tensors: str = ""
    """Tensors of the host code's run: fake (full shapes) or cpu (reduced shapes)."""
    mode: str = ""
    """Compilation mode: jit (true specialisation) or plain (triton.compile as fallback, with its
    gaps in `notes`).
    """
    notes: tuple[str, ...] = ()
    seconds: Number = 0.0

    @property
    def passed(self) -> bool:
        """Whether there was no failure."""
        return self.failure is None
