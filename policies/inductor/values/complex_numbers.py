"""Complex numbers as two tensors of real ones: Triton has no complex type. A traced graph is run once more with a pair
in the place of each complex tensor, leaving no complex tensors for the compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeGuard

import torch
from torch.fx import Interpreter
from torch.utils._pytree import tree_any, tree_map

from kernelwright.policies.inductor.refusing import DraftRefused

aten = torch.ops.aten
REAL_TYPE_OF = {
    torch.complex32: torch.float16,
    torch.complex64: torch.float32,
    torch.complex128: torch.float64,
}
"""Complex type -> the type of its parts."""


COMPLEX = "complex"
"""Marks a complex tensor in the structure of forward's result."""
WRAPPED = "torch.view_as_real(", ")"
"""The text around the path of a complex tensor."""


class Pair(NamedTuple):
    """Real and imaginary part of a complex tensor, of equal shape and dtype."""

    re: Any
    im: Any


Operand = Pair | torch.Tensor | complex
"""Operand of an arithmetic operator."""
MAX_TRANSFORM_ELEMENTS = 46_340
"""Largest number of elements: the largest number whose square is below 2 ** 31."""
OPERATORS_BY_PARTS = {
    "view", "_unsafe_view", "reshape", "unsqueeze", "squeeze", "expand", "permute", "transpose", "t", "slice", "select",
    "clone", "cat", "stack", "index", "index_select", "gather", "alias", "detach", "flip", "roll", "constant_pad_nd",
    "repeat", "sum", "mean", "cumsum", "neg", "sub", "add", "split", "split_with_sizes", "unbind", "zeros_like",
    "slice_scatter", "select_scatter", "index_put", "copy", "where", "diagonal", "unfold", "resolve_conj",
    "resolve_neg", "new_zeros", "lift_fresh_copy", "scatter", "index_copy", "index_add", "as_strided", "empty_like",
    "new_empty",
}  # fmt: skip
"""Operators applied to each part separately."""
IN_PLACE_VIEWS = {"transpose_", "t_", "squeeze_", "unsqueeze_"}
"""Operators that reshape their operand in place; the graph continues with their result."""
CREATING_OPERATORS = {
    "zeros",
    "ones",
    "full",
    "empty",
    "ones_like",
    "full_like",
    "new_ones",
    "new_full",
    "scalar_tensor",
}
"""Operators that make a tensor of numbers: the imaginary part is zero, or the number's own."""
COMPLEX_PRODUCTS = {"mul", "mm", "bmm", "dot", "mv"}
"""Bilinear operators."""


def is_complex(value: object) -> TypeGuard[torch.Tensor]:
    """Returns whether a value (or a node's value) is a complex tensor."""
    return isinstance(value, torch.Tensor) and value.is_complex()


def as_real_argument(path: str, value: object) -> tuple[str, Any]:
    """Returns an argument of forward for the graph: a complex tensor as a real one with an
    additional axis.
    """
    return (
        (f"{WRAPPED[0]}{path}{WRAPPED[1]}", torch.view_as_real(value))
        if is_complex(value)
        else (path, value)
    )


def unwrapped_path(path: str) -> str:
    """Returns the path without the text `as_real_argument` puts around it."""
    return (
        path.removeprefix(WRAPPED[0]).removesuffix(WRAPPED[1])
        if path.startswith(WRAPPED[0])
        else path
    )


def rank_in_forward(path: str, value: torch.Tensor) -> int:
    """Axes the tensor at a path has in forward."""
    return int(value.dim()) - path.startswith(WRAPPED[0])


def has_complex(graph: torch.fx.GraphModule) -> bool:
    """Whether a node of a traced graph gives a complex tensor."""
    return any(is_complex(node.meta.get("val")) for node in graph.graph.nodes)


