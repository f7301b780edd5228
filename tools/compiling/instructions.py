"""Reads properties from a kernel's instructions (PTX, TTGIR, AMD assembly): tensor cores and
their operand types, the widest load, approximate functions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_TYPES = {
    "f16",
    "bf16",
    "tf32",
    "f32",
    "f64",
    "s8",
    "u8",
    "s4",
    "u4",
    "s32",
    "b1",
    "e4m3",
    "e5m2",
    "e3m2",
    "e2m3",
    "e2m1",
    "f16x2",
}
_MMA = re.compile(r"^\s*(?:@%p\d+\s+)?((?:wgmma\.mma_async|mma)\.[\w.:]+)", re.MULTILINE)
_TCGEN = re.compile(r"\b(tcgen05\.mma\.[\w.:]+)")
_TTGIR_OPERANDS = re.compile(
    r"tc_gen5_mma(?:_scaled)? .*?:\s*!ttg\.memdesc<[\dx]*x(\w+),.*?!ttg\.memdesc<[\dx]*x(\w+),"
)
_MFMA = re.compile(r"\bv_mfma_\w+?_\d+x\d+x\d+(?:_\d+b)?_?(\w+)")
_LOAD = re.compile(r"\bld\.global(?:\.[\w:]+)*?(?:\.v(\d))?\.[buf](\d+)\b")
_ASYNC = re.compile(
    r"\bcp\.async\.c[ag]\.shared\.global[\w.:]*\s*\[[^\]]*\]\s*,\s*\[[^\]]*\]\s*,\s*(0x[0-9a-f]+|\d+)"
)
_AMD_LOAD = re.compile(r"\b(?:global|buffer|flat)_load_(dwordx?(\d)?|[us]?short|[us]?byte|b(\d+))")
_APPROXIMATE = re.compile(
    r"\b(?:(?:ex2|lg2|sin|cos|tanh|rcp|rsqrt|sqrt|div)\.approx(?:\.ftz)?\.\w+|div\.full(?:\.ftz)?\.\w+)"
)
_AMD_APPROXIMATE = re.compile(r"\bv_(?:exp|log|sin|cos|rcp|rsq|sqrt)_f(?:16|32)\b")
_TTGIR_TYPES = {"f8E4M3FN": "e4m3", "f8E5M2": "e5m2", "i8": "s8", "f4E2M1FN": "e2m1"}


@dataclass(frozen=True)
class Instructions:
    """Properties of a binary's instructions: tensor cores, widest load in bits, approximate
    arithmetic.
    """

    tensor_core: str = ""
    mma_types: tuple[str, ...] = ()
    vector_bits: int | None = None
    approximate: tuple[str, ...] = ()


def read_instructions(asm: Mapping[str, str | bytes]) -> Instructions:
    """Reads the instructions of a compiled kernel. asm: `CompiledKernel.asm`, with ptx (and
    ttgir) or amdgcn.
    """
    if isinstance(ptx := asm.get("ptx"), str):
        return _read_ptx(ptx, str(asm.get("ttgir", "")))
    if isinstance(amd := asm.get("amdgcn"), str):
        return _read_amd(amd)
    return Instructions()


def _read_ptx(ptx: str, ttgir: str) -> Instructions:
    kinds: set[str] = set()
    types: set[str] = set()
    for match in _MMA.finditer(ptx):
        kinds.add("wgmma" if match[1].startswith("wgmma") else "mma")
        types |= set(_operand_types(match[1]))
    if _TCGEN.search(ptx):
        kinds.add("tcgen05")
        types |= {
            _TTGIR_TYPES.get(name, _as_tf32(name))
            for pair in _TTGIR_OPERANDS.findall(ttgir)
            for name in pair
        }
    kind = next((k for k in ("tcgen05", "wgmma", "mma") if k in kinds), "")
    return Instructions(kind, tuple(sorted(types)), _widest(ptx), _names(_APPROXIMATE, ptx))


def _as_tf32(name: str) -> str:
    """tcgen05 multiplies float32 operands as tf32: there is no other kind for them (PTX ISA, tcgen05.mma)."""
    return "tf32" if name == "f32" else name


def _operand_types(instruction: str) -> list[str]:
    """A and B of `mma...{.d}.a.b{.c}`: of three types the last two, of four those in the middle."""
    parts = [p for p in instruction.split(".") if p in _TYPES]
    return parts[1:3] if len(parts) >= 3 else parts


def _widest(ptx: str) -> int | None:
    loads = [int(count or 1) * int(bits) for count, bits in _LOAD.findall(ptx)]
    loads += [8 * int(size, 0) for size in _ASYNC.findall(ptx)]
    return max(loads, default=None)


def _read_amd(text: str) -> Instructions:
    types = {name.removesuffix("_1k") for name in _MFMA.findall(text)}
    bits = [_amd_bits(m) for m in _AMD_LOAD.finditer(text)]
    split = {part for name in types for part in name.split("_") if part}
    return Instructions(
        "mfma" if types else "",
        tuple(sorted(split)),
        max(bits, default=None),
        _names(_AMD_APPROXIMATE, text),
    )


def _amd_bits(match: re.Match[str]) -> int:
    if match[3]:
        return int(match[3])
    if match[1].startswith("dword"):
        return 32 * int(match[2] or 1)
    return 16 if "short" in match[1] else 8


def _names(pattern: re.Pattern[str], text: str) -> tuple[str, ...]:
    return tuple(sorted(set(pattern.findall(text))))
