"""What the compiler made of a candidate, as text: PTX for NVIDIA's targets, AMDGCN for AMD's. Compiled again, offline, from the stored source."""

from __future__ import annotations

import json
import stat
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tools.problem import Problem
from tools.results import CompileResult, Failure, KernelResources, Value, clean_text
from tools.targets import parse_target

if TYPE_CHECKING:
    from tools.sandbox import Zygote

SUFFIX = {"cuda": ".ptx", "hip": ".amdgcn"}
"""Of the text, by backend."""
OPTIONS = ("num_warps", "num_stages", "num_ctas")
"""What tells two specialisations with one name apart."""
LONGEST = 4 << 20
"""Bytes of one kernel's text that are read."""
MOST = 64
"""Specialisations: an autotuned kernel may have hundreds."""


class Listing(Value):
    """One compiled specialisation."""

    name: str
    resources: KernelResources | None = None
    """None where the name and the options fit several specialisations, or none."""
    text: str


class Assembly(Value):
    target: str
    listings: tuple[Listing, ...] = ()
    failure: Failure | None = None
    """Why the candidate does not compile for this target. What was compiled before is in `listings`."""


class Assembler:
    """Compiles in a warm sandbox that starts with the first candidate. Thread-safe. A context manager."""

    def __init__(self) -> None:
        self._zygote: Zygote | None = None
        self._lock = threading.Lock()
        self._closed = False

    def assemble(
        self, problem: Problem, source: str, target: str, say: Callable[[str], None] = lambda step: None
    ) -> Assembly:
        """Every launch at the problem's own sizes. `say` is told what is going on.

        Raises: ValueError for an unknown target; ProblemError where the reference cannot be run; InfrastructureError where no process starts.
        """
        wanted = parse_target(target)
        say("starting the compiler")
        with self._lock, tempfile.TemporaryDirectory(prefix="kernelwright-assembly-") as folder:
            zygote = self._warm()
            say("reading the problem's inputs")
            from tools.compile import compile_candidate
            from tools.spec import input_spec

            spec = input_spec(problem)
            zygote.wait_warm()
            say(f"compiling for {wanted.name}")
            [result] = compile_candidate(zygote, spec, source, [wanted.name], cache_dir=Path(folder))
            listings = _listings(Path(folder), SUFFIX[wanted.backend], result)
            return Assembly(target=wanted.name, listings=listings, failure=result.failure)

    def _warm(self) -> Zygote:
        from tools.results import InfrastructureError
        from tools.sandbox import Kind, Zygote

        if self._closed:
            raise InfrastructureError("the compiler was closed: run the command again")
        if self._zygote is None:
            self._zygote = Zygote(Kind.COMPILE, spare=False)
        return self._zygote

    def close(self) -> None:
        """At once: a compilation that is under way fails."""
        self._closed = True
        if self._zygote is not None:
            self._zygote.close()

    def __enter__(self) -> Assembler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _listings(folder: Path, suffix: str, result: CompileResult) -> tuple[Listing, ...]:
    """Regular files: the folder is ours, what lies in it was written by the candidate's process. Those that were launched first."""
    files = sorted(path for path in folder.rglob(f"*{suffix}") if stat.S_ISREG(path.lstat().st_mode))[:MOST]
    found = [_listing(path, result.kernels) for path in files]
    return tuple(sorted(found, key=lambda listing: not (listing.resources and listing.resources.launches)))


def _listing(path: Path, kernels: Sequence[KernelResources]) -> Listing:
    name, options = clean_text(path.stem, 200), _options(path.with_suffix(".json"))
    fitting = [kernel for kernel in kernels if kernel.name == name]
    if len(fitting) > 1:
        fitting = [kernel for kernel in fitting if {key: kernel.config.get(key) for key in OPTIONS} == options]
    text = clean_text(_read(path).decode("utf-8", "replace"), LONGEST)
    return Listing(name=name, resources=fitting[0] if len(fitting) == 1 else None, text=text)


def _options(path: Path) -> dict[str, object]:
    """What Triton's metadata beside it says; empty where it cannot be read."""
    try:
        told = json.loads(_read(path)) if stat.S_ISREG(path.lstat().st_mode) else {}
    except (OSError, ValueError, RecursionError):
        return {}
    return {name: told.get(name) for name in OPTIONS} if isinstance(told, dict) else {}


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(LONGEST)
