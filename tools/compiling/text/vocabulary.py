"""White list of names for kernels: the objects of Triton's language, Python builtins supported by
Triton, and attributes of values.

An object is found by walking from a module of Triton by public names, and must end in a builtin
or device function of Triton, a type, a constant, or another module on the list. Foreign modules
imported by Triton's modules are not reachable.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import types
from typing import Any

MODULES = frozenset({
    "math",
    "triton",
    "triton.language",
    "triton.language.core",
    "triton.language.extra",
    "triton.language.extra.cuda",
    "triton.language.extra.cuda.gdc",
    "triton.language.extra.cuda.libdevice",
    "triton.language.extra.cuda.utils",
    "triton.language.extra.hip",
    "triton.language.extra.hip.libdevice",
    "triton.language.extra.hip.utils",
    "triton.language.extra.libdevice",
    "triton.language.math",
    "triton.language.random",
    "triton.language.standard",
    "triton.language.target_info",
})  # fmt: skip
"""Modules which a kernel may name."""

LIBDEVICE = frozenset(name for name in MODULES if name.endswith(".libdevice"))
"""Their functions are stubs, which the backend replaces."""
TOP_LEVEL = frozenset({"cdiv", "language", "next_power_of_2"})
"""Names which a kernel may use of the package `triton` itself."""
LANGUAGE_HELPERS = frozenset({"get_int_dtype"})
"""Functions of triton.language.core which are no builtins, and which kernels of libraries call:
they compute with types and integers.
"""
LANGUAGE_CLASSES = frozenset({
    "PropagateNan", "block_type", "condition", "const", "constexpr", "constexpr_type", "dtype", "pointer_type", "range",
    "slice", "static_range", "tensor",
    "tensor_descriptor", "tensor_descriptor_base", "tensor_descriptor_type", "tuple", "tuple_type",
})  # fmt: skip
"""Classes of triton.language.core which a kernel may name."""

BUILTINS = frozenset({
    "float", "getattr", "hasattr", "int", "isinstance", "len", "list", "max", "min", "print", "range",
})  # fmt: skip
"""Python's builtins supported by Triton's code generator (CodeGenerator.builtin_namespace)."""

RESERVED = frozenset({"interpreter_semantic", "interpreter_builder", "_InterpreterComparison"})
"""Names added to a kernel's namespace by Triton's interpreter."""

_OF_TYPES = frozenset({
    "BOOLEAN", "KIND", "SIGNED", "SIGNEDNESS", "UNSIGNED", "address_space", "const", "element_ty", "exponent_bias",
    "fp_mantissa_width", "get_block_shapes",
    "get_int_max_value", "get_int_min_value", "int_bitwidth", "int_signedness", "itemsize", "kind", "name", "nbytes",
    "numel", "primitive_bitwidth", "scalar",
})  # fmt: skip
_OF_VALUES = frozenset({
    "ALL", "NONE", "T", "block_shape", "block_type", "dtype", "shape", "strides", "type", "value",
})  # fmt: skip


class NotNameable(Exception):
    """Raised for an existing object which kernels may not name. The message is a single line."""


class NotThere(Exception):
    """Raised for a missing name. The message is Python's own."""


@functools.cache
def value_attributes() -> frozenset[str]:
    """Returns the allowed attributes of values: methods of tensors and descriptors, properties of
    types.

    Cached before anything is interpreted.
    """
    import triton.language as tl

    methods = {n for owner in (tl.tensor, tl.tensor_descriptor) for n in dir(owner)}
    types_ = {n for n in dir(tl.block_type) if n.startswith("is_")}
    return frozenset(
        {n for n in methods if not n.startswith("_")} | types_ | _OF_TYPES | _OF_VALUES
    )


