"""Triton's own bookkeeping of types and shapes, remembered: under the interpreter a kernel spends
half of its time in it. The answers are the same.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

MAX_REMEMBERED_SHAPES = 4096
"""Maximum number of cached shapes."""


def remember_shapes() -> None:
    """Caches a shape's tuple, number of elements and text, instead of computing them for each
    value."""
    import triton.language.core as core

    of_types: dict[tuple[int, ...], tuple[Any, int, str]] = {}
    of_tensors: dict[tuple[int, ...], tuple[Any, Any]] = {}
    type_init = core.block_type.__init__
    tensor_init = core.tensor.__init__
    constexpr = core.constexpr

    def block_type(self: Any, element_ty: tl.dtype, shape: Any) -> None:
        sizes = shape.values if type(shape) is core.tuple else shape
        if not isinstance(sizes, list | builtins.tuple):
            type_init(self, element_ty, shape)
            return
        key = builtins.tuple([s.value if type(s) is constexpr else s for s in sizes])
        whole = {*map(type, key)} == {int}  # 16.0 is no 16
        cached = of_types.get(key) if whole else None
        if cached is None:
            type_init(self, element_ty, shape)
            if whole and len(of_types) < MAX_REMEMBERED_SHAPES:
                of_types[key] = self.shape, self.numel, str(self.shape)
            return
        self.element_ty = element_ty
        self.shape, self.numel, text = cached
        self.name = f"<{text}, {element_ty}>"

    def tensor(self: Any, handle: object, type: tl.dtype) -> None:
        key = builtins.tuple(type.shape.values) if type.is_block() else ()
        cached = of_tensors.get(key)
        if cached is None:
            tensor_init(self, handle, type)
            if len(of_tensors) < MAX_REMEMBERED_SHAPES:
                of_tensors[key] = self.numel, self.shape
            return
        self.handle = handle
        self.type = type
        self.dtype = type.scalar
        self.numel, self.shape = cached

    core.block_type.__init__, core.tensor.__init__ = block_type, tensor


def unwrap_sooner() -> None:
    """Returns values of plain types from `_unwrap_if_constexpr` without further checks."""
    import triton.language.core as core

    original = core._unwrap_if_constexpr
    constexpr = core.constexpr
    plain = {
        int,
        float,
        bool,
        str,
        type(None),
        core.tensor,
        core.dtype,
        core.block_type,
        core.pointer_type,
    }

    def unwrap(value: Any) -> Any:
        kind = type(value)
        if kind is constexpr:
            return value.value
        return value if kind in plain else original(value)

    for module in list(sys.modules.values()):
        name = getattr(module, "__name__", "")
        if name.startswith("triton.") and vars(module).get("_unwrap_if_constexpr") is original:
            vars(module)["_unwrap_if_constexpr"] = unwrap


def make_handles_sooner() -> None:
    """Skips the interpreter's check of element sizes for arrays with the usual size."""
    import triton.language as tl
    from triton.runtime import interpreter

    checked = interpreter.TensorHandle.__post_init__
    sizes = {
        t: max(t.primitive_bitwidth // 8, 1)
        for t in vars(tl).values()
        if type(t) is tl.dtype and t.name != "void"
    }
    by_name = {t.name: size for t, size in sizes.items()}

    def post_init(self: Any) -> None:
        dtype = self.dtype
        if type(dtype) is tl.pointer_type or by_name.get(dtype.name) == self.data.itemsize:
            return
        checked(self)

    interpreter.TensorHandle.__post_init__ = post_init


def remember_types() -> None:
    """Caches block types, and the type in which two scalar types are computed; types are their
    own IR under the interpreter.
    """
    import triton.language.core as core
    from triton.language.semantic import TritonSemantic

    blocks: dict[tuple[str, tuple[int, ...]], Any] = {}
    computed: dict[tuple[str, bool, str, bool, bool], Any] = {}
    with_element_ty = core.block_type.with_element_ty
    computation_type = TritonSemantic.computation_type_impl

    def with_element(self: Any, scalar: tl.dtype) -> Any:
        if (
            type(scalar) not in (core.dtype, core.pointer_type)
            or getattr(scalar, "address_space", 1) != 1
        ):
            return with_element_ty(self, scalar)
        key = scalar.name, builtins.tuple(self.shape.values)
        block = blocks.get(key)
        if block is None:
            block = with_element_ty(self, scalar)
            if len(blocks) < MAX_REMEMBERED_SHAPES:
                blocks[key] = block
        return block

    def computation(
        self: Any, a: tl.dtype, a_scalar: bool, b: tl.dtype, b_scalar: bool, division: bool
    ) -> Any:
        key = a.name, a_scalar, b.name, b_scalar, division
        result_type = computed.get(key)
        if result_type is None:
            result_type = computed[key] = computation_type(self, a, a_scalar, b, b_scalar, division)
        return result_type

    core.block_type.with_element_ty = with_element
    core.block_type.to_ir = lambda self, builder: self
    TritonSemantic.computation_type_impl = computation


def broadcast_by_type() -> None:
    """The operands of a binary operation get the type of the common shape, and keep their arrays:
    NumPy spreads those while it computes.
    """
    import triton.language.core as core
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    original = TritonSemantic.broadcast_impl_value
    check = TritonSemantic.binary_op_type_checking_impl
    operands: list[bool] = []

    def check_types(self: Any, *arguments: Any, **keywords: Any) -> Any:
        operands.append(True)
        try:
            return check(self, *arguments, **keywords)
        finally:
            operands.pop()

    def broadcast(self: Any, lhs: tl.tensor, rhs: tl.tensor) -> Any:
        lhs_type = lhs.type
        right = rhs.type
        if lhs_type.is_block() and right.is_block() and lhs_type.shape is right.shape:
            return lhs, rhs
        if not operands or not (lhs_type.is_block() or right.is_block()):
            return original(self, lhs, rhs)
        if not right.is_block():
            return lhs, core.tensor(rhs.handle, lhs_type.with_element_ty(right))
        if not lhs_type.is_block():
            return core.tensor(lhs.handle, right.with_element_ty(lhs_type)), rhs
        shape = _common(lhs_type.shape.values, right.shape.values)
        if shape is None:
            return original(self, lhs, rhs)
        common = core.block_type(lhs_type.element_ty, shape)
        return core.tensor(lhs.handle, common), core.tensor(
            rhs.handle, common.with_element_ty(right.element_ty)
        )

    def expand_dims(self: Any, value: TensorHandle, axis: int) -> Any:
        shape = value.data.shape
        return interpreter.TensorHandle(
            value.data.reshape(*shape[:axis], 1, *shape[axis:]), value.dtype.scalar
        )

    TritonSemantic.broadcast_impl_value = broadcast
    TritonSemantic.binary_op_type_checking_impl = check_types
    interpreter.InterpreterBuilder.create_expand_dims = expand_dims


def _common(lhs_shape: list[int], right: list[int]) -> list[int] | None:
    """Returns the shape to which both broadcast; None if there is none, or if the ranks differ."""
    if len(lhs_shape) != len(right) or any(
        a != b and 1 not in (a, b) for a, b in zip(lhs_shape, right, strict=True)
    ):
        return None
    return [max(a, b) for a, b in zip(lhs_shape, right, strict=True)]


def call_builtins_at_once() -> None:
    """Calls Triton's builtins directly with the interpreter's semantics, without the two wrappers
    that look for it.

    To be called after the language is patched.
    """
    import triton.language.core as core
    from triton.runtime import interpreter

    for owner in _owners():
        for name, function in list(vars(owner).items()):
            member = (getattr(function, "__kwdefaults__", None) or {}).get("member")
            raw = getattr(member, "__wrapped__", None)
            if (
                raw is not None
                and core.is_builtin(member)
                and function.__code__.co_filename == interpreter.__file__
            ):
                semantic = interpreter.interpreter_semantic
                setattr(owner, name, _direct(raw, semantic))


def call_extra_builtins(modules: Iterable[Any]) -> None:
    """Calls builtins of further modules directly, which Triton's interpreter leaves out, as
    `tl.extra.cuda.globaltimer`."""
    import triton.language.core as core
    from triton.runtime import interpreter

    for module in modules:
        for name, function in list(vars(module).items()):
            raw = getattr(function, "__wrapped__", None)
            if raw is not None and core.is_builtin(function):
                setattr(module, name, _direct(raw, interpreter.interpreter_semantic))


def extra_modules(names: Iterable[str]) -> list[Any]:
    """Returns Triton's vendor modules, by name and by attribute: Triton loads some of them twice."""
    import triton.language as tl

    modules = []
    for name in (n for n in sorted(names) if n.startswith("triton.language.extra.")):
        by_attributes: Any = tl.extra
        for part in name.split(".")[3:]:
            by_attributes = getattr(by_attributes, part, None)
        modules += [
            m for m in (sys.modules.get(name), by_attributes) if isinstance(m, types.ModuleType)
        ]
    return modules


def _owners() -> list[Any]:
    import triton.language as tl

    return [tl, tl.core, tl.tensor, tl.math, tl.core.tensor_descriptor_base]


def _direct(raw: Callable[..., Any], semantic: object) -> Any:
    def call(*arguments: Any, **keywords: Any) -> Any:
        keywords["_semantic"] = semantic
        return raw(*arguments, **keywords)

    call.__name__ = raw.__name__
    return call


def _spread(lhs: tl.tensor, rhs: tl.tensor) -> Any:
    """Returns both operands with the type of their common shape; None if they must be converted."""
    import triton.language.core as core

    lhs_type = lhs.type
    right = rhs.type
    if lhs.shape is rhs.shape:
        return lhs, rhs
    if not right.is_block():
        return lhs, core.tensor(rhs.handle, lhs_type.with_element_ty(right))
    if not lhs_type.is_block():
        return core.tensor(lhs.handle, right.with_element_ty(lhs_type)), rhs
    shape = _common(lhs_type.shape.values, right.shape.values)
    if shape is None:
        return None
    common = core.block_type(lhs_type.element_ty, shape)
    return core.tensor(lhs.handle, common), core.tensor(
        rhs.handle, common.with_element_ty(right.element_ty)
    )


class _DirectOperands:
    """Operands of arithmetic which need no type check of Triton's, and the caches to find them."""

    def __init__(self, check: Callable[..., Any]) -> None:
        """check: Triton's own type check of the two operands of an operation."""
        import triton.language.core as core

        self._check = check
        self._core = core
        self._keeps_type: dict[tuple[str, bool], bool] = {}
        self._constants: dict[tuple[str, int, bool], Any] = {}

    def _keeps(self, semantic: Any, kind: tl.dtype, division: bool) -> bool:
        """Returns whether an operation on two operands of this type is computed in this type."""
        key = kind.name, division
        if key not in self._keeps_type:
            computed = semantic.computation_type_impl(kind, False, kind, False, division)
            self._keeps_type[key] = computed == kind
        return self._keeps_type[key]

    def _constant(self, semantic: Any, kind: tl.dtype, number: int, division: bool) -> Any:
        """Returns the number in the tensor's type; None if both are computed in another type."""
        key = kind.name, number, division
        if key in self._constants:
            return self._constants[key]
        beside, constant = self._check(
            semantic, semantic.scalar_constant(0, kind), number, False, False, True, division
        )
        if beside.dtype != kind:
            constant = None
        if len(self._constants) < MAX_REMEMBERED_SHAPES:
            self._constants[key] = constant
        return constant

    def beside_number(self, semantic: Any, lhs: tl.tensor, number: int, division: bool) -> Any:
        """Returns a tensor and a Python integer as operands; None if Triton has to convert them."""
        if type(lhs.dtype) is not self._core.dtype:
            return None
        constant = self._constant(semantic, lhs.dtype, number, division)
        if constant is None:
            return None
        if not lhs.type.is_block():
            return lhs, constant
        return lhs, self._core.tensor(constant.handle, lhs.type)

    def of_tensors(
        self, semantic: Any, lhs: tl.tensor, rhs: tl.tensor, pointers: bool, division: bool
    ) -> Any:
        """Returns two tensors broadcast to their common shape; None if Triton has to convert
        them.

        pointers: whether the operation accepts a pointer on the left.
        """
        core = self._core
        if type(rhs.dtype) is not core.dtype:
            return None
        kind = lhs.dtype
        if type(kind) is core.dtype:
            same = kind.name == rhs.dtype.name and self._keeps(semantic, kind, division)
        else:
            same = type(kind) is core.pointer_type and pointers and rhs.dtype.is_int()
        return _spread(lhs, rhs) if same else None


def check_types_at_once() -> None:
    """Broadcasts operands of one arithmetic type, or a pointer and an integer, directly to their
    common shape; caches the constant for an integer beside a tensor. Must be called after
    `broadcast_by_type`.
    """
    import triton.language.core as core
    from triton.language.semantic import TritonSemantic

    check = TritonSemantic.binary_op_type_checking_impl
    tensor = core.tensor
    direct = _DirectOperands(check)

    def check_types(
        self: Any,
        lhs: tl.tensor,
        rhs: tl.tensor,
        allow_lhs_ptr: bool = False,
        allow_rhs_ptr: bool = False,
        arithmetic_check: bool = True,
        div_or_mod: bool = False,
    ) -> Any:
        operands = None
        if type(lhs) is tensor and type(rhs) is int and arithmetic_check:
            operands = direct.beside_number(self, lhs, rhs, div_or_mod)
        elif type(lhs) is tensor and type(rhs) is tensor:
            operands = direct.of_tensors(self, lhs, rhs, allow_lhs_ptr, div_or_mod)
        if operands is not None:
            return operands
        return check(self, lhs, rhs, allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod)

    TritonSemantic.binary_op_type_checking_impl = check_types


LANGUAGE_SPEEDUPS = (
    remember_shapes, unwrap_sooner, make_handles_sooner, remember_types, broadcast_by_type, check_types_at_once,
)  # fmt: skip
"""Changes made before the language is patched."""
