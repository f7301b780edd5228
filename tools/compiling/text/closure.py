"""Lists the functions of a kernel in an order of its own, and computes the content address of a
compilation.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from kernelwright.tools.compiling.text.constants import functions_in
from kernelwright.tools.trace.trace import Function, Json, Kernel


class Contents:
    """Functions of a trace. Each text is read once, however many kernels use it."""

    def __init__(self, functions: Mapping[str, Function]) -> None:
        self._functions = functions
        self._called: dict[str, tuple[str, ...]] = {}
        self._digests: dict[str, str] = {}
        self._closures: dict[tuple[str, ...], tuple[dict[str, int], str]] = {}

    def closure(self, kernel: Kernel) -> list[str]:
        """Returns the keys of a kernel's function, of functions among its constants, and of all
        functions they name, in an order which depends only on texts and names.
        """
        return list(self._closure(kernel)[0])

    def address(self, kernel: Kernel, target: str, version: str) -> str:
        """Returns the content address of a compilation: SHA-256, hex.

        Lines of the candidate's file and keys of the trace do not enter. version: of Triton and
        of everything else that affects the outcome.
        """
        numbers, digest = self._closure(kernel)
        numbered = _numbered(kernel.model_dump(exclude={"function"}), numbers)
        return _sha256([digest, numbered, target, version])

    def _closure(self, kernel: Kernel) -> tuple[dict[str, int], str]:
        """Returns the keys with their numbers, and a digest of all functions behind them."""
        entries = (
            kernel.function,
            *(key for _, form in kernel.constants for key in functions_in(form)),
        )
        if entries not in self._closures:
            numbers: dict[str, int] = {}
            waiting = list(reversed(entries))
            while waiting:
                key = waiting.pop()
                if key in self._functions and key not in numbers:
                    numbers[key] = len(numbers)
                    waiting += reversed(self._called_by(key))
            digests = [
                [self._digest(key), [numbers.get(c, -1) for c in self._called_by(key)]]
                for key in numbers
            ]
            self._closures[entries] = numbers, _sha256(digests)
        return self._closures[entries]

    def _called_by(self, key: str) -> tuple[str, ...]:
        """Returns the keys of the functions named by a function, without duplicates, in the order
        of the names.
        """
        if key not in self._called:
            names = self._functions[key].names
            self._called[key] = tuple(
                dict.fromkeys(k for name in sorted(names) for k in functions_in(names[name]))
            )
        return self._called[key]

    def _digest(self, key: str) -> str:
        """Returns the digest of a single function; functions named in it enter as numbers."""
        if key not in self._digests:
            numbers = {called: number for number, called in enumerate(self._called_by(key))}
            fields = self._functions[key].model_dump(exclude={"line", "indent"})
            self._digests[key] = _sha256(fields | {"names": _numbered(fields["names"], numbers)})
        return self._digests[key]


def _sha256(content: Json) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _numbered(form: Json, numbers: Mapping[str, int]) -> Json:
    """A form in which the keys of functions, which differ between traces, are numbers."""
    if isinstance(form, dict):
        if len(form) == 1:
            [(kind, key)] = form.items()
            if kind in ("function", "constexpr_function") and isinstance(key, str):
                return {kind: numbers.get(key, -1)}
        return {name: _numbered(inner, numbers) for name, inner in form.items()}
    return [_numbered(inner, numbers) for inner in form] if isinstance(form, list | tuple) else form