@functools.cache
def internal_attributes() -> frozenset[str]:
    """Returns internal attributes of values in kernels; named tuples may have no field with such
    a name.
    """
    import triton.language as tl
    from triton.runtime import interpreter, jit

    owners = (
        tl.tensor, tl.tensor_descriptor, tl.constexpr, tl.dtype, tl.block_type, tl.pointer_type, jit.JITFunction,
        interpreter.InterpretedFunction,
        interpreter.TensorHandle, interpreter.TensorDescHandle, interpreter.InterpreterBuilder, str, bytes, dict, float,
        type, types.FunctionType,
    )  # fmt: skip
    names = {name for owner in owners for name in dir(owner)} | {
        "handle",
        "base",
        "data",
        "attr",
        "rewriter",
        "kwargs",
    }
    names |= {name for value in (tl.sum, tl.cdiv, tl.max) for name in vars(value)}
    for module in MODULES:
        with contextlib.suppress(ImportError):
            names |= set(vars(importlib.import_module(module))) - members(module)
    return frozenset(names - value_attributes() - {"count", "index"})


@functools.cache
def members(module_name: str) -> frozenset[str]:
    """Returns the names which a kernel may use of a module of `MODULES`.

    Cached at the first call, because the interpreter replaces builtins while a kernel runs.
    """
    module = importlib.import_module(module_name)
    importlib.import_module("triton.runtime.interpreter")
    names = {
        n
        for n, value in list(vars(module).items())
        if not n.startswith("__") and _nameable(value, n, module_name)
    }
    names |= {
        n
        for n in ("core", "extra", "math", "random", "standard")
        if module_name == "triton.language"
    }
    return frozenset(names & TOP_LEVEL if module_name == "triton" else names)


def _nameable(value: object, name: str, owner: str) -> bool:
    import triton.language as tl
    from triton.runtime import jit
    from triton.runtime.interpreter import InterpretedFunction

    if isinstance(value, types.ModuleType):
        return value.__name__ in MODULES and owner.startswith("triton")
    if owner == "math":
        return isinstance(value, types.BuiltinFunctionType | float)
    if isinstance(value, type):
        return name in LANGUAGE_CLASSES and getattr(tl.core, name, getattr(tl, name, None)) is value
    if isinstance(value, tl.dtype | tl.constexpr | int | float):
        return True
    device_function = getattr(jit, "JITCallable", jit.JITFunction)
    if isinstance(
        value,
        device_function | InterpretedFunction | getattr(jit, "ConstexprFunction", jit.JITFunction),
    ):
        return (
            str(getattr(getattr(value, "fn", value), "__module__", "")).partition(".")[0]
            == "triton"
        )
    if name.startswith("_"):
        return False  # of what is private, libraries name the device functions
    if isinstance(value, types.FunctionType):
        return (
            owner in LIBDEVICE
            or owner == "triton"
            or name in LANGUAGE_HELPERS
            or tl.core.is_builtin(value)
        )
    return False


def member(module: types.ModuleType, name: str) -> Any:
    """Returns the object `module.name`. Raises NotThere or NotNameable."""
    if name in members(module.__name__):
        return getattr(module, name)
    if not hasattr(module, name):
        raise NotThere(
            repr(AttributeError(f"module {module.__name__!r} has no attribute {name!r}"))
        )
    raise NotNameable(f"{module.__name__}.{name} is no part of Triton's language")


def find(qualified_name: str) -> Any:
    """The object of {"triton": place}: a module by its name, or `module:qualified.name`.

    Raises NotThere or NotNameable.
    """
    module_name, _, path = qualified_name.partition(":")
    if module_name not in MODULES:
        raise NotNameable(f"{module_name[:120]} is no part of Triton's language")
    try:
        value: object = importlib.import_module(module_name)
    except ImportError:
        raise NotThere(f"this Triton has no {module_name}") from None
    for name in path.split(".") if path else ():
        if isinstance(value, types.ModuleType):
            value = member(value, name)
        elif name in value_attributes() and hasattr(value, name):
            value = getattr(value, name)
        else:
            raise NotNameable(f"{qualified_name[:120]} is no part of Triton's language")
    return value


@functools.cache
def dtypes() -> dict[str, Any]:
    """Triton's scalar types by their short names (fp16) and by their names in the language (float16)."""
    import triton.language as tl

    types_by_name = {name: value for name, value in vars(tl).items() if type(value) is tl.dtype}
    return types_by_name | {str(value): value for value in types_by_name.values()}


def is_infinite(text: str) -> bool:
    """Returns whether {"float": text} is an infinity or NaN, which JSON cannot write."""
    return text in ("inf", "-inf", "nan") and not math.isfinite(float(text))
