"""What a kernel may name: the objects of Triton that its language consists of, Python's builtins that Triton compiles,
and the attributes of values.

Everything is a white list. An object is found by walking from one of Triton's own modules by public names, and it must
end in something that a kernel can use: a builtin or a device function of Triton, a type, a constant, or another module
of the list. Nothing foreign that Triton's modules happen to import is reached.
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
"""Modules that a kernel may name, by their own names."""

LIBDEVICE = frozenset(name for name in MODULES if name.endswith(".libdevice"))
"""Their functions are stubs, which the backend replaces."""
TOP_LEVEL = frozenset({"cdiv", "language", "next_power_of_2"})
"""What a kernel may name of the package `triton` itself."""
HELPERS = frozenset({"get_int_dtype"})
"""Functions of triton.language.core that are no builtins of the language, and that kernels of libraries call: they
compute with types and integers.
"""
CLASSES = frozenset({
    "PropagateNan", "block_type", "condition", "const", "constexpr", "constexpr_type", "dtype", "pointer_type", "range",
    "slice", "static_range", "tensor",
    "tensor_descriptor", "tensor_descriptor_base", "tensor_descriptor_type", "tuple", "tuple_type",
})  # fmt: skip
"""Classes of triton.language.core that a kernel may name."""

BUILTINS = frozenset({
    "float", "getattr", "hasattr", "int", "isinstance", "len", "list", "max", "min", "print", "range",
})  # fmt: skip
"""Python's builtins that Triton's code generator knows (CodeGenerator.builtin_namespace)."""

RESERVED = frozenset({"interpreter_semantic", "interpreter_builder", "_InterpreterComparison"})
"""Names that Triton's interpreter puts into a kernel's namespace."""

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
    """What a kernel names is there and is none of a kernel's business. The message is one line."""


class NotThere(Exception):
    """What a kernel names does not exist. The message is Python's own."""


@functools.cache
def value_attributes() -> frozenset[str]:
    """Attributes that a kernel may ask a value for: methods of tensors and descriptors, properties of types.

    Asked once, before anything is interpreted.
    """
    import triton.language as tl

    methods = {n for owner in (tl.tensor, tl.tensor_descriptor) for n in dir(owner)}
    types_ = {n for n in dir(tl.block_type) if n.startswith("is_")}
    return frozenset(
        {n for n in methods if not n.startswith("_")} | types_ | _OF_TYPES | _OF_VALUES
    )


@functools.cache
def internal_attributes() -> frozenset[str]:
    """Attributes of what a kernel can hold that are none of its business: no field of a named tuple is read by one
    of these names.
    """
    import triton.language as tl
    from triton.runtime import interpreter, jit

    owners = (
        tl.tensor, tl.tensor_descriptor, tl.constexpr, tl.dtype, tl.block_type, tl.pointer_type, jit.JITFunction,
        interpreter.InterpretedFunction,
        interpreter.TensorHandle, interpreter.TensorDescHandle, interpreter.InterpreterBuilder, str, bytes, dict, float,
        type, types.FunctionType,
    )  # fmt: skip
    found = {name for owner in owners for name in dir(owner)} | {
        "handle",
        "base",
        "data",
        "attr",
        "rewriter",
        "kwargs",
    }
    found |= {name for value in (tl.sum, tl.cdiv, tl.max) for name in vars(value)}
    for module in MODULES:
        with contextlib.suppress(ImportError):
            found |= set(vars(importlib.import_module(module))) - members(module)
    return frozenset(found - value_attributes() - {"count", "index"})


@functools.cache
def members(module_name: str) -> frozenset[str]:
    """Names of one module of `MODULES` that a kernel may use.

    It is asked once for each module and kept, since the interpreter replaces builtins while a kernel runs.
    """
    module = importlib.import_module(module_name)
    importlib.import_module("triton.runtime.interpreter")
    found = {
        n
        for n, value in list(vars(module).items())
        if not n.startswith("__") and _nameable(value, n, module_name)
    }
    found |= {
        n
        for n in ("core", "extra", "math", "random", "standard")
        if module_name == "triton.language"
    }
    return frozenset(found & TOP_LEVEL if module_name == "triton" else found)


def _nameable(value: Any, name: str, owner: str) -> bool:
    import triton.language as tl
    from triton.runtime import jit
    from triton.runtime.interpreter import InterpretedFunction

    if isinstance(value, types.ModuleType):
        return value.__name__ in MODULES and owner.startswith("triton")
    if owner == "math":
        return isinstance(value, types.BuiltinFunctionType | float)
    if isinstance(value, type):
        return name in CLASSES and getattr(tl.core, name, getattr(tl, name, None)) is value
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
            owner in LIBDEVICE or owner == "triton" or name in HELPERS or tl.core.is_builtin(value)
        )
    return False


def member(module: types.ModuleType, name: str) -> Any:
    """The object that `module.name` is. Raises NotThere or NotNameable."""
    if name in members(module.__name__):
        return getattr(module, name)
    if not hasattr(module, name):
        raise NotThere(
            repr(AttributeError(f"module {module.__name__!r} has no attribute {name!r}"))
        )
    raise NotNameable(f"{module.__name__}.{name} is no part of Triton's language")


def find(place: str) -> Any:
    """The object of {"triton": place}: a module by its name, or `module:qualified.name`.

    Raises NotThere or NotNameable.
    """
    module_name, _, path = place.partition(":")
    if module_name not in MODULES:
        raise NotNameable(f"{module_name[:120]} is no part of Triton's language")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError:
        raise NotThere(f"this Triton has no {module_name}") from None
    for name in path.split(".") if path else ():
        if isinstance(found, types.ModuleType):
            found = member(found, name)
        elif name in value_attributes() and hasattr(found, name):
            found = getattr(found, name)
        else:
            raise NotNameable(f"{place[:120]} is no part of Triton's language")
    return found


@functools.cache
def dtypes() -> dict[str, Any]:
    """Triton's scalar types by their short names (fp16) and by their names in the language (float16)."""
    import triton.language as tl

    found = {name: value for name, value in vars(tl).items() if type(value) is tl.dtype}
    return found | {str(value): value for value in found.values()}


def is_infinite(text: str) -> bool:
    """Whether {"float": text} is one of the three numbers that JSON has no word for."""
    return text in ("inf", "-inf", "nan") and not math.isfinite(float(text))
