"""Notes every compilation and every launch of a candidate: what was compiled with which specialisation, what it uses, how often it was launched."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tools.results import KernelResources, clean_text
from tools.targets import Target, occupancy
from tools.untrusted.binary import code_hash
from tools.untrusted.instructions import read_instructions
from tools.untrusted.offline_driver import read_compiled

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
MOST_KERNELS = 200
"""Specialisations that are reported."""


@dataclass
class Compiled:
    """One specialisation."""

    kernel: Any
    """triton's CompiledKernel."""
    seconds: float
    autotuned: bool
    launches: int = 0
    grid: tuple[int, int, int] | None = None


@dataclass
class Broken:
    """A compilation that raised."""

    name: str
    error: BaseException
    diagnostics: str
    """What LLVM wrote to stderr."""


@dataclass
class Recorder:
    """Of one target's run."""

    target: Target
    tell: Callable[[dict[str, Any]], None]
    compiled: dict[str, Compiled] = field(default_factory=dict)
    broken: list[Broken] = field(default_factory=list)
    launches: Counter[str] = field(default_factory=Counter)
    tuning: bool = False
    tuned_away: list[str] = field(default_factory=list)

    def compiling(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """`triton.compile`, watched."""

        def compile(src: Any, *args: Any, **kwargs: Any) -> Any:
            name = getattr(src, "name", str(src))
            self.tell({"stage": "compile", "kernel": clean_text(name, 120), "config": _constants(src)})
            start = time.monotonic()
            with captured_errors() as said:
                try:
                    made = original(src, *args, **kwargs)
                except BaseException as error:
                    self.broken.append(Broken(name, error, said()))
                    raise
            self.tell({"stage": "forward"})
            self.compiled.setdefault(made.hash, Compiled(made, time.monotonic() - start, self.tuning))
            return made

        return compile

    def benchmarked(self, call: Callable[[], Any]) -> None:
        """One autotune config (or a benchmark of the candidate's own): it is compiled; its launches do not count."""
        before, self.tuning = self.tuning, True
        try:
            call()
        except BaseException as error:
            self.tuned_away.append(clean_text(f"{type(error).__name__}: {error}".replace("\n", " "), 200))
            raise
        finally:
            self.tuning = before

    def launched(self, metadata: Any, grid: tuple[int, int, int], args: tuple[Any, ...]) -> None:
        found = self.compiled.get(metadata.hash)
        if found is not None and found.grid is None:
            found.grid = grid
        if not self.tuning and min(grid) > 0:
            self.launches[metadata.name] += 1
            if found is not None:
                found.launches += 1

    def resources(self) -> list[KernelResources]:
        return [describe(c, self.target) for c in list(self.compiled.values())[:MOST_KERNELS]]


def describe(compiled: Compiled, target: Target) -> KernelResources:
    """What one compiled kernel uses."""
    kernel = compiled.kernel
    metadata, asm = kernel.metadata, kernel.asm
    usage, read = read_compiled(asm, metadata.name, target), read_instructions(asm)
    shared = int(metadata.shared or 0)
    full, limit = occupancy(usage.registers or 0, shared, metadata.num_warps, target)
    return KernelResources(
        name=metadata.name, hash=code_hash(kernel.kernel), config=_config(kernel), signature=_signature(kernel.src), grid=compiled.grid, launches=compiled.launches,
        registers=usage.registers, spills=usage.spills, stack=usage.stack, shared=shared, warps=metadata.num_warps, occupancy=full, occupancy_limit=limit,
        tensor_core=read.tensor_core, mma_types=read.mma_types, vector_bits=read.vector_bits, approximate=read.approximate,
        seconds=compiled.seconds, autotuned=compiled.autotuned,
    )  # fmt: skip


def _config(kernel: Any) -> dict[str, Any]:
    options = {
        name: getattr(kernel.metadata, name) for name in _OPTIONS if getattr(kernel.metadata, name, None) is not None
    }
    return _constants(kernel.src) | options


def _constants(src: Any) -> dict[str, Any]:
    """Constexprs by parameter name, JSON-safe."""
    names = getattr(getattr(src, "fn", None), "arg_names", ())
    found: dict[str, Any] = {}
    for path, value in getattr(src, "constants", {}).items():
        if isinstance(path, tuple) and path and isinstance(path[0], int) and path[0] < len(names):
            name = names[path[0]] + "".join(f".{p}" for p in path[1:])
            found[name] = _plain(value)
    return found


def _plain(value: Any) -> Any:
    value = getattr(value, "value", value) if type(value).__name__ == "constexpr" else value
    if value is None or isinstance(value, bool | int | str):
        return value
    return clean_text(getattr(value, "__name__", None) or value, 80)


def _signature(src: Any) -> dict[str, str]:
    """Types by parameter; `:16` where the value is a multiple of 16."""
    names = list(getattr(src, "signature", {}))
    attributes = getattr(src, "attrs", {}) or {}
    aligned = {
        names[p[0]]
        for p, a in attributes.items()
        if len(p) == 1 and any(x == ["tt.divisibility", 16] for x in map(list, a))
    }
    return {n: clean_text(t, 120) + (":16" if n in aligned else "") for n, t in src.signature.items()}


@contextlib.contextmanager
def captured_errors() -> Iterator[Callable[[], str]]:
    """What is written to stderr inside, by C++ too, as text; it still goes where it would have gone."""
    saved, held = os.dup(2), os.memfd_create("diagnostics")
    os.dup2(held, 2)

    def said() -> str:
        return os.pread(held, 1 << 16, 0).decode("utf-8", "replace")

    try:
        yield said
    finally:
        os.dup2(saved, 2)
        if text := said():
            os.write(2, text.encode())
        os.close(saved)
        os.close(held)


_DIAGNOSTIC = re.compile(
    r'^(?:loc\(")?(?P<file>[^":\n]+)"?:(?P<line>\d+):(?P<column>\d+)\)?: error: (?P<message>[^\n]*)', re.MULTILINE
)


def first_error(diagnostics: str, path: str) -> tuple[int, int, str] | None:
    """Line, column (from 0) and message of the first of LLVM's errors that is in the candidate's file."""
    for match in _DIAGNOSTIC.finditer(diagnostics):
        if match["file"].endswith(os.path.basename(path)):
            return int(match["line"]), int(match["column"]) - 1, match["message"]
    return None
