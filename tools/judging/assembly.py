"""Compiles a stored candidate again, offline, and returns its assembly: PTX for NVIDIA targets,
AMDGCN for AMD targets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from kernelwright.closing_context import ClosingContext
from kernelwright.tools.hardware.targets import parse_target
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Failure, KernelResources, Value, clean_text

if TYPE_CHECKING:
    from kernelwright.tools.compiling.compiled import Compiled
    from kernelwright.tools.sandbox import Zygote

ASSEMBLY_STAGE = {"cuda": "ptx", "hip": "amdgcn"}
"""Stage of the compiler which is shown, by backend."""
COMPILE_STEP_SECONDS = 60.0
"""Seconds for tracing, and again for compiling."""
MAX_TEXT_BYTES = 4 << 20
"""Maximum number of bytes read of a kernel's assembly."""
MAX_SPECIALISATIONS = 64
"""Maximum number of compiled specialisations: an autotuned kernel may have hundreds."""


class Listing(Value):
    """Compiled specialisation of a kernel, with its assembly."""

    name: str
    resources: KernelResources | None = None
    """Resources of the specialisation; None if name and options fit several specialisations, or
    none.
    """
    text: str


class Assembly(Value):
    """Assembly of a candidate's kernels for a target."""

    target: str
    listings: tuple[Listing, ...] = ()
    failure: Failure | None = None
    """Reason why the candidate does not compile for this target. `listings` holds the kernels
    compiled before.
    """


class Assembler(ClosingContext):
    """Compiles in a warm sandbox that starts with the first candidate. Thread-safe. A context manager."""

    def __init__(self) -> None:
        self._zygote: Zygote | None = None
        self._lock = threading.Lock()
        self._closed = False

    def assemble(
        self,
        problem: Problem,
        source: str,
        target: str,
        say: Callable[[str], None] = lambda step: None,
        allow_import: Sequence[str] = (),
    ) -> Assembly:
        """Compiles every launch at the problem's own sizes. say: receives progress messages.

        Raises: ValueError for an unknown target; ProblemError if the reference cannot be run;
        InfrastructureError
        if no process starts.
        """
        parsed_target = parse_target(target)
        say("starting the compiler")
        with self._lock:
            zygote = self._warm()
            say("reading the problem's inputs")
            from kernelwright.tools.compiling.compiler import Compiler
            from kernelwright.tools.judging.compile_report import compile_result, kernels_of
            from kernelwright.tools.references.input_spec import input_spec
            from kernelwright.tools.tracing.client import SizeRequest, trace_candidate

            size_request = SizeRequest(spec=input_spec(problem))
            zygote.wait_warm()
            say("tracing")
            candidate = trace_candidate(
                zygote,
                source,
                parsed_target.name,
                [size_request],
                seconds=COMPILE_STEP_SECONDS,
                allow_import=allow_import,
            )
            say(f"compiling for {parsed_target.name}")
            stage = ASSEMBLY_STAGE[parsed_target.backend]
            kernels = (
                kernels_of(candidate.traced, [0])[:MAX_SPECIALISATIONS]
                if candidate.traced.traces
                else []
            )
            compiled = Compiler(zygote).compile(
                candidate.traced,
                kernels,
                parsed_target.name,
                source=source,
                seconds=COMPILE_STEP_SECONDS,
                texts=(stage,),
            )
            result = compile_result(parsed_target.name, candidate, compiled, 0.0)
            return Assembly(
                target=parsed_target.name,
                listings=_listings(compiled.values(), stage),
                failure=result.failure,
            )

    def _warm(self) -> Zygote:
        from kernelwright.tools.report import InfrastructureError
        from kernelwright.tools.sandbox import ProcessKind, Zygote

        if self._closed:
            raise InfrastructureError("the compiler was closed: run the command again")
        if self._zygote is None:
            self._zygote = Zygote(ProcessKind.COMPILE, spare=False, private_scratch=True)
        return self._zygote

    def close(self) -> None:
        """Ends the compiler at once: a compilation that is under way fails."""
        self._closed = True
        if self._zygote is not None:
            self._zygote.close()


def _listings(compiled: Iterable[Compiled], stage: str) -> tuple[Listing, ...]:
    """Returns the text of a stage of each kernel that reached this stage."""
    listings: list[Listing] = []
    for kernel in compiled:
        if stage in kernel.texts:
            text = clean_text(kernel.texts[stage], MAX_TEXT_BYTES)
            name = clean_text(kernel.name, 200)
            listings.append(Listing(name=name, resources=kernel.resources, text=text))
    return tuple(listings)
