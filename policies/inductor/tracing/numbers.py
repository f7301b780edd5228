"""`int`, `float`, `len`, `min` and `max` for symbolic sizes.

Python's functions ask for the number, or for the larger of two, which fixes the draft to some
sizes.
"""

from __future__ import annotations

import ast
import builtins
import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, cast

from kernelwright.policies.inductor.tracing.loop_forms import TensorPieces

if TYPE_CHECKING:
    import torch

WORDS = {
    "int": "__whole__",
    "float": "__real__",
    "len": "__length__",
    "min": "__least__",
    "max": "__most__",
}
"""Name of Python's function -> name of its replacement in a rewritten module."""


def symbolic_int(*args: Any, **named: Any) -> Any:
    """Converts to `int`; a symbolic number stays symbolic."""
    import torch

    if args and isinstance(args[0], torch.SymInt | torch.SymFloat):
        return torch.sym_int(args[0])
    if args and isinstance(size := known_sizes(args[0]), torch.SymInt | torch.SymFloat):
        return torch.sym_int(size)
    return builtins.int(*args, **named)


def symbolic_len(value: Any) -> Any:
    """`len`, which of a tensor or of its pieces is a symbol."""
    import torch

    if isinstance(value, TensorPieces):
        return value.count
    return (
        value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else builtins.len(value)
    )


def symbolic_min(*args: Any, **named: Any) -> Any:
    """Returns the minimum; symbolic for symbolic arguments."""
    return _extreme("min", args, named)


def symbolic_max(*args: Any, **named: Any) -> Any:
    """Returns the maximum; symbolic for symbolic arguments."""
    return _extreme("max", args, named)


def _extreme(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
    import torch

    values = list(args[0]) if len(args) == 1 and isinstance(args[0], list | tuple) else list(args)
    symbolic = any(isinstance(v, torch.SymInt | torch.SymFloat) for v in values)
    if (
        not symbolic
        or named
        or not all(isinstance(v, torch.SymInt | torch.SymFloat | int | float) for v in values)
    ):
        return getattr(builtins, name)(*args, **named)
    two = {"min": torch.sym_min, "max": torch.sym_max}[name]
    return functools.reduce(two, values)


class _Standing(type):
    """Stands for a type of Python's in `isinstance`."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.float)


class Real(metaclass=_Standing):
    """Replacement of `float` that keeps symbolic numbers."""

    def __new__(cls, *args: Any) -> Any:
        """`float(x)`: of a symbolic number the symbolic number in floating point."""
        import torch

        if args and isinstance(args[0], torch.SymInt | torch.SymFloat):
            return torch.sym_float(args[0])
        if args and isinstance(args[0], torch.Tensor):
            value: Any = args[0].item()  # in forward a tensor (functions/tensor_methods.py)
            return value if isinstance(value, torch.Tensor) else builtins.float(value)
        return builtins.float(*args)


def tensor_of(plain: Callable[..., Any]) -> Any:
    """`torch.tensor`, which keeps sizes it is given, alone or in lists."""

    def tensor(
        data: object,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        **options: Any,
    ) -> Any:
        import torch

        numbers = list(_numbers_in(data))
        if not any(isinstance(n, torch.SymInt | torch.SymFloat) for n in numbers):
            return plain(data, dtype=dtype, device=device, **options)
        real = any(isinstance(n, float | torch.SymFloat) for n in numbers)
        filled = _filled(
            data, dtype or (torch.get_default_dtype() if real else torch.int64), device
        )
        return filled if real else with_sizes(filled, data)

    return tensor


SIZES_ATTRIBUTE = "sizes_of_kernelwright"
"""Attribute of a tensor made of sizes: the sizes, as nested lists."""


def with_sizes(tensor: torch.Tensor, sizes: object) -> Any:
    """Notes the sizes a tensor is made of; lists may be nested. Returns the tensor."""
    setattr(tensor, SIZES_ATTRIBUTE, sizes)
    return tensor


def known_sizes(value: object) -> Any:
    """Returns the sizes a tensor is made of, as Python has them; None for any other value."""
    sizes = getattr(value, SIZES_ATTRIBUTE, None)
    return list(sizes) if isinstance(sizes, tuple | list) else sizes


def select_sizes(part: torch.Tensor, whole: object, index: object) -> Any:
    """Notes the sizes of a part of a tensor made of sizes (`torch.tensor(x.shape)[-2:]`).
    Returns the part.
    """
    sizes = known_sizes(whole)
    return (
        with_sizes(part, sizes[index])
        if isinstance(sizes, list) and isinstance(index, int | slice)
        else part
    )


def _numbers_in(data: object) -> Iterator[Any]:
    if isinstance(data, list | tuple):
        for element in data:
            yield from _numbers_in(element)
    else:
        yield data


def _filled(data: object, dtype: torch.dtype, device: torch.device | str | None) -> Any:
    import torch

    if isinstance(data, list | tuple):
        return torch.stack([_filled(element, dtype, device) for element in data])
    if isinstance(data, torch.Tensor):
        return data.to(device=device, dtype=dtype)
    return torch.full((), cast(float, data), dtype=dtype, device=device)


def with_numbers(tree: ast.Module) -> ast.Module:
    """The same module with its calls of these functions as calls of ours, which `number_names` has.

    A name that the module gives another meaning (`from torch import max`) keeps it.
    """
    defined = _defined_names(tree)
    # A module that defines `max` itself keeps its own function.
    words = {name: ours for name, ours in WORDS.items() if name not in defined}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            node.func.id = words.get(node.func.id, node.func.id)
    return tree


def _defined_names(tree: ast.Module) -> set[str]:
    """Names imported, assigned, defined or arguments, anywhere in a module; methods are no
    names.
    """
    defined: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            defined |= {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            defined.add(node.id)
        elif isinstance(node, ast.arg):
            defined.add(node.arg)
        if isinstance(node, ast.Module | ast.FunctionDef):
            defined |= {s.name for s in node.body if isinstance(s, ast.FunctionDef | ast.ClassDef)}
    return defined


def number_names() -> dict[str, Any]:
    """Returns the names a module rewritten by `with_numbers` needs."""
    return {
        WORDS["int"]: symbolic_int,
        WORDS["float"]: Real,
        WORDS["len"]: symbolic_len,
        WORDS["min"]: symbolic_min,
        WORDS["max"]: symbolic_max,
    }
