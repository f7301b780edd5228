"""What is asked of a verdict, and where it is at work."""

from __future__ import annotations

from enum import StrEnum

from kernelwright.tools.report import Value

TRACE_TARGET = "sm_90"
"""What the pretended GPU is where nothing is to be compiled."""
DEFAULT_SIZES = 8


class Lane(StrEnum):
    """Where a verdict is at work. Waiting for the GPU is neither."""

    CPU = "cpu"
    GPU = "gpu"


class Options(Value):
    """What is asked of a verdict."""

    targets: tuple[str, ...] = (TRACE_TARGET,)
    """The first decides; the others make the portability matrix.

    None: nothing is compiled on a CPU (rollouts that the interpreter judges).
    """
    own_work: str = "strict"
    profile: bool = True
    torch_compile: bool = True
    ncu: bool = False
    sanitizer: bool = False
    sizes: int = DEFAULT_SIZES
    """Other sizes that it must be right at."""
    seed: int | None = None
    """Repeats the verdict that told this seed; None draws one."""
    allow_import: tuple[str, ...] = ()
    """Installed packages whose kernels the candidate may use, beside torch, triton and the standard library."""
    train_mode: bool = False
    """Whether a module that draws random numbers in training mode is judged as it is built, and refused as random;
    otherwise it is judged in eval mode.
    """
    contiguous_inputs: bool = True
    """Whether a kernel that answers wrongly on transposed, sliced or expanded inputs counts as correct, where it is
    right on contiguous ones. `Report.ignores_strides` says so then; with False it is refused with the fault `layout`.
    True by default: most kernels that people bring are written for contiguous inputs.
    """
    interpret: bool | None = None
    """False leaves the interpreter out. Otherwise kernels run under it: on a CPU that is the verdict; on a GPU it
    follows a right answer there, at few small sizes, and shows what a GPU does not.
    """
    compile_seconds: float = 60.0
    """Seconds for tracing, and again for compiling for one target."""
    seconds: float = 120.0
    """Seconds for the replays of one candidate at one rung."""
    lease_seconds: float = 600.0
