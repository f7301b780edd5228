"""Classifies the interpreter's operations: pure functions of their operands, and those with a NumPy
equivalent."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kernelwright.tools.replaying.interpreter import guarded_memory
from kernelwright.tools.replaying.interpreter.open_choices import folding

Arrays = Callable[..., Any]
_PURE_NAMES = """
    si_to_fp ui_to_fp fp_to_si fp_to_ui fp_ext fp_trunc int_cast fp_to_fp bitcast int_to_ptr ptr_to_int
    fadd fmul fdiv frem fsub fneg mul precise_divf approx_divf sdiv udiv srem urem add sub shl lshr ashr idiv umulhi
    minsi minui minimumf minnumf maxsi maxui maximumf maxnumf and or xor
    icmpSLE icmpSLT icmpSGE icmpSGT icmpULE icmpULT icmpUGE icmpUGT icmpEQ icmpNE
    fcmpOLT fcmpOGT fcmpOLE fcmpOGE fcmpOEQ fcmpONE fcmpULT fcmpUGT fcmpULE fcmpUGE fcmpUEQ fcmpUNE
    clampf select fma fabs cos exp exp2 iabs floor ceil log log2 precise_sqrt sqrt sin erf rsqrt
    reshape trans dot make_range histogram gather addptr expand_dims broadcast cat join split splat unsplat
"""
PURE = frozenset(f"create_{name}" for name in _PURE_NAMES.split())
"""Operations whose result is a function of their operands; with constant operands it is a constant."""

ACCESSES = ("create_load", "create_masked_load", "create_store", "create_masked_store")


def is_pure(name: str) -> bool:
    """Classifies an operation as pure: no memory access, no dependence on the program index."""
    return name in PURE or name.startswith("get_")


class _Probe:
    """Stand-in for the builder that captures the NumPy function which a method passes to
    `binary_op` and the like."""

    def binary_op(self, lhs: Any, rhs: Any, function: object) -> Any:
        """Returns the number of operands and the NumPy function."""
        return 2, function

    def unary_op(self, value: object, function: object) -> Any:
        """Returns the number of operands and the NumPy function."""
        return 1, function

    def ternary_op(self, first: Any, second: Any, third: Any, function: object) -> Any:
        """Returns the number of operands and the NumPy function."""
        return 3, function

    def cast_impl(self, value: object, type_: Any) -> Any:
        """Returns 0 operands, which stands for a conversion of types."""
        return 0, None


def elementwise(builder: type) -> dict[str, tuple[int, Any]]:
    """Returns, for each plain elementwise operation, the number of its operands and NumPy's function; 0 for a
    conversion.
    """
    functions_by_name: dict[str, tuple[int, Any]] = {}
    for name in PURE:
        method = getattr(builder, name, None)
        for count in (1, 2, 3):
            try:
                captured = method(_Probe(), *[None] * count) if method is not None else None
            except Exception:
                continue
            if isinstance(captured, tuple) and len(captured) == 2 and captured[0] in (0, count):
                functions_by_name[name] = captured
    # These depend on more than the operands' values: the types, or a rounding or NaN mode.
    for name in ("create_fp_to_fp", "create_bitcast", "create_clampf", "create_select"):
        functions_by_name.pop(name, None)
    return functions_by_name | {"create_select": (3, np.where)}


class Quick:
    """NumPy equivalents of builder operations. Each is compared with the builder's result at
    recording and used only if equal, bit for bit."""

    def __init__(self, builder: type) -> None:
        self._elementwise = elementwise(builder)

    def of(
        self, name: str, handles: Sequence[Any], trailing: Sequence[Any], result: Any
    ) -> Arrays | None:
        """Returns a function from the operands' arrays to the result array; None if there is none.

        handles: the operands. trailing: the arguments after the operands. result: the builder's
        result.
        """
        kind, function = self._elementwise.get(name, (-1, None))
        expected = result.data
        candidates: tuple[Arrays, ...] = ()
        if kind >= 0:
            if all(map(_is_number_of_numpy, (*handles, result))):
                candidates = _elementwise_candidates(kind, function, handles, expected.dtype)
        elif (shaped := self._shaped(name, handles, trailing, result)) is not None:
            candidates = (shaped,)
        operands = [h.data for h in handles]
        return next(
            (candidate for candidate in candidates if same(candidate, operands, expected)), None
        )

    @staticmethod
    def _shaped(
        name: str, handles: Sequence[Any], trailing: Sequence[Any], result: Any
    ) -> Arrays | None:
        shape = result.data.shape
        dtype = result.data.dtype
        if name == "create_addptr" and len(handles) == 2:
            width = max(1, handles[0].get_element_ty().primitive_bitwidth // 8)
            return lambda pointer, offset: _moved(pointer, offset, np.uint64(width))
        if name in ("create_expand_dims", "create_reshape") and len(handles) == 1:
            return lambda values: values.reshape(shape)
        if name == "create_broadcast" and len(handles) == 1:
            return lambda values: np.broadcast_to(values, shape)
        if name == "create_splat" and len(handles) == 1:
            return lambda values: np.full(shape, values, dtype)
        if name == "create_trans" and len(handles) == 1 and len(trailing) == 1:
            return lambda values: np.transpose(values, trailing[0])
        if (
            name in ("create_bitcast", "create_int_to_ptr", "create_ptr_to_int")
            and len(handles) == 1
        ):
            return lambda values: values.view(dtype)
        return None


def _moved(pointer: Any, offset: Any, width: Any) -> Any:
    """Returns the addresses `offset` elements of `width` bytes further."""
    moved = offset.astype(np.uint64)
    moved *= width
    if pointer.shape == moved.shape or (pointer.size == 1 and pointer.ndim <= moved.ndim):
        moved += pointer
        return moved
    return pointer + moved


def _is_number_of_numpy(handle: Any) -> bool:
    """Returns False for bfloat16 and float8 types: the interpreter stores them as integers and
    computes them otherwise."""
    return not getattr(handle.dtype.scalar, "name", "").startswith(("bf16", "fp8"))


def _astype(dtype: Any) -> Arrays:
    return lambda values: values.astype(dtype)


def _elementwise_candidates(
    kind: int, function: Any, handles: Sequence[Any], dtype: Any
) -> tuple[Arrays, ...]:
    """Returns candidate NumPy functions for an elementwise operation, the plain function first."""
    if kind == 0 and len(handles) == 1:
        return (_astype(dtype),)
    if kind != len(handles) or (kind == 2 and all(h.data.dtype == np.bool_ for h in handles)):
        return ()
    return function, lambda *values: function(*values).astype(dtype)


def same(function: Arrays, operands: Sequence[Any], expected: Any) -> bool:
    """Compares the function's result with the expected array, bit for bit."""
    try:
        result = function(*operands)
    except Exception:
        return False
    return (
        result.dtype == expected.dtype
        and result.shape == expected.shape
        and result.tobytes() == expected.tobytes()
    )


