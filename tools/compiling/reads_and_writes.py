"""Determines the arguments which a kernel reads and writes, from its text in Triton's IR.

Each value is mapped to the arguments from which its addresses may come: results inherit the
sources of their operands, loops and conditions those of the yielded values. A loaded value has no
source, except a loaded pointer, which may point anywhere; so may values of unsupported
operations.

Example: in `%5 = tt.addptr %arg0, %4` and `tt.store %5, %7` the value %5 has the source %arg0,
which is written.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field

_ARGUMENT = re.compile(r"(%\w+): !tt\.(?:ptr|tensordesc)")
_RESULTS = re.compile(r"^(%\w+)(?::(\d+))?\s*=\s*(.*)$")
_VALUE = re.compile(r"%\w+(?:#\d+)?")
_LOCATION = re.compile(r"\s+loc\(.*$")
_ITERATED = re.compile(r"iter_args\(([^)]*)\)")
_INITIAL = re.compile(r"(%\w+) = (%\w+(?:#\d+)?)")
_BLOCK_OF_ADDRESSES = re.compile(r"^\^\w+\(.*!tt\.(?:ptr|tensordesc)")
_TO_POINTERS = re.compile(r"tt\.load\b.*!tt\.ptr<!tt\.ptr|tt\.int_to_ptr\b")
_READS = ("load", "gather")
_WRITES = ("store", "scatter")
_BOTH = ("tt.call", "asm", "extern", "atomic", "descriptor_reduce", "copy")
ANYWHERE = "anywhere"
_MAX_PASSES = 8


@dataclass
class _Region:
    """Results and iteration arguments of a loop or a condition, by the index of the yielded
    values.
    """

    results: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)


class _ArgumentUses:
    """Sources of every value of a kernel, propagated until nothing changes."""

    def __init__(self, ttir: str) -> None:
        self._lines = [_LOCATION.sub("", line).strip() for line in ttir.splitlines()]
        self._from: defaultdict[str, set[str]] = defaultdict(set)
        self.read = set[str]()
        self.written = set[str]()
        for _ in range(_MAX_PASSES):
            before = sum(map(len, self._from.values()))
            self._pass(ttir)
            if sum(map(len, self._from.values())) == before:
                return
        self._lost()

    def _lost(self) -> None:
        self.read.add(ANYWHERE)
        self.written.add(ANYWHERE)

    def _pass(self, ttir: str) -> None:
        for name in _ARGUMENT.findall(ttir):
            self._from[name].add(name)
        regions = [_Region()]
        for line in self._lines:
            if "scf.while" in line or _BLOCK_OF_ADDRESSES.match(line):
                self._lost()
            if line.startswith("}") and not line.endswith("{") and len(regions) > 1:
                regions.pop()
            opened = self._line(line, regions[-1])
            if line.endswith("{") and not line.startswith("}"):
                regions.append(opened)

    def _line(self, line: str, region: _Region) -> _Region:
        """Processes a line; returns the region which it opens, else an empty region."""
        if line.startswith(("tt.func", "module", "#")):
            return _Region()
        match = _RESULTS.match(line)
        name, count, words = match.groups() if match else ("", None, line)
        results = [f"{name}#{n}" for n in range(int(count))] if count else [name] if name else []
        operands = _VALUE.findall(words)
        if words.startswith("scf.yield"):
            self._yield(operands, region)
            return _Region()
        if "scf.for" in words or "scf.if" in words:
            return self._begun(words, results)
        self._access(words, operands)
        if not words.startswith("tt.load") and "descriptor_load" not in words:
            self._hand_on(operands, results)
        if _TO_POINTERS.search(words) and not any(self._from[r] for r in results):
            self._from[name].add(ANYWHERE)
        return _Region()

    def _begun(self, words: str, results: list[str]) -> _Region:
        iterated = _ITERATED.search(words)
        pairs = _INITIAL.findall(iterated.group(1)) if iterated else []
        for (argument, initial), result in zip(pairs, results, strict=False):
            self._from[argument] |= self._from[initial]
            self._from[result] |= self._from[initial]
        return _Region(results, [argument for argument, _ in pairs])

    def _yield(self, operands: list[str], region: _Region) -> None:
        for handed in (region.results, region.arguments):
            for name, operand in zip(handed, operands, strict=False):
                self._from[name] |= self._from[operand]

    def _access(self, words: str, operands: list[str]) -> None:
        operation = words.partition("%")[0]
        if any(kind in operation for kind in _BOTH):
            sources = {source for operand in operands for source in self._from[operand]}
            self.read |= sources
            self.written |= sources
        elif operands and any(kind in operation for kind in _READS):
            self.read |= self._from[operands[0]]
        elif operands and any(kind in operation for kind in _WRITES):
            self.written |= self._from[operands[0]]

    def _hand_on(self, operands: list[str], results: list[str]) -> None:
        for result in results:
            for operand in operands:
                self._from[result] |= self._from[operand]


def writes_what_it_reads(ttir: str) -> bool:
    """Returns whether a kernel in Triton's IR (`ttir`) may read memory which it writes through
    the same argument.
    """
    reader = _ArgumentUses(ttir)
    if ANYWHERE in reader.read | reader.written:
        return bool(reader.read and reader.written)
    return not reader.read.isdisjoint(reader.written)
