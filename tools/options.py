"""Options of a verdict, and the lanes on which verdicts run."""

from __future__ import annotations

from enum import StrEnum

from kernelwright.tools.report import Value

TRACE_TARGET = "sm_90"
"""Target of the pretended GPU if nothing is compiled."""
DEFAULT_SIZES = 8


class Lane(StrEnum):
    """Resource on which a verdict runs. Waiting for the GPU counts for neither."""

    CPU = "cpu"
    GPU = "gpu"


class Options(Value):
    """Options of a verdict."""

    targets: tuple[str, ...] = (TRACE_TARGET,)
    """The first decides; the others make the portability matrix.

    None: nothing is compiled on a CPU (rollouts judged by the interpreter).
    """
    own_work: str = "strict"
    profile: bool = True
    torch_compile: bool = True
    ncu: bool = False
    sanitizer: bool = False
    sizes: int = DEFAULT_SIZES
    """Number of other sizes at which the candidate must be correct."""
    seed: int | None = None
    """Seed of an earlier verdict to repeat; None draws a new seed."""
    allow_import: tuple[str, ...] = ()
    """Installed packages whose kernels the candidate may use, beside torch, triton and the standard library."""
    train_mode: bool = False
    """Judges a module with random training mode as built, and refuses it as random; otherwise in
    eval mode."""
    contiguous_inputs: bool = True
    """Accepts a kernel that is wrong on transposed, sliced or expanded inputs but correct on
    contiguous ones.

    `Report.ignores_strides` reports such a kernel; with False it is refused with the fault
    `layout`. True by default: most existing kernels are written for contiguous inputs.
    """
    interpret: bool | None = None
    """False disables the interpreter. Otherwise kernels run under the interpreter: on a CPU this is
    the verdict; on a GPU it follows a correct answer, at few small sizes, and finds faults that a
    GPU does not show."""
    compile_seconds: float = 60.0
    """Seconds for tracing, and again for compiling for one target."""
    seconds: float = 120.0
    """Time limit, in seconds, of a candidate's replays at a rung."""
    lease_seconds: float = 600.0
