"""Whether kernels that nobody launches compile: trusted side.

Their text is read as syntax here and imported only in the sandbox.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from kernelwright.tools.compiling.compiler import FP_FUSION
from kernelwright.tools.hardware.targets import parse_target
from kernelwright.tools.launchless.callers import caller_name, with_caller
from kernelwright.tools.launchless.candidate_signatures import AssumedSignature, assume_signatures
from kernelwright.tools.launchless.module_functions import Module, read_module, returns_value
from kernelwright.tools.launchless.undefined_names import first_undefined_name
from kernelwright.tools.report import Value, clean_text
from kernelwright.tools.sandbox import BadMessage, ProcessDied, ProcessTimedOut, Zygote

SERVICE_ENTRY = "kernelwright.tools.launchless.service:serve"
ANY_SIGNATURE = "any signature"
MAX_MESSAGES = 5_000


class LaunchlessCompilation(Value):
    """The result for one text."""

    compiled: dict[str, bool] = {}
    """For each target, True where every kernel compiles with an assumed signature, and False where one of them cannot
    compile with any. Other targets are absent.
    """
    assumed: str = ""
    """The signatures that compiled, or "any signature" and why none can."""
    errors: tuple[str, ...] = ()
    """For each absent target, the compiler's error with the likeliest signature."""


def compile_launchless(
    zygote: Zygote, source: str, targets: Sequence[str], *, seconds: float = 60.0
) -> LaunchlessCompilation:
    """`seconds` bounds all of it.

    Raises ValueError for an unknown target; InfrastructureError where no process could be started.
    """
    names = list(dict.fromkeys(parse_target(t).name for t in targets))
    try:
        module = read_module(source)
        ways = {kernel: assume_signatures(module, kernel) for kernel in module.entries()}
    except SyntaxError as error:
        return _compiles_nowhere(names, f"{type(error).__name__}: {clean_text(error.msg, 120)}")
    except (ValueError, RecursionError, MemoryError) as error:
        return LaunchlessCompilation(errors=(type(error).__name__,))
    if not ways or not all(ways.values()):
        return _conclude(module, names, ways, {}, ("no kernel whose signature its text tells",))
    found, errors = _compile_in_process(zygote, module, names, ways, seconds)
    return _conclude(module, names, ways, found, errors)


def _compiles_nowhere(names: list[str], why: str) -> LaunchlessCompilation:
    return LaunchlessCompilation(compiled=dict.fromkeys(names, False), assumed=f"{ANY_SIGNATURE}: {why}")


SignaturesByKernel = dict[str, tuple[AssumedSignature, ...]]
"""Kernel -> how it may be called, the likeliest first."""
FirstSignatureThatCompiles = dict[tuple[str, str], int | None]
"""(target, kernel) -> the way that compiled; None where none did."""


def _conclude(
    module: Module,
    names: list[str],
    ways: SignaturesByKernel,
    found: FirstSignatureThatCompiles,
    errors: tuple[str, ...],
) -> LaunchlessCompilation:
    compiled = {t for t in names if ways and all(found.get((t, kernel)) is not None for kernel in ways)}
    if not compiled and (lost := next((n for kernel in ways if (n := first_undefined_name(module, kernel))), "")):
        return _compiles_nowhere(names, f"{clean_text(lost, 120)} is not defined")
    said = {
        ways[kernel][index].describe(kernel)
        for (target, kernel), index in sorted(found.items())
        if target in compiled and index is not None
    }
    return LaunchlessCompilation(
        compiled=dict.fromkeys(sorted(compiled), True), assumed="; ".join(sorted(said)), errors=errors
    )


def _compile_in_process(
    zygote: Zygote, module: Module, names: list[str], ways: SignaturesByKernel, seconds: float
) -> tuple[FirstSignatureThatCompiles, tuple[str, ...]]:
    """Collects the process's messages until it is done, dead or late."""
    text, kernels = module.text, {}
    for kernel, all_ in ways.items():
        kernels[kernel] = [a.model_dump(mode="json") | {"kernel": kernel} for a in all_]
        if returns_value(module.functions[kernel]):
            text += "".join(with_caller(module, kernel, i, way) for i, way in enumerate(all_))
            kernels[kernel] = [told | {"kernel": caller_name(kernel, i)} for i, told in enumerate(kernels[kernel])]
    payload = {"source": text, "targets": names, "fp_fusion": FP_FUSION, "kernels": kernels}
    found: FirstSignatureThatCompiles = {}
    errors: list[str] = []
    end = time.monotonic() + seconds
    with zygote.start(SERVICE_ENTRY, payload) as process:
        try:
            for _ in range(MAX_MESSAGES):
                message = process.receive(max(end - time.monotonic(), 0.01))
                if "done" in message:
                    break
                if "result" in message:
                    _record_result(message["result"], names, ways, found, errors)
        except (ProcessTimedOut, ProcessDied) as error:
            errors.append(clean_text(error, 200))
        except (BadMessage, KeyError, TypeError, ValueError):
            return {}, ("what came from the process has not the form of a result",)
    return found, tuple(errors)


def _record_result(
    told: Any, names: list[str], ways: SignaturesByKernel, found: FirstSignatureThatCompiles, errors: list[str]
) -> None:
    """Records one result. Raises KeyError, TypeError or ValueError for a result that was not asked for."""
    key = (str(told["target"]), str(told["kernel"]))
    index = told["assumed"]
    if key[0] not in names or key in found or not (index is None or 0 <= int(index) < len(ways[key[1]])):
        raise ValueError("a result that was not asked for")
    found[key] = None if index is None else int(index)
    if index is None:
        errors.append(f"{key[1]} for {key[0]}: {clean_text(told['error'], 300)}")
