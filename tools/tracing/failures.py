"""What went wrong while a candidate's host code was traced, as a failure of the candidate."""

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
    """The host code asks for something else at each call."""


class LaunchesDropped(RuntimeError):
    """A call launches less than the one before it."""


def in_triton(error: BaseException, path: Path) -> bool:
    """Whether it was raised below the candidate's innermost frame by Triton on the way to a launch."""
    files: list[str] = []
    trace = error.__traceback__
    while trace is not None:
        files.append(trace.tb_frame.f_code.co_filename)
        trace = trace.tb_next
    inner = files[len(files) - files[::-1].index(str(path)) :] if str(path) in files else files
    return any("triton/runtime" in f or "triton/compiler" in f or f == "<string>" for f in inner)


def tracing_failure(error: BaseException, path: Path, fault: Fault, *, launched: bool) -> Failure:
    """The failure that an exception of the candidate at `path` is.

    fault: where its class says nothing. launched: whether the model had launched a kernel before.
    """
    found = failure_of(error, str(path), fault)
    if isinstance(error, CallsDiffer):
        return found.with_(fault=Fault.UNTRACEABLE, message=str(error))
    if isinstance(error, LaunchesDropped):
        return found.with_(fault=Fault.CHEAT, cheat=Cheat.CACHE, message=str(error))
    if isinstance(error, TooLong):
        return found.with_(fault=Fault.RESOURCES, message=str(error))
    if isinstance(error, NotPlain):
        return found.with_(
            fault=Fault.RUNTIME,
            message=clean_text(
                f"{error} is handed to an operator or a kernel: it cannot be written down", 300
            ),
        )
    if any(recorded.needs_values(e) for e in chain(error)):
        return found.with_(
            fault=Fault.UNTRACEABLE,
            message="host code reads what a tensor holds: a verdict needs host code that decides by shapes and "
            "numbers alone",
        )
    if fault is Fault.RUNTIME and (
        any(isinstance(e, LaunchRefused) for e in chain(error))
        or not launched
        or in_triton(error, path)
    ):
        return found.with_(fault=Fault.LAUNCH) if found.fault is Fault.RUNTIME else found
    return found
