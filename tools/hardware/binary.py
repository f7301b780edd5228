"""Reads a compiled kernel's resources from its ELF file, PTX, or AMD assembly, without a
disassembler.

Layout of cubins: `.nv.info` records (format byte, attribute byte, 16-bit size, then for format 4
that many bytes), attribute numbers as printed by cuobjdump and nvdisasm (EIATTR_*). The tests
compare the results with the bundled cuobjdump.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_SIZED = 4
"""Record format with 16-bit size and a body; the others hold their value in those 16 bits."""
_FRAME_SIZE = 0x11
_REGISTERS = 0x2F
_MAX_STACK_SIZE = 0x23
_NO_BITS = 8


@dataclass(frozen=True)
class KernelUsage:
    """Hardware resources used by a compiled kernel."""

    registers: int | None
    spills: int | None
    """Bytes of local memory per thread (LOCAL_SIZE_BYTES of the driver)."""
    stack: int | None
    """Bytes a thread, calls included."""
    shared: int
    """Static shared memory per block, in bytes."""


@dataclass(frozen=True)
class _Section:
    name: str
    kind: int
    info: int
    data: bytes
    size: int


def read_cubin(data: bytes, kernel: str) -> KernelUsage:
    """Reads the resources of a kernel from a cubin. Raises ValueError if the data is no ELF file
    with this kernel.
    """
    sections = {s.name: s for s in _sections(data)}
    text = sections.get(f".text.{kernel}")
    if text is None:
        raise ValueError(f"no kernel {kernel} in the binary")
    index = _symbol_index(sections, kernel)
    attributes = (
        dict(_per_symbol(sections[".nv.info"].data, index)) if ".nv.info" in sections else {}
    )
    local = attributes.get(_FRAME_SIZE, 0)
    shared = sections.get(f".nv.shared.{kernel}")
    return KernelUsage(
        registers=attributes.get(_REGISTERS, text.info >> 24),
        spills=local,
        stack=max(local, attributes.get(_MAX_STACK_SIZE, 0)),
        shared=shared.size if shared else 0,
    )


def code_hash(data: bytes) -> str:
    """Returns a SHA-256 (hex) of the executable sections, without debug data, which contains the
    path of the source.

    Data which is no ELF file is hashed as a whole.
    """
    digest = hashlib.sha256()
    try:
        for section in _sections(data):
            if "debug" not in section.name and not section.name.startswith(".note"):
                digest.update(f"{section.name}:{section.size}:".encode() + section.data)
    except (ValueError, struct.error):
        return hashlib.sha256(data).hexdigest()
    return digest.hexdigest()


def _sections(data: bytes) -> Iterator[_Section]:
    if data[:6] != b"\x7fELF\x02\x01":
        raise ValueError("not a 64-bit little-endian ELF file")
    offset, entry, count, names_at = (
        struct.unpack_from("<Q", data, 0x28)[0],
        *struct.unpack_from("<HHH", data, 0x3A),
    )
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, offset + i * entry) for i in range(count)]
    names = headers[names_at][4]
    for name, kind, _flags, _address, start, size, _link, info, *_ in headers:
        text = data[names + name : data.index(b"\0", names + name)].decode()
        yield _Section(
            text, kind, info, b"" if kind == _NO_BITS else data[start : start + size], size
        )


def _symbol_index(sections: dict[str, _Section], kernel: str) -> int | None:
    table, names = sections[".symtab"].data, sections[".strtab"].data
    encoded = kernel.encode()
    for index in range(len(table) // 24):
        (name,) = struct.unpack_from("<I", table, index * 24)
        if names[name : names.index(b"\0", name)] == encoded:
            return index
    return None


def _per_symbol(data: bytes, symbol: int | None) -> Iterator[tuple[int, int]]:
    """Yields attribute and value of the records of a symbol."""
    at = 0
    while at + 4 <= len(data):
        layout, attribute, size = struct.unpack_from("<BBH", data, at)
        at += 4
        if layout != _SIZED:
            continue
        if size == 8 and struct.unpack_from("<I", data, at)[0] == symbol:
            yield attribute, struct.unpack_from("<I", data, at + 4)[0]
        at += size


def read_amdgcn(text: str) -> KernelUsage:
    """Reads the resources from the metadata at the end of the assembly (LLVM AMDGPU usage, code object v5)."""

    def number(key: str) -> int | None:
        match = re.search(rf"^\s*\.{key}:\s*(\d+)", text, re.MULTILINE)
        return int(match[1]) if match else None

    vector, accumulate = number("vgpr_count"), number("agpr_count")
    private = number("private_segment_fixed_size")
    return KernelUsage(
        registers=None if vector is None else max(vector, accumulate or 0),
        spills=private,
        stack=private,
        shared=number("group_segment_fixed_size") or 0,
    )
