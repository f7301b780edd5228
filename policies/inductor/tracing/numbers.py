"""`int`, `float`, `len`, `min` and `max` of sizes that are symbols: Python's own ask for the number, or which is the
larger one, and are right at some sizes only.
"""

from __future__ import annotations

import ast
import builtins
import functools
from typing import Any

WORDS = {"int": "__whole__", "float": "__real__", "len": "__length__", "min": "__least__", "max": "__most__"}
"""Python's name -> the name under which a module calls the one of ours."""


def whole(*given: Any, **named: Any) -> Any:
    """`int`, which keeps symbols."""
    import torch

    if given and isinstance(given[0], torch.SymInt | torch.SymFloat):
        return torch.sym_int(given[0])
    return builtins.int(*given, **named)


def length(value: Any) -> Any:
    """`len`, which of a tensor is a symbol."""
    import torch

    return value.shape[0] if isinstance(value, torch.Tensor) and value.dim() else builtins.len(value)


def least(*given: Any, **named: Any) -> Any:
    """`min`, which keeps symbols."""
    return _extreme("min", given, named)


def most(*given: Any, **named: Any) -> Any:
    """`max`, which keeps symbols."""
    return _extreme("max", given, named)


def _extreme(name: str, given: tuple[Any, ...], named: dict[str, Any]) -> Any:
    import torch

    values = list(given[0]) if len(given) == 1 and isinstance(given[0], list | tuple) else list(given)
    symbolic = any(isinstance(v, torch.SymInt | torch.SymFloat) for v in values)
    if not symbolic or named or not all(isinstance(v, torch.SymInt | torch.SymFloat | int | float) for v in values):
        return getattr(builtins, name)(*given, **named)
    two = {"min": torch.sym_min, "max": torch.sym_max}[name]
    return functools.reduce(two, values)


class _Standing(type):
    """For a type of Python's in `isinstance`."""

    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, builtins.float)


class Real(metaclass=_Standing):
    """`float`, which keeps symbols."""

    def __new__(cls, *given: Any) -> Any:
        import torch

        if given and isinstance(given[0], torch.SymInt | torch.SymFloat):
            return torch.sym_float(given[0])
        return builtins.float(*given)


def tensor_of(plain: Any) -> Any:
    """`torch.tensor`, which keeps a size that it is given."""

    def tensor(data: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
        import torch

        if not isinstance(data, torch.SymInt | torch.SymFloat):
            return plain(data, dtype=dtype, device=device, **options)
        number: Any = data
        whole = torch.int64 if isinstance(data, torch.SymInt) else torch.get_default_dtype()
        return torch.full((), number, dtype=dtype or whole, device=device)

    return tensor


def with_numbers(tree: ast.Module) -> ast.Module:
    """The same module with its calls of these functions as calls of ours, which `number_names` has."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            node.func.id = WORDS.get(node.func.id, node.func.id)
    return tree


def number_names() -> dict[str, Any]:
    """What a module of `with_numbers` needs."""
    return {WORDS["int"]: whole, WORDS["float"]: Real, WORDS["len"]: length, WORDS["min"]: least, WORDS["max"]: most}
