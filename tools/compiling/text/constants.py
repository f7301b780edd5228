"""Restores constants of a trace as Triton expects them: plain types, types of Triton and torch,
device functions, and tuples of these.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kernelwright.tools.compiling.text import vocabulary
from kernelwright.tools.report import clean_text
from kernelwright.tools.trace.trace import Function, Json, Kernel


def value(form: Json, functions: Mapping[str, Any]) -> Any:
    """Restores a constant from its form in a trace.

    Lists become tuples, because a kernel could pass changes of a list to its next program. Raises
    ValueError for an unknown form; Failed if a device function cannot be rebuilt.
    """
    if (
        form is None
        or isinstance(form, bool | int | str)
        or (isinstance(form, float) and math.isfinite(form))
    ):
        return form
    if isinstance(form, list | tuple):
        return tuple(value(inner, functions) for inner in form)
    if isinstance(form, dict) and len(form) == 1:
        [(kind, inner)] = form.items()
        if (restore := _RESTORE.get(kind)) is not None:
            return restore(inner, functions)
    raise ValueError(f"not a constant that a kernel can have: {clean_text(form, 80)}")


def named_tuple(values: tuple[Any, ...], fields: Sequence[str] | None) -> tuple[Any, ...]:
    """Returns the values as a named tuple if there are field names.

    Raises ValueError for invalid names, or if the counts differ.
    """
    if not fields:
        return values
    if len(values) != len(fields):
        raise ValueError("a named tuple whose fields are not those of its signature")
    return collections.namedtuple("Fields", fields)(*values)


def _restore_tuple(inner: Json, functions: Mapping[str, Any]) -> Any:
    if not isinstance(inner, list | tuple):
        raise ValueError("a tuple without values")
    return value(inner, functions)


def _restore_function(key: Json, functions: Mapping[str, Any]) -> Any:
    if not isinstance(key, str):
        raise ValueError("a device function without a key")
    try:
        return functions[key]
    except KeyError:
        raise ValueError(f"no device function {key[:60]}") from None


def _restore_triton(qualified_name: Json, _: object) -> Any:
    try:
        return vocabulary.find(str(qualified_name))
    except (vocabulary.NotThere, vocabulary.NotNameable) as error:
        raise ValueError(str(error)) from None


def _restore_float(text: Json, _: object) -> float:
    if not isinstance(text, str) or not vocabulary.is_infinite(text):
        raise ValueError("not a number in the form of a constant")
    return float(text)


def _restore_constexpr(inner: Json, functions: Mapping[str, Any]) -> Any:
    import triton.language as tl

    return tl.constexpr(value(inner, functions))


def _restore_tl_dtype(name: Json, _: object) -> Any:
    if (dtype := vocabulary.dtypes().get(str(name))) is None:
        raise ValueError(f"not a type of Triton: {clean_text(name, 60)}")
    return dtype


def _restore_pointer(name: Json, functions: Mapping[str, Any]) -> Any:
    import triton.language as tl

    return tl.pointer_type(_restore_tl_dtype(name, functions))


def _restore_dtype(name: Json, _: object) -> Any:
    import torch

    dtype = getattr(torch, str(name), None)
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"not a type of torch: {clean_text(name, 60)}")
    return dtype


_RESTORE: dict[str, Callable[[Json, Any], Any]] = {
    "tuple": _restore_tuple,
    "float": _restore_float,
    "tl_dtype": _restore_tl_dtype,
    "pointer_type": _restore_pointer,
    "dtype": _restore_dtype,
    "constexpr": _restore_constexpr,
    "function": _restore_function,
    "constexpr_function": _restore_function,
    "triton": _restore_triton,
}


def fields_of(kernels: Iterable[Kernel]) -> frozenset[str]:
    """The names of all fields of named tuples among the parameters of kernels, which attributes
    in their texts may have.
    """
    return frozenset(
        name
        for kernel in kernels
        for names in getattr(kernel, "fields", {}).values()
        for name in names
    )


def constexpr_functions(functions: Mapping[str, Function]) -> frozenset[str]:
    """Returns the keys of functions used as `@triton.constexpr_function`: Python over constants,
    run during compilation.
    """
    keys: set[str] = set()
    waiting: list[Json] = [
        form for function in functions.values() for form in function.names.values()
    ]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            keys |= {key for key in (inner.get("constexpr_function"),) if isinstance(key, str)}
            waiting += inner.values()
        elif isinstance(inner, list | tuple):
            waiting += inner
    return frozenset(keys)


def functions_in(form: Json) -> list[str]:
    """Returns the keys of device functions of the same trace inside a constant."""
    keys: list[str] = []
    waiting = [form]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, dict):
            keys += [
                key
                for key in (inner.get("function"), inner.get("constexpr_function"))
                if isinstance(key, str)
            ]
            waiting += inner.values()
        elif isinstance(inner, list | tuple):
            waiting += inner
    return keys