def without_complex_decompositions(table: dict[Any, Any]) -> dict[Any, Any]:
    """A table for the graph that pairs are put into: Inductor's own rules would reinterpret memory."""
    names = {
        *OPERATORS_BY_PARTS,
        *COMPLEX_PRODUCTS,
        "div",
        "conj_physical",
        "angle",
        "abs",
        "exp",
        "polar",
        "complex",
        "view_as_complex",
    }
    return {
        k: v
        for k, v in table.items()
        if str(k).partition("aten.")[2].partition(".")[0] not in names
    }


class ByParts(Interpreter):
    """Runs a graph with pairs for complex tensors. Raises DraftRefused at an operator without a rule."""

    def __init__(self, graph: torch.fx.GraphModule, library: bool = False) -> None:
        """library: Fourier transforms stay torch's own."""
        super().__init__(graph)
        self._library = library

    def call_function(
        self,
        target: Callable[..., Any],  # type: ignore[override]
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Runs a node of the graph, with pairs for complex arguments. Raises DraftRefused for
        operators without a rule.
        """
        packet = getattr(target, "overloadpacket", None)
        name = packet.__name__ if packet is not None else ""
        if name in IN_PLACE_VIEWS:
            target, name = getattr(aten, name.removesuffix("_")), name.removesuffix("_")
        dtype = kwargs.get("dtype")
        # Operators on real tensors run unchanged.
        paired = tree_any(lambda leaf: isinstance(leaf, Pair), (args, kwargs), is_leaf=_leaf)
        numbers = any(isinstance(leaf, complex) for leaf in args)
        if not paired and not numbers and dtype not in REAL_TYPE_OF and name not in _RULES:
            return super().call_function(target, args, kwargs)
        if self._library and name.startswith("_fft_"):
            return _library_transform(target, *args)
        if name in _RULES and (paired or name in _MAKERS):
            return _RULES[name](*args, **kwargs)
        if dtype in REAL_TYPE_OF:
            kwargs = {**kwargs, "dtype": REAL_TYPE_OF[dtype]}
        if name in CREATING_OPERATORS:
            return _created(target, args, kwargs)
        if name in COMPLEX_PRODUCTS:
            return _product(target, *args)
        if name in OPERATORS_BY_PARTS:
            return _by_parts(target, args, kwargs)
        if not paired:
            return super().call_function(target, args, kwargs)
        if name in ("sym_size", "sym_numel"):
            return target(args[0].re, *args[1:])
        raise DraftRefused(f"{name or target} of complex numbers has no kernel", operator=name)


def _leaf(value: object) -> bool:
    return isinstance(value, Pair)


def _part(value: object, part: int) -> Any:
    """Returns the real (0) or the imaginary (1) part of an argument; a size and an index have no parts."""
    if isinstance(value, Pair):
        return value[part]
    if isinstance(value, complex):
        return value.imag if part else value.real
    return value


def _zero(value: object) -> Any:
    """Returns the imaginary part of a real operand: zero for tensors and numbers."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return torch.zeros_like(value)
    return value


def _by_parts(target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    name = getattr(target, "overloadpacket", target).__name__
    real = tree_map(lambda v: _part(v, 0), (args, kwargs), is_leaf=_leaf)
    imaginary = tree_map(
        lambda v: _part(v, 1) if isinstance(v, Pair | complex) else _zero(v),
        (args, kwargs),
        is_leaf=_leaf,
    )
    if name in (
        "add",
        "sub",
        "constant_pad_nd",
        "where",
    ):  # a number that is added has no imaginary part
        first = len(args) - 1 if name == "constant_pad_nd" and len(args) > 2 else 1
        imaginary = (_without_numbers(imaginary[0], args, first), imaginary[1])
    parts = target(*real[0], **real[1]), target(*imaginary[0], **imaginary[1])
    if isinstance(parts[0], list | tuple):
        return [Pair(*both) for both in zip(*parts, strict=True)]
    return Pair(*parts)


def _without_numbers(imaginary: tuple[Any, ...], args: tuple[Any, ...], first: int) -> Any:
    plain = (int, float, torch.SymInt, torch.SymFloat)
    return tuple(
        0 if i >= first and isinstance(args[i], plain) else v for i, v in enumerate(imaginary)
    )


def _created(target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Pair:
    """`full` and its like: of a number."""
    real = target(*(_part(a, 0) for a in args), **{k: _part(v, 0) for k, v in kwargs.items()})
    number = next((a for a in args if isinstance(a, complex)), 0.0)
    return Pair(
        real,
        torch.full_like(real, number.imag)
        if isinstance(number, complex)
        else torch.zeros_like(real),
    )


def _product(target: Callable[..., Any], left: Operand, right: Operand) -> Pair:
    """Returns (a + bi)(c + di); b or d may be missing."""
    a, c = _part(left, 0), _part(right, 0)
    b = _part(left, 1) if isinstance(left, Pair | complex) else None
    d = _part(right, 1) if isinstance(right, Pair | complex) else None
    if b is None:
        return Pair(target(a, c), target(a, d))
    if d is None:
        return Pair(target(a, c), target(b, c))
    return Pair(target(a, c) - target(b, d), target(a, d) + target(b, c))


def _quotient(left: Pair, right: Operand) -> Pair:
    if not isinstance(right, Pair | complex):
        return Pair(left.re / right, left.im / right)
    c, d = _part(right, 0), _part(right, 1)
    size = c * c + d * d
    numerator = _product(aten.mul, left, Pair(c, -d))
    return Pair(numerator.re / size, numerator.im / size)


def _power(x: Pair, exponent: float) -> Pair:
    if exponent != 2:
        raise DraftRefused(
            "a power of complex numbers other than the square has no kernel", operator="pow"
        )
    return _product(aten.mul, x, x)


def _polar(length: torch.Tensor, angle: torch.Tensor) -> Pair:
    return Pair(length * torch.cos(angle), length * torch.sin(angle))


def _converted(x: Pair | torch.Tensor, **options: Any) -> Any:
    """`x.to(dtype)`: a real tensor becomes a pair, and a pair loses its imaginary part to a real type."""
    dtype = options.pop("dtype", None)
    options.pop("memory_format", None)
    if isinstance(x, Pair):
        if dtype is None or dtype in REAL_TYPE_OF:
            return Pair(*(p.to(REAL_TYPE_OF[dtype]) if dtype is not None else p.clone() for p in x))
        return x.re.to(dtype)
    if dtype not in REAL_TYPE_OF:
        return aten._to_copy(x, dtype=dtype, **options)
    real = x.to(REAL_TYPE_OF[dtype])
    return Pair(real, torch.zeros_like(real))


def _library_transform(target: Callable[..., Any], x: Pair | torch.Tensor, *options: Any) -> Any:
    """torch's transform of a complex tensor made of its parts, and taken apart again."""
    transformed = target(
        torch.view_as_complex(torch.stack(list(x), -1)) if isinstance(x, Pair) else x, *options
    )
    if not transformed.is_complex():
        return transformed
    parts = torch.view_as_real(transformed)
    return Pair(parts.select(-1, 0), parts.select(-1, 1))


def _angles(count: int, rows: int, like: torch.Tensor) -> tuple[Any, Any]:
    """Returns cos and sin of 2 pi j k / count for j < count and k < rows, with j k reduced modulo
    count.

    Raises DraftRefused if j k exceeds 32 bits, the index type of kernels.
    """
    length = count if isinstance(count, int) else count.node.hint
    if length is not None and length > MAX_TRANSFORM_ELEMENTS:
        raise DraftRefused(
            f"a Fourier transform over more than {MAX_TRANSFORM_ELEMENTS} elements has no kernel",
            operator="fft",
        )
    j = torch.arange(count, device=like.device)[:, None]
    k = torch.arange(rows, device=like.device)[None, :]
    angle = (j * k % count).to(like.dtype) * (2 * math.pi / count)
    return torch.cos(angle), torch.sin(angle)


def _scale(normalization: int, count: int) -> Any:
    """torch's codes: 0 nothing, 1 by the root of the number of elements, 2 by their number."""
    return {0: 1.0, 1: count**-0.5, 2: 1.0 / count}[int(normalization)]


def _along(x: torch.Tensor, dim: int, matrix: torch.Tensor) -> Any:
    """The product of the rows along `dim` with a matrix."""
    return (x.movedim(dim, -1) @ matrix).movedim(-1, dim)


def _transform(
    x: Pair | torch.Tensor, dims: Sequence[int], normalization: int, forward: bool
) -> Pair:
    """The discrete Fourier transform as a product with its matrix, axis by axis."""
    transformed = x if isinstance(x, Pair) else Pair(x, torch.zeros_like(x))
    for dim in dims:
        count = transformed.re.shape[dim]
        cos, sin = _angles(count, count, transformed.re)
        sin = -sin if forward else sin
        scale = _scale(normalization, count)
        re = _along(transformed.re, dim, cos) - _along(transformed.im, dim, sin)
        im = _along(transformed.re, dim, sin) + _along(transformed.im, dim, cos)
        transformed = Pair(re * scale, im * scale)
    return transformed


def _real_to_complex(
    x: torch.Tensor, dims: Sequence[int], normalization: int, onesided: bool
) -> Pair:
    *other_axes, last = dims
    count = x.shape[last]
    cos, sin = _angles(count, count // 2 + 1 if onesided else count, x)
    scale = _scale(normalization, count)
    return _transform(
        Pair(_along(x, last, cos) * scale, _along(x, last, -sin) * scale),
        other_axes,
        normalization,
        True,
    )


def _complex_to_real(
    x: Pair | torch.Tensor, dims: Sequence[int], normalization: int, count: int
) -> Any:
    """Transforms the first half of the frequencies back to real numbers.

    All frequencies count twice, except the first and the middle one of an even count.
    """
    *other_axes, last = dims
    transformed = _transform(x, other_axes, normalization, False)
    cos, sin = _angles(count, transformed.re.shape[last], transformed.re)
    k = torch.arange(transformed.re.shape[last], device=transformed.re.device)
    weight = torch.where((k == 0) | (2 * k == count), 1.0, 2.0).to(transformed.re.dtype)[:, None]
    whole = _along(transformed.re, last, weight * cos.t()) - _along(
        transformed.im, last, weight * sin.t()
    )
    return whole * _scale(normalization, count)


_RULES: dict[str, Any] = {
    "view_as_complex": lambda x: Pair(x.select(-1, 0), x.select(-1, 1)),
    "view_as_real": lambda p: torch.stack(list(p), -1),
    "complex": Pair,
    "polar": _polar,
    "div": _quotient,
    "pow": _power,
    "reciprocal": lambda p: _quotient(Pair(torch.ones_like(p.re), torch.zeros_like(p.re)), p),
    "_conj": lambda p: Pair(p.re, -p.im),
    "conj_physical": lambda p: Pair(p.re, -p.im),
    "real": lambda p: p.re,
    "imag": lambda p: p.im,
    "abs": lambda p: torch.sqrt(p.re * p.re + p.im * p.im),
    "angle": lambda p: torch.atan2(p.im, p.re),
    "exp": lambda p: _polar(torch.exp(p.re), p.im),
    "_to_copy": _converted,
    "convert_element_type": lambda x, dtype: _converted(x, dtype=dtype),
    "_fft_r2c": _real_to_complex,
    "_fft_c2r": _complex_to_real,
    "_fft_c2c": _transform,
}
"""Operator -> its computation on pairs."""
_MAKERS = {"view_as_complex", "complex", "polar", "_to_copy", "convert_element_type", "_fft_r2c"}
"""Operators with complex results of real operands."""
