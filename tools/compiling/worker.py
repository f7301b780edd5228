"""Compiles kernels from their texts for a target.

Runs in a sandboxed process of its own: the compiler's input is hostile.

Payload: {"functions": {key: Function}, "kernels": {key: Kernel}, "target": name, "texts": [stage,
...]}. Messages: {"begun": key} before each kernel, so that the trusted side can attribute a crash
or a hang, and {"made": key, "outcome": CompileOutcome} after it. Places in outcomes name
functions by their numbers in `tools.compiling.text.closure.Contents`.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelwright.tools.compiling.compiled import (
    METADATA_FIELDS,
    OUTPUT_FILE,
    TEXTS,
    CompileOutcome,
)
from kernelwright.tools.compiling.errors import CapturedDiagnostics, captured_errors, outcome_of
from kernelwright.tools.compiling.pretended_driver import PretendedDriver
from kernelwright.tools.compiling.program_order import assembled_in_reverse
from kernelwright.tools.compiling.resources import describe, why_too_large
from kernelwright.tools.compiling.text.closure import Contents
from kernelwright.tools.compiling.text.constants import fields_of, named_tuple, value
from kernelwright.tools.compiling.text.kernel_text import Rebuilt
from kernelwright.tools.hardware.targets import Target, parse_target
from kernelwright.tools.report import Fault, clean_text
from kernelwright.tools.sandbox.channel import Channel
from kernelwright.tools.trace.trace import Function, Json, Kernel

if TYPE_CHECKING:
    from triton.compiler import ASTSource, CompiledKernel

FOLDER = Path("/kernels")
"""Folder in the file names of texts; no file exists.

The same for all kernels, so that equal texts give equal binaries.
"""
MAX_STAGE_CHARACTERS = 4 << 20
"""Maximum number of characters per stage text."""
COMPILER_OPTIONS = frozenset({
    "allow_flush_denorm", "allowed_dot_input_precisions", "cluster_dims", "clc", "debug", "default_dot_input_precision",
    "deprecated_fp8_dot_operand_dtypes",
    "enable_fp_fusion", "enable_reflect_ftz", "kpack", "launch_cooperative_grid", "launch_pdl", "matrix_instr_nonkdim",
    "max_num_imprecise_acc_default",
    "maxnreg", "num_ctas", "num_stages", "num_warps", "sanitize_overflow", "schedule_hint", "sched4reg",
    "supported_fp8_dtypes", "waves_per_eu",
    "wgp_cu_mode",
})  # fmt: skip
"""Options of a launch passed to the compiler. Other options name files, other targets or
arguments of ptxas.
"""
_TYPE = re.compile(
    r"constexpr|nvTmaDesc|tensordesc<[a-z0-9]{1,12}\[[0-9, "
    r"]{1,60}\]>|\*{0,3}k?\*{0,2}(?:[iu](?:1|8|16|32|64)|bf16|fp(?:16|32|64|8[a-z0-9]{1,8})|void)"
)


def serve(channel: Channel, payload: dict[str, Any]) -> None:
    """Compiles every kernel of the payload in order."""
    from triton.runtime import driver

    tempfile.tempdir = str(Path.cwd())
    functions = {
        key: Function.model_validate_json(text) for key, text in payload["functions"].items()
    }
    target = parse_target(payload["target"])
    driver.set_active(PretendedDriver(target))
    kernels = {key: Kernel.model_validate_json(text) for key, text in payload["kernels"].items()}
    rebuilt = Rebuilt(
        functions, interpreted=False, folder=FOLDER, fields=fields_of(kernels.values())
    )
    shared = set(payload["shared"])
    for key, kernel in kernels.items():
        channel.send({"begun": key})
        outcome = compile_kernel(
            rebuilt,
            kernel,
            target,
            payload["texts"],
            Path.cwd() / OUTPUT_FILE,
            shared=key in shared,
        )
        channel.send({"made": key, "outcome": outcome.model_dump(mode="json")})


def compile_kernel(
    rebuilt: Rebuilt,
    kernel: Kernel,
    target: Target,
    texts: Sequence[str] = (),
    words: Path | None = None,
    *,
    shared: bool = False,
) -> CompileOutcome:
    """Compiles a kernel. Never raises for errors of the kernel.

    texts: requested stages, see `tools.compiling.compiled.TEXTS`. words: file for the compiler's
    output; None: memory. shared: whether a launch passes two tensors in the same memory.
    """
    begun, diagnostics = time.monotonic(), CapturedDiagnostics(path=words)
    try:
        source = _source(rebuilt, kernel)
        with captured_errors(diagnostics):
            compiled = _compile(source, _options(kernel), target)
        outcome = _outcome(compiled, target, time.monotonic() - begun, texts, shared=shared)
    except Exception as error:
        functions = rebuilt.functions
        parts = {key: functions[key] for key in Contents(functions).closure(kernel)}
        outcome = outcome_of(error, diagnostics.text, functions[kernel.function].name, parts)
    return outcome.with_(seconds=time.monotonic() - begun)


def _source(rebuilt: Rebuilt, kernel: Kernel) -> Any:
    """Triton's ASTSource. Raises Failed and ValueError."""
    from triton.compiler import ASTSource

    fields = getattr(kernel, "fields", {})
    types = {name: _type(kind) for name, kind in kernel.signature.items()}
    signature = {
        name: named_tuple(kind, fields.get(name)) if isinstance(kind, tuple) else kind
        for name, kind in types.items()
    }
    function = rebuilt[kernel.function]
    if list(signature) != function.arg_names:
        raise ValueError("the signature does not name the parameters of the kernel")
    constants = {tuple(path): value(form, rebuilt) for path, form in kernel.constants}
    attributes = {tuple(path): [list(pair) for pair in pairs] for path, pairs in kernel.attributes}
    return ASTSource(function, signature, constants, attributes)


