"""Converts an exception raised while steps ran to a failure: fault, message, and position in the
candidate's source."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kernelwright.tools.compiling.text.kernel_text import FILE, candidate_line
from kernelwright.tools.replaying.interpreter.guarded_memory import OutOfBounds
from kernelwright.tools.report import Failed, Failure, Fault, SourceLine, clean_text
from kernelwright.tools.tensor_memory import found_no_memory
from kernelwright.tools.trace.trace import Function, Launch, Operator, Step


def failure_of(
    error: BaseException, step: Step | None, functions: Mapping[str, Function], folder: Path
) -> Failure:
    """Returns the failure. step: the step that was running. folder: folder of the rebuilt kernels,
    to recognise their frames."""
    if isinstance(error, Failed):
        return _with_line_of_step(error.failure, step)
    inner = _innermost(error)
    source_line = _in_a_kernel(inner, functions, folder)
    if isinstance(error, OutOfBounds):
        return _with_line_of_step(
            Failure(fault=Fault.OUT_OF_BOUNDS, message=str(error), where=source_line), step
        )
    text = " ".join(line.strip() for line in _message_of(inner).splitlines() if line.strip())
    message = f"{_step_prefix(step)}{type(inner).__name__}: {text}"
    return _with_line_of_step(
        Failure(fault=_fault(inner), message=clean_text(message, 600), where=source_line), step
    )


def _innermost(error: BaseException) -> BaseException:
    """Returns the original error: the interpreter wraps errors of device functions once per call
    level."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__
    return error


def _message_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its text cannot be read)"


def _step_prefix(step: Step | None) -> str:
    return (
        f"{step.op}: "
        if isinstance(step, Operator)
        else "in a kernel: "
        if isinstance(step, Launch)
        else ""
    )


def _fault(error: BaseException) -> Fault:
    if isinstance(error, ValueError | TypeError | AssertionError) and _comes_from_the_language(
        error
    ):
        return Fault.COMPILE
    return Fault.MEMORY if found_no_memory(error) else Fault.RUNTIME


def _comes_from_the_language(error: BaseException) -> bool:
    """Returns True if Triton's language rejects the kernel, as its compiler would: a range of 19
    elements."""
    frames = traceback.extract_tb(error.__traceback__)
    return bool(frames) and "/triton/language/" in Path(frames[-1].filename).as_posix()


def _with_line_of_step(failure: Failure, step: Step | None) -> Failure:
    """Adds the line of the host code that ran the step, unless a position is known."""
    line = getattr(step, "line", 0)
    if failure.where is not None or not 0 < line < 200_000:
        return failure
    return failure.with_(where=SourceLine(line=line))


def _in_a_kernel(
    error: BaseException, functions: Mapping[str, Function], folder: Path
) -> SourceLine | None:
    """Returns the innermost source line in a rebuilt kernel that the exception passed."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if path.name == FILE and path.parent.parent == folder:
            return _line_in_function(functions, path.parent.name, frame)
    return None


def _line_in_function(
    functions: Mapping[str, Function], name: str, frame: Any
) -> SourceLine | None:
    function = functions.get(name) or next(
        (f for f in functions.values() if f.name == frame.name), None
    )
    if function is None or frame.lineno is None:
        return None
    line = frame.lineno - function.line + 1
    lines = function.text.split("\n")
    text = lines[line - 1] if 0 < line <= len(lines) else ""
    return candidate_line(function, line, len(text) - len(text.lstrip()))
