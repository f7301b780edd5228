"""Rebuilds a kernel from its text: checks it, parses it once, and executes the definition in a
namespace with only its own names.

    check(function)                                          failure of a refused text, or None
    rebuild(functions, key, interpreted=..., folder=...)     JITFunction or InterpretedFunction
    Rebuilt(functions, interpreted=..., folder=...)[key]     likewise, for kernels which share functions
    value(json, rebuilt)                                     constant of a trace, as Triton expects it

The rebuilt function's file is `folder/KEY/candidate.py` (no file is written), its lines are those
of the candidate's file. Rebuilding executes the definition and computes default values; both need
a sandboxed process, like everything made from a candidate's text.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from kernelwright.tools.compiling.text import dynamic_values, vocabulary
from kernelwright.tools.compiling.text.constants import constexpr_functions, functions_in, value
from kernelwright.tools.compiling.text.grammar import Refusal, TextRefused, examine
from kernelwright.tools.compiling.text.signature import (
    CONSTEXPR,
    Defaults,
    constexpr_parameters,
    reduce_annotations,
)
from kernelwright.tools.compiling.text.triton_functions import (
    code,
    compiled,
    constant,
    constant_code,
    interpreted_code,
    late,
    patched,
)
from kernelwright.tools.compiling.text.triton_functions import interpreted as interpreted_function
from kernelwright.tools.report import Failed, Failure, SourceLine, clean_text
from kernelwright.tools.trace.trace import Function, Json

FILE = "candidate.py"
__all__ = [
    "FILE",
    "Rebuilt",
    "TextFailed",
    "candidate_line",
    "check",
    "failure_of",
    "file_name",
    "rebuild",
    "value",
]

MAX_LINE = 200_000
"""Line and column of a definition beyond which a trace is not believed."""
_LANGUAGE = "__triton_language__"
"""Name of Triton's language in a kernel's globals, for the interpreter; not spellable in a
kernel.
"""


def check(function: Function, *, fields: Collection[str] = ()) -> Failure | None:
    """Returns why a text is no kernel, with the line in the candidate's file; None if allowed.

    fields: field names of named tuples among a kernel's constants, which are allowed as
    attributes.
    """
    try:
        examine(function, fields)
    except TextRefused as refused:
        return failure_of(refused.refusal, function, function.name)
    return None


def failure_of(refusal: Refusal, function: Function, kernel: str) -> Failure:
    """A refusal as the failure of a kernel."""
    message = clean_text(
        f"kernel {kernel} does not compile: {refusal.message}".replace("\n", " "), 600
    )
    source_line = candidate_line(function, refusal.line, refusal.column)
    return Failure(fault=refusal.fault, cheat=refusal.cheat, message=message, where=source_line)


def candidate_line(function: Function, line: int, column: int) -> SourceLine | None:
    """Converts a position in a function's text to a line of the candidate's file. None for a
    function of a library.

    line: from 1. column: from 0, in bytes of UTF-8, as in Python's syntax trees.
    """
    lines = function.text.split("\n")
    if function.file or not 0 < line <= len(lines) or not 0 < function.line < MAX_LINE:
        return None
    text = lines[line - 1]
    before = len(text.encode()[:column].decode("utf-8", "ignore"))
    indented = clean_text(" " * min(function.indent, 200) + text, 400)
    return SourceLine(line=function.line + line - 1, column=before + function.indent, text=indented)


def rebuild(
    functions: Mapping[str, Function], entry: str, *, interpreted: bool, folder: Path
) -> Any:
    """Rebuilds a kernel with all functions it calls. Raises Failed."""
    return Rebuilt(functions, interpreted=interpreted, folder=folder)[entry]


class TextFailed(Failed):
    """Raised for a function whose text is refused.

    The message names the function, which may differ from the kernel that calls it.
    """

    def __init__(self, key: str, function: Function, refusal: Refusal) -> None:
        super().__init__(failure_of(refusal, function, function.name))
        self.key = key
        self.refusal = refusal


class Foreign:
    """Stands for an object which a trace cannot hold. Any use fails in Triton, with Triton's own
    message.
    """

    __slots__ = ()


class Rebuilt(Mapping[str, Any]):
    """Functions of a trace, rebuilt on first access."""

    def __init__(
        self,
        functions: Mapping[str, Function],
        *,
        interpreted: bool,
        folder: Path,
        fields: Collection[str] = (),
    ) -> None:
        self.functions = functions
        self._interpreted = interpreted
        self._folder = folder
        self._fields = fields
        self._rebuilt: dict[str, Any] = {}
        self._worlds: dict[str, dict[str, Any]] = {}
        """Names of functions in which those of other functions are not filled in yet."""
        self._constant = constexpr_functions(functions)
        self._failed: dict[str, Failed] = {}
        self._begun: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        """Rebuilds a function and all functions it names. Raises KeyError for an unknown key,
        Failed for a refused text.
        """
        closure = self._closure(key)
        for each in closure:
            self._make(each)
        for each in closure:
            self._finish(each)
        return self._rebuilt[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def texts(self, key: str) -> list[str]:
        """Returns the text of a function and of all functions it names. Raises KeyError."""
        return [self.functions[each].text for each in self._closure(key)]

    def _closure(self, key: str) -> list[str]:
        """Returns a function and all functions it names, itself first. Raises KeyError."""
        functions = {key: self.functions[key]}
        waiting = [key]
        while waiting:
            for form in functions[waiting.pop()].names.values():
                new = [k for k in functions_in(form) if k in self.functions and k not in functions]
                functions |= {k: self.functions[k] for k in new}
                waiting += new
        return list(functions)

    def _make(self, key: str) -> Any:
        if key in self._failed:
            raise self._failed[key]
        if key in self._rebuilt:
            return self._rebuilt[key]
        function = self.functions[key]
        with self._blamed_on(key):
            if key in self._begun:
                raise TextRefused(Refusal("a default value of a function is the function itself"))
            self._begun.add(key)
            if not 0 < function.line < MAX_LINE or not 0 <= function.indent < MAX_LINE:
                raise TextRefused(Refusal("the line of a kernel is no line of a file"))
            definition = examine(function, self._fields)
            world = self._world(function)
            python = self._python(key, function, definition, world)
            if key in self._constant:
                rebuilt = constant(python, function, definition)
            else:
                rebuilt = (
                    interpreted_function(python)
                    if self._interpreted
                    else compiled(python, function, definition)
                )
            self._worlds[key], self._rebuilt[key] = world, rebuilt
        return rebuilt

    def _finish(self, key: str) -> None:
        """Binds the functions named by a function, which may name each other."""
        if (world := self._worlds.pop(key, None)) is not None:
            with self._blamed_on(key):
                forms = self.functions[key].names.items()
                world |= {
                    name: self._named(name, form) for name, form in forms if functions_in(form)
                }

    @contextlib.contextmanager
    def _blamed_on(self, key: str) -> Iterator[None]:
        """Whatever goes wrong with a text is the candidate's failure, and goes wrong again."""
        try:
            yield
        except Failed as failed:
            self._failed[key] = failed
            raise
        except Exception as error:
            words = Refusal(clean_text(f"{type(error).__name__}: {error}", 300))
            refusal = error.refusal if isinstance(error, TextRefused) else words
            self._failed[key] = TextFailed(key, self.functions[key], refusal)
            raise self._failed[key] from None

    # ---------------------------------------------------------------- names
    def _world(self, function: Function) -> dict[str, Any]:
        import triton.language as tl

        allowed = {name: getattr(builtins, name) for name in vocabulary.BUILTINS}
        if self._interpreted:
            allowed |= dynamic_values.python_builtins() | {"print": late(tl, "device_print")}
        world = {
            "__builtins__": allowed,
            "__name__": function.file or "candidate",
            _LANGUAGE: tl,
            CONSTEXPR: tl.constexpr,
        }
        later = {name for name, form in function.names.items() if functions_in(form)}
        return world | {
            n: self._named(n, form) for n, form in function.names.items() if n not in later
        }

    def _named(self, name: str, form: Json) -> Any:
        [(kind, inner)] = form.items()
        if kind == "members":
            space = types.ModuleType(name)
            for member, its_form in inner.items():
                setattr(space, member, self._named(member, its_form))
            return space
        if kind == "value":
            return value(inner, _Making(self._make))
        if kind == "unknown":
            return Foreign()
        restored = value(form, _Making(self._make))
        return patched(inner, restored) if kind == "triton" and self._interpreted else restored

    # ---------------------------------------------------------------- functions
    def _python(
        self, key: str, function: Function, definition: ast.FunctionDef, world: dict[str, Any]
    ) -> Any:
        """Executes the definition at the candidate's lines. Changes `definition` to the form
        which Triton reads.
        """
        annotations = constexpr_parameters(definition)
        defaults = Defaults.of(definition)
        reduce_annotations(definition, function.names)
        path = str(self._folder / file_name(key) / FILE)
        line = function.line
        namespace = dict[str, Any]()
        if key in self._constant:
            exec(constant_code(definition, line, path), world, namespace)
        elif self._interpreted:
            exec(interpreted_code(definition, line, path, function.names, world), world, namespace)
        else:
            exec(code(definition, line, path), world, namespace)
        python = namespace[function.name]
        python.__annotations__ = annotations
        needed = defaults.names()
        later = {
            n: self._named(n, f)
            for n, f in function.names.items()
            if n in needed and functions_in(f)
        }
        python.__defaults__, python.__kwdefaults__ = defaults.values(world | later)
        if any(
            other is not function and _same_name(other, function)
            for other in self.functions.values()
        ):
            python.__qualname__ = f"{function.name}_{len(self._rebuilt)}"  # Triton tells functions apart by their names
        return python


def _same_name(first: Function, other: Function) -> bool:
    return first.name == other.name and first.file == other.file


class _Making(Mapping[str, Any]):
    """Functions as `value` asks for them, made and not yet finished."""

    def __init__(self, make: Callable[[str], Any]) -> None:
        self._make = make

    def __getitem__(self, key: str) -> Any:
        return self._make(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def file_name(key: str) -> str:
    """Returns the folder name for a function's file: its key, with characters allowed by every
    file system.
    """
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in key[:80]).lstrip(".") or "_"