def _type(kind: Json) -> Any:
    """Returns a type for Triton's code generator; only plain types are accepted, because Triton
    evaluates some type texts.
    """
    if isinstance(kind, list | tuple):
        return tuple(_type(inner) for inner in kind)
    if not isinstance(kind, str) or not _TYPE.fullmatch(kind):
        raise ValueError(f"not a type of a parameter: {clean_text(kind, 60)}")
    return kind


def _options(kernel: Kernel) -> dict[str, Any]:
    foreign = sorted(set(kernel.options) - COMPILER_OPTIONS)
    if foreign:
        raise ValueError(
            f"the option {clean_text(foreign[0], 60)} of a launch is not one that kernels are compiled with here"
        )
    return {name: tuple(v) if isinstance(v, list) else v for name, v in kernel.options.items()}


def _compile(source: ASTSource, options: dict[str, Any], target: Target) -> Any:
    import triton

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return triton.compile(source, target=target.gpu_target(), options=options)


def _outcome(
    compiled: CompiledKernel, target: Target, seconds: float, texts: Sequence[str], *, shared: bool
) -> CompileOutcome:
    resources = describe(compiled, target, seconds)
    stage_texts = {
        stage: compiled.asm[stage][:MAX_STAGE_CHARACTERS]
        for stage in texts
        if stage in TEXTS and stage in compiled.asm
    }
    if over := why_too_large(compiled, resources, target):
        return CompileOutcome(
            fault=Fault.RESOURCES, message=over, resources=resources, texts=stage_texts
        )
    metadata = {
        name: getattr(compiled.metadata, name)
        for name in METADATA_FIELDS
        if hasattr(compiled.metadata, name)
    }
    other = assembled_in_reverse(compiled, target.gpu_target(), shared=shared)
    return CompileOutcome(
        resources=resources,
        metadata=metadata,
        binary=bytes(compiled.kernel),
        reversed=other,
        texts=stage_texts,
    )


def warm() -> None:
    """Compiles a kernel for sm_90, so that processes forked from this one have Triton's compiler
    loaded.

    Leaves no thread and no CUDA context.
    """
    text = (
        "def warm_kernel(x, n, BLOCK):\n    at = tl.arange(0, BLOCK)\n    tl.store(x + at, "
        "tl.sum(tl.exp(tl.load(x + at, mask=at < n, other=0.0)), "
        "0), mask=at < "
        "n)\n"
    )
    names = {"tl": {"triton": "triton.language"}}
    kernel = Kernel(
        function="warm",
        signature={"x": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constants=(((2,), 128),),
    )
    functions = {"warm": Function(name="warm_kernel", text=text, names=names)}
    saved_folder = os.environ.get("TRITON_CACHE_DIR")
    with tempfile.TemporaryDirectory(prefix="kernelwright-warm-") as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        rebuilt = Rebuilt(functions, interpreted=False, folder=FOLDER)
        outcome = compile_kernel(rebuilt, kernel, parse_target("sm_90"))
    os.environ.pop("TRITON_CACHE_DIR")
    if saved_folder is not None:
        os.environ["TRITON_CACHE_DIR"] = saved_folder
    if outcome.fault is not None:
        raise RuntimeError(outcome.message)
