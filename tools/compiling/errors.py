"""Explains why a kernel does not compile: Triton's own words with the position in the text, or
the first error printed by LLVM's passes.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelwright.tools.compiling.compiled import CompileOutcome, Place
from kernelwright.tools.compiling.text.kernel_text import FILE, TextFailed, file_name
from kernelwright.tools.report import Cheat, Fault, clean_text
from kernelwright.tools.trace.trace import Function

MAX_ERROR_CHARACTERS = 600
"""Maximum number of characters of an error message."""
MAX_PLACES = 12
_MAX_DIAGNOSTIC_BYTES = 1 << 16
"""Maximum number of bytes read of the compiler's output."""
_DIAGNOSTIC = re.compile(
    r'^(?:loc\(")?(?P<file>[^":\n]{1,300})"?:(?P<line>\d{1,9}):(?P<column>\d{1,9})\)?: error: (?P<message>[^\n]*)',
    re.MULTILINE,
)


@dataclass
class CapturedDiagnostics:
    """Text written to stderr, by C++ as well."""

    text: str = ""
    path: Path | None = None
    """File for the text, which survives an aborting compiler; None: in memory."""


@contextlib.contextmanager
def captured_errors(diagnostics: CapturedDiagnostics) -> Iterator[None]:
    """Redirects stderr to `diagnostics` until the block ends."""
    path = diagnostics.path
    saved = os.dup(2)
    held = (
        os.memfd_create("diagnostics")
        if path is None
        else os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
    )
    os.dup2(held, 2)
    try:
        yield
    finally:
        os.dup2(saved, 2)
        diagnostics.text = os.pread(held, _MAX_DIAGNOSTIC_BYTES, 0).decode("utf-8", "replace")
        os.close(saved)
        os.close(held)


def outcome_of(
    error: Exception, diagnostics: str, kernel: str, functions: Mapping[str, Function]
) -> CompileOutcome:
    """Returns the outcome of a failed compilation.

    diagnostics: output of the compiler. kernel: name of the kernel. functions: all functions of
    the kernel, in the order of `closure`.
    """
    numbers = {key: number for number, key in enumerate(functions)}
    if isinstance(error, TextFailed):
        place = Place(
            function=numbers.get(error.key, 0), line=error.refusal.line, column=error.refusal.column
        )
        return _outcome(
            kernel, error.refusal.message, (place,), error.refusal.fault, error.refusal.cheat
        )
    fault = _fault(error)
    if type(error) is RuntimeError and (first_error := _first_error(diagnostics, functions)):
        message, place = first_error
        return _outcome(kernel, message, (place,), fault)
    by_text = {function.text: numbers[key] for key, function in reversed(list(functions.items()))}
    positions = [
        Place(function=by_text[str(e.src)], line=e.node.lineno, column=e.node.col_offset)
        for e in located(error)
        if str(e.src) in by_text
    ]
    return _outcome(kernel, compile_message(error), tuple(positions[:MAX_PLACES]), fault)


def _outcome(
    kernel: str, message: str, places: tuple[Place, ...], fault: Fault, cheat: Cheat | None = None
) -> CompileOutcome:
    line = clean_text(
        f"kernel {kernel} does not compile: {clean_text(message.replace(chr(10), ' '), MAX_ERROR_CHARACTERS)}",
        2 * MAX_ERROR_CHARACTERS,
    )
    return CompileOutcome(fault=fault, cheat=cheat, message=line, places=places)


def _fault(error: Exception) -> Fault:
    names = {cls.__name__ for cause in chain(error) for cls in type(cause).__mro__}
    if "OutOfResources" in names:
        return Fault.RESOURCES
    return Fault.MEMORY if "MemoryError" in names else Fault.COMPILE


def chain(error: BaseException | None) -> list[BaseException]:
    """Returns the exception and its causes, outermost first."""
    errors: list[BaseException] = []
    while error is not None and error not in errors and len(errors) < 200:
        errors.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return errors


def located(error: BaseException) -> list[Any]:
    """Returns Triton's CompilationErrors in the chain, innermost first: each has a function's
    text and a node in this text.
    """
    return [
        e
        for e in chain(error)[::-1]
        if hasattr(getattr(e, "node", None), "lineno") and getattr(e, "src", None)
    ]


def compile_message(error: BaseException) -> str:
    """Returns the innermost message, without Triton's excerpt of the source."""
    for inner in located(error):
        if text := (getattr(inner, "error_message", None) or "").strip():
            return str(text)
    deepest = chain(error)[-1]
    return " ".join(
        line for line in f"{type(deepest).__name__}: {deepest}".splitlines() if line.strip()
    )


def _first_error(diagnostics: str, functions: Mapping[str, Function]) -> tuple[str, Place] | None:
    """Returns the first LLVM error located in one of the functions."""
    numbers = {file_name(key): number for number, key in enumerate(functions)}
    for match in _DIAGNOSTIC.finditer(diagnostics):
        folder, _, name = match["file"].rpartition("/")
        number = numbers.get(folder.rpartition("/")[2])
        if name == FILE and number is not None:
            line = int(match["line"]) - list(functions.values())[number].line + 1
            return match["message"], Place(
                function=number, line=max(line, 1), column=max(int(match["column"]) - 1, 0)
            )
    return None
