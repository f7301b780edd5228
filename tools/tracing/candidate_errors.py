"""Converts an exception of a candidate to a failure: the fault, source line, and its last frames."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from types import TracebackType

from kernelwright.tools.report import Failure, Fault, SourceLine, clean_text
from kernelwright.tools.tracing.compile_errors import chain, compile_message, compile_where, located

MAX_CANDIDATE_MESSAGE_CHARACTERS = 600
MAX_CANDIDATE_TRACE_CHARACTERS = 2000

FAULT_OF_EXCEPTION = {
    "CompilationError": Fault.COMPILE,
    "CompileTimeAssertionFailure": Fault.COMPILE,
    "UnsupportedLanguageConstruct": Fault.COMPILE,
    "PTXASError": Fault.COMPILE,
    "MLIRCompilationError": Fault.COMPILE,
    "OutOfResources": Fault.RESOURCES,
    "OutOfMemoryError": Fault.MEMORY,
    "MemoryError": Fault.MEMORY,
    "InterpreterError": Fault.RUNTIME,
    "RecursionError": Fault.RUNTIME,
}
"""Exceptions by class name: Triton's modules move between versions."""

_NO_MEMORY = re.compile(r"DefaultCPUAllocator: (?:can't allocate|not enough) memory")
"""torch has no exception class for this on a CPU."""

_CONTEXT_ERROR = re.compile(
    r"illegal memory access|misaligned address|device-side assert|unspecified launch failure|illegal instruction"
)


def failure_of(error: BaseException, path: str, otherwise: Fault) -> Failure:
    """Returns the failure for an exception of the candidate at `path`; `otherwise` if its class is
    unknown."""
    fault = _fault(error, otherwise)
    return Failure(
        fault=fault,
        message=_message(error),
        where=candidate_line(error, path),
        trace=candidate_frames(error, path),
    )


def _fault(error: BaseException, otherwise: Fault) -> Fault:
    for cause in chain(error):
        for cls in type(cause).__mro__:
            if cls.__name__ in FAULT_OF_EXCEPTION and cls.__name__ != "InterpreterError":
                return FAULT_OF_EXCEPTION[cls.__name__]
        if type(cause).__name__ in ("AcceleratorError", "RuntimeError") and _CONTEXT_ERROR.search(
            _text(cause)
        ):
            return Fault.OUT_OF_BOUNDS if "illegal memory" in _text(cause) else Fault.CRASH
        if type(cause).__name__ == "RuntimeError" and _NO_MEMORY.search(_text(cause)):
            return Fault.MEMORY
    return otherwise


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # the candidate's own __str__
        return "(its text cannot be read)"


def _message(error: BaseException) -> str:
    if located(error):
        return clean_text(
            compile_message(error).replace("\n", " "), MAX_CANDIDATE_MESSAGE_CHARACTERS
        )
    text = _text(error).strip()
    summary = " ".join(line for line in text.splitlines() if line.strip())
    return clean_text(
        f"{type(error).__name__}: {summary}".replace("\n", " "), MAX_CANDIDATE_MESSAGE_CHARACTERS
    )


def candidate_line(error: BaseException, path: str) -> SourceLine | None:
    """Returns the candidate's innermost source line."""
    if located(error) and (compile_line := compile_where(error, path)):
        return compile_line
    frames = [f for e in chain(error)[::-1] for f in _frames(e.__traceback__) if f[0] == path]
    if not frames:
        return None
    line = frames[-1][1]
    text = _line(path, line)
    return SourceLine(line=line, text=text, column=len(text) - len(text.lstrip()))


def _frames(tb: TracebackType | None) -> list[tuple[str, int]]:
    return [(f.filename, f.lineno or 1) for f in traceback.extract_tb(tb)]


def _line(path: str, number: int) -> str:
    lines = Path(path).read_text("utf-8", "replace").splitlines()
    return lines[number - 1][:200] if 0 < number <= len(lines) else ""


def candidate_frames(error: BaseException, path: str) -> str:
    """Returns the candidate's frames, outermost first, of limited length."""
    parts = [
        f"  line {number}: {_line(path, number).strip()}"
        for name, number in _frames(error.__traceback__)
        if name == path
    ]
    return clean_text("\n".join(parts[-8:]), MAX_CANDIDATE_TRACE_CHARACTERS)
