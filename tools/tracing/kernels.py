"""Kernels as text: what `triton.compile` would be given, written down as values of `tools.tracing.trace`.

Runs in a candidate's process.
"""

from __future__ import annotations

import ast
import types
from pathlib import Path
from typing import Any

from kernelwright.tools.trace.trace import Function, Json, Kernel, key_of

_PLAIN = (bool, int, float, str, type(None))


class NotPlain(TypeError):
    """A value that no trace can hold. The message names its type."""


class Texts:
    """The functions and kernels of one candidate, each written down once."""

    def __init__(self, path: str) -> None:
        """path: the candidate's own file; functions of other files carry the name of their module."""
        self.functions: dict[str, Function] = {}
        self.kernels: dict[str, Kernel] = {}
        self._path = path
        self._keys: dict[int, str] = {}
        self._alive: list[Any] = []
        self._constexpr_functions: dict[int, Any] = {}

    # -------------------------------------------------------------- functions
    def function(self, fn: Any) -> str:
        """The key of a JITFunction; it and all that it names are written down at the first call."""
        if id(fn) in self._keys:
            return self._keys[id(fn)]
        name = str(fn.fn.__name__)
        key = f"{name}.{len(self._keys)}"
        self._keys[id(fn)] = key
        self._alive.append(fn)
        text, line, indent = _text_of(fn)
        file = str(fn.fn.__code__.co_filename)
        own = file == self._path
        self.functions[key] = Function(
            name=name,
            text=text,
            line=line if own else 1,
            indent=indent if own else 0,
            file="" if own else self._package(file, str(fn.fn.__module__)),
            names=self._names(fn, text),
            noinline=bool(getattr(fn, "noinline", False)),
            do_not_specialize=tuple(str(n) for n in getattr(fn, "do_not_specialize", ()) or ()),
        )
        return key

    def _package(self, file: str, module: str) -> str:
        """Returns the package of a text: none in the candidate's own folder, else that under site-packages."""
        if file.startswith(str(Path(self._path).parent) + "/"):
            return ""
        for part in ("/site-packages/", "/dist-packages/"):
            if part in file:
                return file.rpartition(part)[2].removesuffix(".py").replace("/", ".")[:120]
        return module[:120]

    def _names(self, fn: Any, text: str) -> dict[str, Json]:
        """What each free name of the text stands for; names that stand for nothing (builtins) are left out."""
        scope = _scope(fn)
        tree = ast.parse(text)
        members = _members(tree)
        in_constexpr = type(fn).__name__ == "ConstexprFunction"
        found: dict[str, Json] = {}
        for name in {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}:
            if name in scope:
                found[name] = self._named(scope[name], members.get(name, {}), in_constexpr)
        return found

    def _constexpr_function(self, plain: types.FunctionType) -> Any:
        """Python over constants that is called while a kernel is compiled, as `@triton.constexpr_function` marks it."""
        from triton.runtime.jit import ConstexprFunction

        if id(plain) not in self._constexpr_functions:
            self._constexpr_functions[id(plain)] = ConstexprFunction(plain)
        return self._constexpr_functions[id(plain)]

    def _named(self, value: Any, members: dict[str, Any], in_constexpr: bool = False) -> Json:
        """in_constexpr: the name is one of a constexpr function, which calls plain Python functions."""
        from triton.runtime.jit import JITFunction

        if isinstance(value, JITFunction) and not _of_triton(value.fn):
            return {"function": self.function(value)}
        if (
            type(value).__name__ == "ConstexprFunction"
            and _of_triton(type(value))
            and not _of_triton(value.fn)
        ):
            return {"constexpr_function": self.function(value)}
        if isinstance(value, types.ModuleType) and _is_triton(value.__name__):
            return {"triton": value.__name__}
        if (place := _place_in_triton(value)) is not None:
            return {"triton": place}
        if type(value).__name__ == "constexpr" and _of_triton(type(value)):
            if isinstance(value.value, types.FunctionType):
                return {"constexpr_function": self.function(self._constexpr_function(value.value))}
            return {"constexpr": self.value(value.value)}
        if in_constexpr and isinstance(value, types.FunctionType):
            return {"constexpr_function": self.function(self._constexpr_function(value))}
        if isinstance(value, types.ModuleType) or (isinstance(value, type) and members):
            return {
                "members": {
                    m: self._member(value, m, inner)
                    for m, inner in members.items()
                    if hasattr(value, m)
                }
            }
        try:
            return {"value": self.value(value)}
        except NotPlain:
            if members:
                return {
                    "members": {
                        m: self._member(value, m, inner)
                        for m, inner in members.items()
                        if hasattr(value, m)
                    }
                }
            return {"unknown": type(value).__name__[:80]}

    def _member(self, owner: Any, name: str, inner: dict[str, Any]) -> Json:
        return self._named(getattr(owner, name), inner)

    # -------------------------------------------------------------- kernels
    def kernel(self, src: Any, options: dict[str, Any]) -> str:
        """The key of one specialisation. src: triton's ASTSource. Raises NotPlain."""
        fn = src.fn
        kernel = Kernel(
            function=self.function(fn),
            signature={str(k): _type(v) for k, v in src.signature.items()},
            constants=tuple(
                (_path(p), self.value(v))
                for p, v in sorted(src.constants.items(), key=lambda kv: str(kv[0]))
            ),
            attributes=tuple(
                (_path(p), _attribute(a))
                for p, a in sorted((src.attrs or {}).items(), key=lambda kv: str(kv[0]))
                if a
            ),
            options={k: v for k, v in options.items() if _is_json(v)},
            fields={
                str(k): tuple(map(str, type(v)._fields))
                for k, v in src.signature.items()
                if hasattr(type(v), "_fields")
            },
        )
        key = key_of(kernel)
        self.kernels[key] = kernel
        return key

    def value(self, value: Any) -> Json:
        """A constant as a trace holds it.

        Subclasses of plain types become plain: nothing of theirs travels. Raises NotPlain.
        """
        import torch
        import triton.language as tl
        from triton.runtime.jit import JITFunction

        if type(value) is tl.constexpr:
            return self.value(value.value)
        if isinstance(value, JITFunction):
            place = _place_in_triton(value)
            return {"triton": place} if place else {"function": self.function(value)}
        if isinstance(value, tl.dtype):
            return _type_of_triton(value)
        if isinstance(value, torch.dtype):
            return {"dtype": str(value).removeprefix("torch.")}
        if isinstance(value, tuple | list):
            return {
                "tuple": [self.value(v) for v in tuple.__iter__(value)]
                if isinstance(value, tuple)
                else [self.value(v) for v in list.__iter__(value)]
            }
        if (place := _place_in_triton(value)) is not None:
            return {"triton": place}
        return plain(value)


