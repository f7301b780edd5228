"""Resources of a compiled kernel, and whether the target's multiprocessor has enough."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernelwright.tools.compiling.instructions import read_instructions
from kernelwright.tools.hardware.binary import KernelUsage, code_hash, read_amdgcn, read_cubin
from kernelwright.tools.hardware.targets import Target, occupancy
from kernelwright.tools.report import KernelResources, clean_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from triton.compiler import ASTSource, CompiledKernel

REPORTED_OPTIONS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "maxnreg",
    "waves_per_eu",
    "matrix_instr_nonkdim",
    "kpack",
)
"""Options of a launch reported beside the constexprs."""
TENSOR_MEMORY_COLUMNS = 512
"""Columns of a multiprocessor's tensor memory (PTX ISA, tcgen05)."""


def describe(compiled: CompiledKernel, target: Target, seconds: float) -> KernelResources:
    """Describes the resources of a compiled kernel. compiled: Triton's CompiledKernel. seconds:
    compile time.
    """
    metadata = compiled.metadata
    usage, read = (
        read_compiled(compiled.asm, metadata.name, target),
        read_instructions(compiled.asm),
    )
    shared = int(metadata.shared or 0)
    full, limit = occupancy(usage.registers or 0, shared, metadata.num_warps, target)
    return KernelResources(
        name=metadata.name, hash=code_hash(compiled.kernel), config=_config(compiled),
        signature=_signature(compiled.src),
        registers=usage.registers,
        spills=usage.spills, stack=usage.stack, shared=shared, warps=metadata.num_warps, occupancy=full,
        occupancy_limit=limit,
        tensor_core=read.tensor_core, mma_types=read.mma_types, vector_bits=read.vector_bits,
        approximate=read.approximate, seconds=seconds,
    )  # fmt: skip


def read_compiled(asm: Mapping[str, Any], name: str, target: Target) -> KernelUsage:
    """Registers, spills and stack: from the ELF for NVIDIA, from the assembly for AMD. Raises ValueError."""
    return (
        read_cubin(asm["cubin"], name) if target.backend == "cuda" else read_amdgcn(asm["amdgcn"])
    )


def why_too_large(compiled: CompiledKernel, resources: KernelResources, target: Target) -> str:
    """Returns why the driver would refuse to load a kernel, in one line; empty if it would load."""
    metadata = compiled.metadata
    threads = metadata.num_warps * target.warp_size
    requirements = (
        (int(metadata.shared or 0), target.shared_per_block, "bytes of shared memory"),
        (
            int(getattr(metadata, "tmem_size", 0) or 0),
            TENSOR_MEMORY_COLUMNS,
            "bytes of tensor memory",
        ),
        (threads, max_threads(resources.registers or 0, target), "threads"),
    )
    over = next(
        ((needed, limit, resource) for needed, limit, resource in requirements if needed > limit),
        None,
    )
    if over is None:
        return ""
    needed, limit, resource = over
    return (
        f"kernel {metadata.name} needs {needed} {resource}, {target.name} has {limit}: smaller "
        "blocks or fewer stages help"
    )


def max_threads(registers: int, target: Target) -> int:
    """Returns the number of threads of the largest block for this register count."""
    warps = target.threads_per_block // target.warp_size
    while registers and warps > 1 and not occupancy(registers, 0, warps, target)[0]:
        warps -= 1
    return warps * target.warp_size


def _config(compiled: CompiledKernel) -> dict[str, Any]:
    options = {
        n: getattr(compiled.metadata, n)
        for n in REPORTED_OPTIONS
        if getattr(compiled.metadata, n, None) is not None
    }
    return _constants(compiled.src) | options


def _constants(source: ASTSource) -> dict[str, Any]:
    """Constexprs by parameter name, JSON-safe."""
    names = source.fn.arg_names
    constants: dict[str, Any] = {}
    for path, value in source.constants.items():
        if path and isinstance(path[0], int) and path[0] < len(names):
            constants[names[path[0]] + "".join(f".{p}" for p in path[1:])] = _plain_value(value)
    return constants


def _plain_value(value: object) -> Any:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if value is None or isinstance(value, bool | int | str):
        return value
    return clean_text(getattr(value, "__name__", None) or value, 80)


def _signature(source: ASTSource) -> dict[str, str]:
    """Returns types by parameter, with `:16` for multiples of 16."""
    names = list(source.signature)
    aligned = {
        names[path[0]]
        for path, attributes in source.attrs.items()
        if len(path) == 1 and ["tt.divisibility", 16] in [list(a) for a in attributes]
    }
    return {
        n: clean_text(t, 120) + (":16" if n in aligned else "") for n, t in source.signature.items()
    }