def quick_access(
    name: str, arguments: Sequence[Any], np_dtype: Callable[[Any], Any]
) -> Arrays | None:
    """Returns a load or store through the launch's guard, as a function of arrays; None if shapes
    or types need conversion.

    The operands are those arguments that are handles, in order.
    """
    pointers = arguments[0]
    if name in ("create_load", "create_masked_load"):
        mask = arguments[1] if name == "create_masked_load" else None
        other = arguments[2] if name == "create_masked_load" else None
        return _load(
            pointers, mask, other, bool(arguments[-1]), np_dtype(pointers.get_element_ty())
        )
    if name in ("create_store", "create_masked_store"):
        mask = arguments[2] if name == "create_masked_store" else None
        return _store(pointers, arguments[1], mask)
    return None


def reduction_of(
    arguments: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Callable[..., Any], int | None, bool] | None:
    """Returns the NumPy function of a sum or extreme, its axis and `keep_dims`; None for other
    reductions.

    arguments, named: those of `tl.reduce`.
    """
    from triton.language import standard

    functions: dict[Any, Callable[..., Any]] = {
        standard._sum_combine: folding.summed,
        standard._elementwise_max: np.nanmax,
        standard._elementwise_min: np.nanmin,
    }
    values_by_name = {
        **dict(zip(("input", "axis", "combine_fn", "keep_dims"), arguments, strict=False)),
        **named,
    }
    function = next(
        (f for combine, f in functions.items() if combine is values_by_name.get("combine_fn")), None
    )
    axis = values_by_name.get("axis")
    if function is None or type(axis) not in (int, type(None)):
        return None
    return function, axis, bool(values_by_name.get("keep_dims", False))


def quick_reduction(
    arguments: Sequence[Any], named: Mapping[str, Any], result: object, tensor: Any
) -> Arrays | None:
    """Returns a NumPy form of a sum or extreme of a single tensor; None for other reductions.

    arguments, named: those of `tl.reduce`.
    """
    value, found = arguments[0] if arguments else named["input"], reduction_of(arguments, named)
    if found is None or not isinstance(value, tensor) or not isinstance(result, tensor):
        return None
    if not _is_number_of_numpy(value.handle):
        return None
    function, axis, keep = found
    dtype, is_block = result.handle.data.dtype, result.type.is_block()

    def reduce_values(values: Any) -> Any:
        found = function(values, axis=axis, keepdims=keep)
        return found.astype(dtype) if is_block else np.array([found]).astype(dtype)

    return reduce_values if same(reduce_values, [value.handle.data], result.handle.data) else None


def _load(pointers: Any, mask: Any, other: Any, volatile: bool, dtype: Any) -> Arrays | None:
    shape = pointers.data.shape
    guards = guarded_memory.current
    if any(h is not None and h.data.shape != shape for h in (mask, other)):
        return None
    if mask is not None and mask.data.dtype != np.bool_:
        return None
    lanes, filling = np.ones(shape, np.bool_), np.zeros(shape, dtype)
    lanes.flags.writeable = filling.flags.writeable = False
    if mask is None:
        return lambda addresses: guards[-1].load(addresses, lanes, filling, dtype, volatile)
    if other is None:
        return lambda addresses, active: guards[-1].load(
            addresses, active, filling, dtype, volatile
        )
    return lambda addresses, active, values: guards[-1].load(
        addresses, active, values, dtype, volatile
    )


def _store(pointers: Any, value: Any, mask: Any) -> Arrays | None:
    shape = pointers.data.shape
    guards = guarded_memory.current
    if value.data.shape != shape or (mask is not None and mask.data.shape != shape):
        return None
    if mask is not None and mask.data.dtype != np.bool_:
        return None
    lanes = np.ones(shape, np.bool_)
    lanes.flags.writeable = False
    if mask is None:
        return lambda addresses, values: guards[-1].store(addresses, values, lanes)
    return lambda addresses, values, active: guards[-1].store(addresses, values, active)
