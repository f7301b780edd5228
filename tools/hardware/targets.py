"""Limits of the targets, and the occupancy of a kernel on them.

Sources: CUDA C++ Programming Guide 13.0, section "Compute Capabilities", tables "Technical
Specifications per Compute Capability"; CUDA Occupancy Calculator (allocation granularity); AMD
Instinct MI300 CDNA3 ISA (May 2024), sections 1 and 3.6.
"""

from __future__ import annotations

import re
from typing import Any

from kernelwright.tools.report import Value


class Target(Value):
    """Limits of a GPU architecture."""

    name: str
    """Name such as sm_90 or gfx942."""
    backend: str
    """cuda or hip, as triton names them."""
    arch: int | str
    """Architecture as in triton's GPUTarget: 90, "gfx942"."""
    title: str
    """A GPU of this kind."""
    warp_size: int
    shared_per_block: int
    """Most bytes a block may ask for (opt-in, dynamic and static together)."""
    shared_per_multiprocessor: int
    shared_reserved: int
    """Bytes reserved by the system from each block's share."""
    shared_unit: int
    """Bytes: shared memory is given out in these."""
    registers: int
    """32-bit registers per multiprocessor (four times the file of a SIMD on gfx942)."""
    registers_per_thread: int
    register_unit: int
    """Registers are given to a warp in multiples of this."""
    threads: int
    """Resident on a multiprocessor at most."""
    warps: int
    blocks: int
    threads_per_block: int = 1024
    multiprocessors: int
    """Number of multiprocessors of the GPU in `title`, reported to host code."""
    memory: int
    """Bytes of the GPU in `title`."""
    l2: int

    @property
    def capability(self) -> tuple[int, int]:
        """Returns the capability: (9, 0) for sm_90; (9, 4) for gfx942, as torch on ROCm reports."""
        return divmod(self.arch, 10) if isinstance(self.arch, int) else (9, 4)

    def gpu_target(self) -> Any:
        """triton's GPUTarget of this architecture."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget(self.backend, self.arch, self.warp_size)


def _nvidia(
    arch: int,
    title: str,
    shared: int,
    per_multiprocessor: int,
    warps: int,
    blocks: int,
    gpu: tuple[int, int, int],
) -> Target:
    """`gpu`: multiprocessors, GiB of memory, MiB of L2."""
    return Target(
        name=f"sm_{arch}",
        backend="cuda",
        arch=arch,
        title=title,
        warp_size=32,
        shared_per_block=shared * 1024,
        shared_per_multiprocessor=per_multiprocessor * 1024,
        shared_reserved=1024,
        shared_unit=128,
        registers=65536,
        registers_per_thread=255,
        register_unit=256,
        threads=warps * 32,
        warps=warps,
        blocks=blocks,
        multiprocessors=gpu[0],
        memory=gpu[1] << 30,
        l2=gpu[2] << 20,
    )


TARGETS: dict[str, Target] = {
    t.name: t
    for t in (
        _nvidia(80, "NVIDIA A100", 163, 164, 64, 32, (108, 80, 40)),
        _nvidia(86, "NVIDIA RTX A6000", 99, 100, 48, 16, (84, 48, 6)),
        _nvidia(89, "NVIDIA RTX 4090", 99, 100, 48, 24, (128, 24, 72)),
        _nvidia(90, "NVIDIA H200", 227, 228, 64, 32, (132, 141, 50)),
        _nvidia(100, "NVIDIA B200", 227, 228, 64, 32, (148, 180, 126)),
        _nvidia(120, "NVIDIA RTX 5090", 99, 100, 48, 24, (170, 32, 96)),
        Target(
            name="gfx942", backend="hip", arch="gfx942", title="AMD Instinct MI300X", warp_size=64,
            shared_per_block=65536,
            shared_per_multiprocessor=65536, shared_reserved=0, shared_unit=512, registers=131072,
            registers_per_thread=512, register_unit=512,
            threads=2048, warps=32, blocks=32, multiprocessors=304, memory=192 << 30, l2=4 << 20,
        ),
    )
}  # fmt: skip

DEFAULT_TARGET = "sm_90"

_NAMES = {
    "a100": 80, "a30": 80, "ampere": 80, "a10": 86, "a10g": 86, "a40": 86, "a6000": 86, "rtxa6000": 86, "rtx3090": 86,
    "3090": 86,
    "rtx3080": 86, "l4": 89, "l40": 89, "l40s": 89, "rtx4090": 89, "4090": 89, "rtx4080": 89, "rtx6000ada": 89,
    "ada": 89, "h100": 90,
    "h200": 90, "h800": 90, "h20": 90, "gh200": 90, "hopper": 90, "b100": 100, "b200": 100, "gb200": 100,
    "blackwell": 100, "rtx5090": 120,
    "5090": 120, "rtx5080": 120, "rtxpro6000": 120,
}  # fmt: skip
_AMD_NAMES = {"mi300", "mi300x", "mi300a", "mi325x", "gfx942", "cdna3"}


def parse_target(name: str) -> Target:
    """Parses a target such as "sm_90", "90", "9.0", "sm90a", "h200", "NVIDIA H100 80GB HBM3",
    "mi300x", "gfx942".

    Raises: ValueError, with a list of the known targets.
    """
    words = re.findall(r"[a-z0-9.]+", name.lower().replace("_", ""))
    for length in (3, 2, 1):  # `RTX PRO 6000 Blackwell` is not any Blackwell
        for start in range(len(words) - length + 1):
            if (target := _named("".join(words[start : start + length]))) is not None:
                return target
    raise ValueError(
        f"unknown target {name!r}: known are {', '.join(TARGETS)}, and GPUs such as a100, rtx4090, h200, b200, mi300x"
    )


def _named(word: str) -> Target | None:
    """Returns the target named by a single word: an architecture, or a card, also with its form
    (`h100pcie`).
    """
    if word in _AMD_NAMES:
        return TARGETS["gfx942"]
    if match := re.fullmatch(r"(?:sm|cuda|compute)?(\d{1,2})\.?(\d)[af]?", word):
        return TARGETS.get(f"sm_{match[1]}{match[2]}")
    arch = _NAMES.get(re.sub(r"(sxm\d?|pcie|nvl)$", "", word))
    return None if arch is None else TARGETS[f"sm_{arch}"]


def occupancy(registers: int, shared: int, warps: int, target: Target) -> tuple[float, str]:
    """Returns the share of resident warps (0 to 1), and the limiting resource: warps, blocks,
    registers or shared.

    `registers` per thread, `shared` bytes per block, `warps` per block. 0.0 if not a single block
    fits.
    """
    if warps < 1:
        raise ValueError(f"a block has at least one warp, not {warps}")
    fits = {"warps": target.warps // warps, "blocks": target.blocks}
    if registers:
        fits["registers"] = _blocks_by_registers(registers, warps, target)
    if shared:
        shared_bytes = _round_up(shared + target.shared_reserved, target.shared_unit)
        fits["shared"] = (
            target.shared_per_multiprocessor // shared_bytes
            if shared <= target.shared_per_block
            else 0
        )
    blocks, _, limit = min((count, order, name) for order, (name, count) in enumerate(fits.items()))
    return min(blocks * warps / target.warps, 1.0), limit


def _blocks_by_registers(registers: int, warps: int, target: Target) -> int:
    """Each of a multiprocessor's four partitions gives out its own registers, a warp at a time."""
    if registers > target.registers_per_thread:
        return 0
    each = _round_up(registers * target.warp_size, target.register_unit)
    return (target.registers // 4 // each) * 4 // warps


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
