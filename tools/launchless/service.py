"""Kernels without a launch, compiled offline with signatures that their text speaks for.

Sends {"progress": ...} before each kernel and {"result": {"target", "kernel", "assumed": which one compiled, or null,
"error"}} after it, then {"done": true}.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

from kernelwright.tools.hardware.targets import Target, parse_target
from kernelwright.tools.report import clean_text
from kernelwright.tools.sandbox.channel import Channel
from kernelwright.tools.tracing.candidate_module import load
from kernelwright.tools.tracing.compile_errors import compile_message
from kernelwright.tools.tracing.pretended_gpu import fake_gpu as pretend_gpu
from kernelwright.tools.tracing.pretended_gpu.offline_driver import OfflineDriver

_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")


def serve(channel: Channel, payload: dict[str, Any]) -> None:
    """Compiles kernels in a walled process. payload: source, targets, fp_fusion, and kernels: for each name its assumed
    signatures (`candidate_signatures.AssumedSignature` as JSON, with the text to compile as `kernel`), the likeliest
    first.
    """
    os.environ["TRITON_DEFAULT_FP_FUSION"] = str(payload["fp_fusion"])
    tempfile.tempdir = str(Path.cwd())
    path = Path.cwd() / "candidate.py"
    path.write_text(payload["source"], "utf-8")
    liked: dict[str, int] = {}
    for name in payload["targets"]:
        target = parse_target(name)
        channel.send({"progress": f"importing the module for {name}"})
        module = _import_candidate(target, path)
        for kernel, ways in payload["kernels"].items():
            channel.send({"progress": f"compiling {kernel} for {name}"})
            order = sorted(range(len(ways)), key=lambda i: i != liked.get(kernel))
            found, error = _first_that_compiles(module, ways, order, target)
            if found is not None:
                liked[kernel] = found
            channel.send(
                {"result": {"target": name, "kernel": kernel, "assumed": found, "error": clean_text(error, 300)}}
            )
    channel.send({"done": True})


def _import_candidate(target: Target, path: Path) -> Any:
    """The module, or why it cannot be imported."""
    from triton.runtime import driver

    pretend_gpu.install(target)
    driver.set_active(OfflineDriver(target, lambda call: None))
    try:
        with pretend_gpu.fake():
            return load(path)
    except BaseException as error:
        return error


def _first_that_compiles(
    module: Any, ways: list[dict[str, Any]], order: list[int], target: Target
) -> tuple[int | None, str]:
    """The first way that compiles, or none and the first one's error."""
    if isinstance(module, BaseException):
        return None, f"not imported: {type(module).__name__}: {module}"
    errors = []
    for index in order:
        try:
            _compile(getattr(module, ways[index]["kernel"]), ways[index], target)
        except BaseException as error:
            errors.append(compile_message(error))
        else:
            return index, ""
    return None, (errors or ["no way to call it"])[0]


def _compile(kernel: Any, way: dict[str, Any], target: Target) -> None:
    """Raises what Triton raises, and ValueError where the target has not the shared memory."""
    import triton
    from triton.compiler import ASTSource

    function, config = _unwrapped(kernel)
    given = _constants_of_config(config) if way["tuned"] else {}
    constants = {n: _value(v) for n, v in way["constants"].items()} | given
    names = list(function.arg_names)
    signature = {n: "constexpr" if n in constants else way["types"][n] for n in names}
    fixed = {(i,): constants[n] for i, n in enumerate(names) if n in constants}
    aligned = {(i,): [["tt.divisibility", 16]] for i, n in enumerate(names) if signature[n].startswith("*")}
    options = {n: v for n in _OPTIONS if (v := getattr(config, n, None)) is not None}
    made = triton.compile(ASTSource(function, signature, fixed, aligned), target=target.gpu_target(), options=options)
    if made.metadata.shared > target.shared_per_block:
        raise ValueError(f"{made.metadata.shared} bytes of shared memory")


def _unwrapped(kernel: Any) -> tuple[Any, Any]:
    """The JIT function under autotune and heuristics, and the first config of an autotune."""
    config = None
    while hasattr(kernel, "fn") and not _is_jit(kernel):
        config = config or next(iter(getattr(kernel, "configs", ())), None)
        kernel = kernel.fn
    return kernel, config


def _is_jit(kernel: Any) -> bool:
    from triton.runtime.jit import JITFunction

    return isinstance(kernel, JITFunction)


def _constants_of_config(config: Any) -> dict[str, Any]:
    return dict(getattr(config, "kwargs", {}))


def _value(told: Any) -> Any:
    import triton.language as tl

    return getattr(tl, told["dtype"]) if isinstance(told, dict) else told
