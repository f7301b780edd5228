"""Converts errors raised while tracing host code to failures of the candidate."""

from __future__ import annotations

from pathlib import Path

from kernelwright.tools.report import Cheat, Failure, Fault, clean_text
from kernelwright.tools.tracing import recorded
from kernelwright.tools.tracing.candidate_errors import failure_of
from kernelwright.tools.tracing.compile_errors import chain
from kernelwright.tools.tracing.kernels import NotPlain
from kernelwright.tools.tracing.pretended_gpu.offline_driver import LaunchRefused
from kernelwright.tools.tracing.tape import TooLong


class CallsDiffer(RuntimeError):
    """Raised if the host code differs from call to call."""


class LaunchesDropped(RuntimeError):
    """Raised if a call has fewer launches than the previous one."""


def in_triton(error: BaseException, path: Path) -> bool:
    """Returns True if Triton raised the error, below the candidate's innermost frame, on the way to
    a launch."""
    files: list[str] = []
    trace = error.__traceback__
    while trace is not None:
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    inner = files[len(files) - files[::-1].index(str(path)) :] if str(path) in files else files
    return any("triton/runtime" in f or "triton/compiler" in f or f == "<string>" for f in inner)


def tracing_failure(error: BaseException, path: Path, fault: Fault, *, launched: bool) -> Failure:
    """Returns the failure for an exception of the candidate at `path`.

    fault: used if the exception's class is unknown. launched: the model has launched a kernel
    before.
    """
    failure = failure_of(error, str(path), fault)
    if isinstance(error, CallsDiffer):
        return failure.with_(fault=Fault.UNTRACEABLE, message=str(error))
    if isinstance(error, LaunchesDropped):
        return failure.with_(fault=Fault.CHEAT, cheat=Cheat.CACHE, message=str(error))
    if isinstance(error, TooLong):
        return failure.with_(fault=Fault.RESOURCES, message=str(error))
    if isinstance(error, NotPlain):
        return failure.with_(
            fault=Fault.RUNTIME,
            message=clean_text(
                f"{error} is handed to an operator or a kernel: it cannot be written down", 300
            ),
        )
    if any(recorded.needs_values(e) for e in chain(error)):
        return failure.with_(
            fault=Fault.UNTRACEABLE,
            message="host code reads what a tensor holds: a verdict needs host code that decides by shapes and "
            "numbers alone",
        )
    if fault is Fault.RUNTIME and (
        any(isinstance(e, LaunchRefused) for e in chain(error))
        or not launched
        or in_triton(error, path)
    ):
        return failure.with_(fault=Fault.LAUNCH) if failure.fault is Fault.RUNTIME else failure
    return failure
