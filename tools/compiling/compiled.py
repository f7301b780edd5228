"""Result of compiling a kernel for a target: frozen values without references to a candidate's
process.
"""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict

from kernelwright.tools.report import Cheat, Failure, Fault, KernelResources, Value

Json = Any
VERSION = 3
"""Version of the cached form, raised whenever the form changes."""


class Compiled(Value):
    """Specialisation of a kernel, compiled for a target.

    Without a `failure`, `binary`, `metadata` and `resources` are set.
    """

    model_config = ConfigDict(
        frozen=True, extra="ignore", ser_json_bytes="base64", val_json_bytes="base64"
    )

    name: str
    """The name of the kernel's function."""
    target: str
    key: str = ""
    """Its content address: texts, constants, signature, options, target and version of Triton.

    The same for every candidate.
    """
    failure: Failure | None = None
    resources: KernelResources | None = None
    """Resources, also of a compiled kernel which needs more than the target has."""
    signature: dict[str, Json] = {}
    """Parameter -> Triton's type, a list for a tuple."""
    metadata: dict[str, Json] = {}
    """Fields of the compiler's metadata needed for a launch (`METADATA_FIELDS`)."""
    binary: bytes = b""
    """cubin or hsaco. Base64 in JSON."""
    reversed: bytes = b""
    """Binary with program numbers counted from the other end, if the order of programs may affect
    the result (`tools.compiling.program_order`).
    """
    texts: dict[str, str] = {}
    """Requested stages of the compilation, as text."""
    seconds: float = 0.0
    """Duration of the compilation, in seconds."""
    cached: bool = False
    """Whether the kernel came from the cache."""


OUTPUT_FILE = "compiler_says"
"""Name of the file in a compiling process's folder with the last output of the compiler."""
METADATA_FIELDS = (
    "name", "shared", "num_warps", "num_ctas", "num_stages", "maxnreg", "cluster_dims", "global_scratch_size",
    "global_scratch_align", "profile_scratch_size",
    "profile_scratch_align", "launch_cooperative_grid", "launch_cluster", "launch_pdl", "tmem_size", "tensordesc_meta",
    "warp_size", "waves_per_eu",
    "matrix_instr_nonkdim", "kpack", "triton_version",
)  # fmt: skip
"""Fields of Triton's metadata which are stored, if the Triton version has them."""
TEXTS = ("ttir", "ttgir", "llir", "ptx", "amdgcn")
"""Stages of a compilation available as text."""


class Place(Value):
    """Position in the text of a function of the kernel."""

    function: int
    """Its number among them, the kernel's own first."""
    line: int
    """Line in the function's text, from 1."""
    column: int = 0
    """Column in bytes, from 0."""


class CompileOutcome(Value):
    """Outcome of a compilation, independent of the candidate, as stored in the cache."""

    model_config = ConfigDict(
        frozen=True, extra="ignore", ser_json_bytes="base64", val_json_bytes="base64"
    )

    fault: Fault | None = None
    cheat: Cheat | None = None
    message: str = ""
    places: tuple[Place, ...] = ()
    """Places of a failure, the innermost first."""
    resources: KernelResources | None = None
    metadata: dict[str, Json] = {}
    binary: bytes = b""
    reversed: bytes = b""
    texts: dict[str, str] = {}
    """Requested texts by stage, see `TEXTS`."""
    seconds: float = 0.0
