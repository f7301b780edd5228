"""What a compiled kernel takes of a multiprocessor, and whether the target has that much."""

from __future__ import annotations

from typing import Any

from kernelwright.tools.compiling.instructions import read_instructions
from kernelwright.tools.hardware.binary import Usage, code_hash, read_amdgcn, read_cubin
from kernelwright.tools.hardware.targets import Target, occupancy
from kernelwright.tools.report import KernelResources, clean_text

OPTIONS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "kpack",
)
"""Options of a launch that are reported beside the constexprs."""
TENSOR_MEMORY_COLUMNS = 512
"""Columns of a multiprocessor's tensor memory (PTX ISA, tcgen05)."""


def describe(made: Any, target: Target, seconds: float) -> KernelResources:
    """made: triton's CompiledKernel. seconds: that compiling took."""
    metadata = made.metadata
    usage, read = read_compiled(made.asm, metadata.name, target), read_instructions(made.asm)
    shared = int(metadata.shared or 0)
    full, limit = occupancy(usage.registers or 0, shared, metadata.num_warps, target)
    return KernelResources(
        name=metadata.name, hash=code_hash(made.kernel), config=_config(made), signature=_signature(made.src),
        registers=usage.registers,
        spills=usage.spills, stack=usage.stack, shared=shared, warps=metadata.num_warps, occupancy=full,
        occupancy_limit=limit,
        tensor_core=read.tensor_core, mma_types=read.mma_types, vector_bits=read.vector_bits,
        approximate=read.approximate, seconds=seconds,
    )  # fmt: skip


def read_compiled(asm: Any, name: str, target: Target) -> Usage:
    """Registers, spills and stack: from the ELF for NVIDIA, from the assembly for AMD. Raises ValueError."""
    return (
        read_cubin(asm["cubin"], name) if target.backend == "cuda" else read_amdgcn(asm["amdgcn"])
    )


def why_too_large(made: Any, resources: KernelResources, target: Target) -> str:
    """Why the driver would refuse to load a kernel, in one line; empty where it would not."""
    metadata = made.metadata
    threads = metadata.num_warps * target.warp_size
    asked = (
        (int(metadata.shared or 0), target.shared_per_block, "bytes of shared memory"),
        (
            int(getattr(metadata, "tmem_size", 0) or 0),
            TENSOR_MEMORY_COLUMNS,
            "bytes of tensor memory",
        ),
        (threads, max_threads(resources.registers or 0, target), "threads"),
    )
    over = next(((needed, limit, what) for needed, limit, what in asked if needed > limit), None)
    if over is None:
        return ""
    needed, limit, what = over
    return (
        f"kernel {metadata.name} needs {needed} {what}, {target.name} has {limit}: smaller "
        "blocks or fewer stages help"
    )


def max_threads(registers: int, target: Target) -> int:
    """Threads of the largest block that the registers allow."""
    warps = target.threads_per_block // target.warp_size
    while registers and warps > 1 and not occupancy(registers, 0, warps, target)[0]:
        warps -= 1
    return warps * target.warp_size


def _config(made: Any) -> dict[str, Any]:
    options = {
        n: getattr(made.metadata, n) for n in OPTIONS if getattr(made.metadata, n, None) is not None
    }
    return _constants(made.src) | options


def _constants(source: Any) -> dict[str, Any]:
    """Constexprs by parameter name, JSON-safe."""
    names = source.fn.arg_names
    found: dict[str, Any] = {}
    for path, value in source.constants.items():
        if path and isinstance(path[0], int) and path[0] < len(names):
            found[names[path[0]] + "".join(f".{p}" for p in path[1:])] = _plain_value(value)
    return found


def _plain_value(value: Any) -> Any:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if value is None or isinstance(value, bool | int | str):
        return value
    return clean_text(getattr(value, "__name__", None) or value, 80)


def _signature(source: Any) -> dict[str, str]:
    """Types by parameter; `:16` where the value is a multiple of 16."""
    names = list(source.signature)
    aligned = {
        names[path[0]]
        for path, attributes in source.attrs.items()
        if len(path) == 1 and ["tt.divisibility", 16] in [list(a) for a in attributes]
    }
    return {
        n: clean_text(t, 120) + (":16" if n in aligned else "") for n, t in source.signature.items()
    }