def plain(value: Any) -> Json:
    """A number, a text or nothing; infinities as {"float": "inf"}. Raises NotPlain."""
    if value is None or type(value) is bool:
        return value
    if isinstance(value, bool):
        return bool(value)
    if isinstance(value, int):
        return int.__add__(value, 0)
    if isinstance(value, float):
        number = float.__add__(value, 0.0)
        return number if abs(number) < float("inf") else {"float": str(number)}
    if isinstance(value, str):
        return "".join(str.__iter__(value))[:10_000]
    raise NotPlain(f"a {type(value).__name__}")


def _text_of(fn: Any) -> tuple[str, int, int]:
    """What Triton compiles, the line of its `def` in the file, and how far that is indented."""
    text = str(fn.src)
    raw = list(fn.raw_src) if not isinstance(fn.raw_src, str) else fn.raw_src.splitlines(True)
    for offset, line in enumerate(raw):
        if line.lstrip().startswith("def "):
            return text, int(fn.starting_line_number) + offset, len(line) - len(line.lstrip())
    return text, int(fn.starting_line_number), 0


def _scope(fn: Any) -> dict[str, Any]:
    """Globals, and what the function closes over."""
    scope = dict(fn.fn.__globals__)
    for name, cell in zip(fn.fn.__code__.co_freevars, fn.fn.__closure__ or (), strict=False):
        try:
            scope[name] = cell.cell_contents
        except ValueError:
            continue
    return scope


def _members(tree: ast.AST) -> dict[str, dict[str, Any]]:
    """Attributes that the text takes of each name, nested: `a.b.c` gives {"a": {"b": {"c": {}}}}."""
    found: dict[str, dict[str, Any]] = {}
    for node in ast.walk(tree):
        chain: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute) and len(chain) < 8:
            chain.append(inner.attr)
            inner = inner.value
        if chain and isinstance(inner, ast.Name):
            place = found.setdefault(inner.id, {})
            for name in reversed(chain):
                place = place.setdefault(name, {})
    return found


def _is_triton(module: str) -> bool:
    return module == "triton" or module.startswith("triton.")


def _of_triton(value: Any) -> bool:
    return _is_triton(str(getattr(value, "__module__", "")))


def _place_in_triton(value: Any) -> str | None:
    """`module:qualified name` of a function, class or device function that Triton itself defines and that is found
    there; else None.
    """
    import sys

    target = getattr(value, "fn", value)
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if (
        not isinstance(module, str)
        or not isinstance(name, str)
        or not _is_triton(module)
        or isinstance(value, types.ModuleType)
    ):
        return None
    if (
        not isinstance(value, type | types.FunctionType | types.BuiltinFunctionType)
        and target is value
    ):
        return None
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module}:{name}" if found is value else None


def _type(value: Any) -> Json:
    return [_type(v) for v in value] if isinstance(value, tuple | list) else str(value)


def _type_of_triton(value: Any) -> Json:
    import triton.language as tl

    if isinstance(value, tl.pointer_type):
        return {"pointer_type": str(value.element_ty)}
    return {"tl_dtype": str(value)}


def _path(path: Any) -> tuple[int | str, ...]:
    return tuple(
        p if isinstance(p, int) else str(p) for p in (path if isinstance(path, tuple) else (path,))
    )


def _attribute(value: Any) -> Json:
    return (
        [[str(a), plain(b)] for a, b in value] if isinstance(value, list | tuple) else plain(value)
    )


def _is_json(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_json, value))
    return type(value) in _PLAIN


def differing(options: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """The options that are not the backend's defaults."""
    return {k: v for k, v in options.items() if k not in defaults or defaults[k] != v}
