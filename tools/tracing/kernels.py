"""Serialises kernels: the arguments of `triton.compile` as values of `tools.tracing.trace`.

Runs in a candidate's process. Example: for

    SCALE = tl.constexpr(2.0)
    @triton.jit
    def k(x, BLOCK: tl.constexpr): tl.store(x + tl.arange(0, BLOCK), helper(SCALE))

function "k.0" gets the names {"tl": {"triton": "triton.language"}, "helper": {"function":
"helper.1"}, "SCALE": {"constexpr": 2.0}}, and `helper` becomes function "helper.1".
"""

from __future__ import annotations

import ast
import types
from pathlib import Path
from typing import Any

from kernelwright.tools.trace.trace import Function, Json, Kernel, key_of

_PLAIN = (bool, int, float, str, type(None))


class NotPlain(TypeError):
    """Raised for a value that no trace can hold. The message names its type."""


class Texts:
    """The functions and kernels of a candidate, each serialised once."""

    def __init__(self, path: str) -> None:
        """path: the candidate's file; functions of other files carry their module's name."""
        self.functions: dict[str, Function] = {}
        self.kernels: dict[str, Kernel] = {}
        self._path = path
        self._keys: dict[int, str] = {}
        self._alive: list[Any] = []
        self._constexpr_functions: dict[int, Any] = {}

    # -------------------------------------------------------------- functions
    def function(self, fn: Any) -> str:
        """Returns the key of a JITFunction; serialises it, and all functions that it names, at the
        first call."""
        if id(fn) in self._keys:
            return self._keys[id(fn)]
        name = str(fn.fn.__name__)
        key = f"{name}.{len(self._keys)}"
        self._keys[id(fn)] = key
        self._alive.append(fn)
        text, line, indent = _text_of(fn)
        file = str(fn.fn.__code__.co_filename)
        is_candidate_file = file == self._path
        self.functions[key] = Function(
            name=name,
            text=text,
            line=line if is_candidate_file else 1,
            indent=indent if is_candidate_file else 0,
            file="" if is_candidate_file else self._package(file, str(fn.fn.__module__)),
            names=self._names(fn, text),
            noinline=bool(getattr(fn, "noinline", False)),
            do_not_specialize=tuple(str(n) for n in getattr(fn, "do_not_specialize", ()) or ()),
        )
        return key

    def _package(self, file: str, module: str) -> str:
        """Returns the package of a source file: empty in the candidate's folder, otherwise the path
        below site-packages."""
        if file.startswith(str(Path(self._path).parent) + "/"):
            return ""
        for part in ("/site-packages/", "/dist-packages/"):
            if part in file:
                return file.rpartition(part)[2].removesuffix(".py").replace("/", ".")[:120]
        return module[:120]

    def _names(self, fn: Any, text: str) -> dict[str, Json]:
        """Returns the meaning of each free name in the source, without builtins."""
        scope = _scope(fn)
        tree = ast.parse(text)
        members = _members(tree)
        in_constexpr = type(fn).__name__ == "ConstexprFunction"
        meanings: dict[str, Json] = {}
        for name in {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}:
            if name in scope:
                meanings[name] = self._named(scope[name], members.get(name, {}), in_constexpr)
        return meanings

    def _constexpr_function(self, plain: types.FunctionType) -> Any:
        """Wraps a Python function over constants that runs at compile time, as
        `@triton.constexpr_function` does."""
        from triton.runtime.jit import ConstexprFunction

        if id(plain) not in self._constexpr_functions:
            self._constexpr_functions[id(plain)] = ConstexprFunction(plain)
        return self._constexpr_functions[id(plain)]

    def _named(self, value: Any, members: dict[str, Any], in_constexpr: bool = False) -> Json:
        """Returns the meaning of a name. in_constexpr: it occurs in a constexpr function, which
        calls plain Python functions."""
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
        if (triton_name := _name_in_triton(value)) is not None:
            return {"triton": triton_name}
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
        """Returns the key of a specialisation. src: Triton's ASTSource. Raises NotPlain."""
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
        """Returns a constant in the trace's format. Raises NotPlain.

        Subclasses of plain types are converted to plain values, without their own data.
        """
        import torch
        import triton.language as tl
        from triton.runtime.jit import JITFunction

        if type(value) is tl.constexpr:
            return self.value(value.value)
        if isinstance(value, JITFunction):
            triton_name = _name_in_triton(value)
            return {"triton": triton_name} if triton_name else {"function": self.function(value)}
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
        if (triton_name := _name_in_triton(value)) is not None:
            return {"triton": triton_name}
        return plain(value)


def plain(value: object) -> Json:
    """Returns a number, a string or None; infinities as {"float": "inf"}. Raises NotPlain."""
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
    """Returns the source that Triton compiles, the line of its `def` in the file, and that line's
    indentation."""
    text = str(fn.src)
    raw = list(fn.raw_src) if not isinstance(fn.raw_src, str) else fn.raw_src.splitlines(True)
    for offset, line in enumerate(raw):
        if line.lstrip().startswith("def "):
            return text, int(fn.starting_line_number) + offset, len(line) - len(line.lstrip())
    return text, int(fn.starting_line_number), 0


def _scope(fn: Any) -> dict[str, Any]:
    """Returns globals and closure variables."""
    scope = dict(fn.fn.__globals__)
    for name, cell in zip(fn.fn.__code__.co_freevars, fn.fn.__closure__ or (), strict=False):
        try:
            scope[name] = cell.cell_contents
        except ValueError:
            continue
    return scope


def _members(tree: ast.AST) -> dict[str, dict[str, Any]]:
    """Returns nested attributes of each name in the source: `a.b.c` gives {"a": {"b": {"c": {}}}}."""
    attributes: dict[str, dict[str, Any]] = {}
    for node in ast.walk(tree):
        chain: list[str] = []
        inner: ast.AST = node
        while isinstance(inner, ast.Attribute) and len(chain) < 8:
            chain.append(inner.attr)
            inner = inner.value
        if chain and isinstance(inner, ast.Name):
            level = attributes.setdefault(inner.id, {})
            for name in reversed(chain):
                level = level.setdefault(name, {})
    return attributes


def _is_triton(module: str) -> bool:
    return module == "triton" or module.startswith("triton.")


def _of_triton(value: object) -> bool:
    return _is_triton(str(getattr(value, "__module__", "")))


def _name_in_triton(value: object) -> str | None:
    """Returns `module:qualified name` of a function or class that Triton itself defines under this
    name; else None."""
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
    resolved: Any = sys.modules.get(module)
    for part in name.split("."):
        resolved = getattr(resolved, part, None)
    return f"{module}:{name}" if resolved is value else None


def _type(value: object) -> Json:
    return [_type(v) for v in value] if isinstance(value, tuple | list) else str(value)


def _type_of_triton(value: object) -> Json:
    import triton.language as tl

    if isinstance(value, tl.pointer_type):
        return {"pointer_type": str(value.element_ty)}
    return {"tl_dtype": str(value)}


def _path(path: Any) -> tuple[int | str, ...]:
    return tuple(
        p if isinstance(p, int) else str(p) for p in (path if isinstance(path, tuple) else (path,))
    )


def _attribute(value: object) -> Json:
    return (
        [[str(a), plain(b)] for a, b in value] if isinstance(value, list | tuple) else plain(value)
    )


def _is_json(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_json, value))
    return type(value) in _PLAIN


def differing(options: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Returns the options that differ from the backend's defaults."""
    return {k: v for k, v in options.items() if k not in defaults or defaults[k] != v}
