"""Converts the arguments of a kernel launch to bytes for the CUDA driver, as Triton's launcher does
in Triton 3.6 and 3.9.

Triton passes every run-time parameter by value: pointers and integers little-endian, `fp16`
rounded, `bf16` truncated, `fp32` rounded to nearest. A parameter of type `constexpr` is not passed.
Tuples are flattened. A tensor descriptor becomes either a tensor map (TMA) or its base pointer,
shape, strides and flags, each followed by shape and strides again. The last two parameters of a
kernel are pointers to its global and its profiling scratch memory.

Example: signature {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"} with arguments {"x": tensor at
0x7f00, "n": -1} gives the cells c_uint64(0x7f00) and c_uint64(0xFFFFFFFFFFFFFFFF); the driver reads
four bytes of the second.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelwright.tools.trace.reinterpreted import Reinterpreted

Json = Any
INTEGER_TYPES = frozenset({"i1", "i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64"})
FLOAT_TYPES = frozenset({"fp16", "bf16", "fp32", "f32", "fp64"})
_DESCRIPTOR = re.compile(r"tensordesc(?:_im2col)?<([^\[>]*)\[([^\]]*)\]")
_ALL_BITS = (1 << 64) - 1
HOST_TYPES = {8: 10, 9: 8, 10: 9}
"""Triton's number of an element type in a tensor map -> the driver's (CUtensorMapDataType), if
different."""
TF32 = 11
"""CU_TENSOR_MAP_DATA_TYPE_TFLOAT32."""
MAX_DIMENSIONS = 5


class ArgumentError(ValueError):
    """Raised for arguments that do not fit the kernel's parameters. The message names the
    parameter."""


@dataclass(frozen=True)
class TensorMap:
    """Arguments of cuTensorMapEncodeTiled, innermost dimension first."""

    address: int
    element_type: int
    """CUtensorMapDataType."""
    sizes: tuple[int, ...]
    """Sizes in elements."""
    strides: tuple[int, ...]
    """Strides in bytes, of all dimensions but the innermost."""
    box: tuple[int, ...]
    swizzle: int
    fill_nan: bool


Encode = Callable[[TensorMap], Any]
"""Creates the driver's 128 bytes of a tensor map, as a ctypes object aligned to 128."""


def flags_of_descriptor() -> int:
    """Returns the number of booleans behind the strides of a descriptor without a tensor map.

    1 (padding) in Triton 3.6, 2 (also rounding to tf32) in 3.9.
    """
    try:
        from triton.backends.driver import decompose_descriptor
    except ImportError:
        return 1
    return 2 if "round_f32_to_tf32" in decompose_descriptor.__code__.co_names else 1


class Parameters:
    """The run-time parameters of a kernel, in order."""

    def __init__(
        self,
        signature: Mapping[str, Json],
        tensor_maps: Sequence[Mapping[str, Any]] | None,
        flags: int,
    ) -> None:
        """Checks the descriptors. Raises ArgumentError.

        signature: parameter -> Triton type, a list for a tuple. tensor_maps: the kernel's
        `tensordesc_meta`, an entry per descriptor in order, or None.
        """
        self._types = {name: kind for name, kind in signature.items() if kind != "constexpr"}
        self._maps, self._flags = list(tensor_maps or ()), flags
        descriptor_count = sum(
            1 for kind in _leaves(list(self._types.values())) if kind.startswith("tensordesc")
        )
        if self._maps and len(self._maps) != descriptor_count:
            raise ArgumentError(
                f"{descriptor_count} descriptors in the signature, {len(self._maps)} tensor maps in the binary"
            )

    def cells(self, args: Mapping[str, Any], encode: Encode) -> list[Any]:
        """Returns a ctypes object per parameter of the binary, without the two scratch pointers.
        Raises ArgumentError."""
        waiting = iter(self._maps)
        cells: list[Any] = []
        for name, kind in self._types.items():
            if name not in args:
                raise ArgumentError(f"the launch lacks the argument {name}")
            self._add(name, kind, args[name], cells, waiting, encode)
        return cells

    def _add(
        self, name: str, kind: Json, value: object, cells: list[Any], waiting: Any, encode: Encode
    ) -> None:
        if isinstance(kind, list | tuple):
            for inner, item in _pairs(name, kind, value):
                self._add(name, inner, item, cells, waiting, encode)
        elif kind.startswith("tensordesc"):
            cells.extend(self._descriptor(name, kind, value, next(waiting, None), encode))
        else:
            cells.append(cell(kind, value, name))

    def _descriptor(
        self, name: str, kind: str, value: object, tensor_map: Any, encode: Encode
    ) -> list[Any]:
        described = _Descriptor.of(value, name)
        if (descriptor_type := _DESCRIPTOR.match(kind)) is None or len(
            described.shape
        ) > MAX_DIMENSIONS:
            raise ArgumentError(f"{name} is of a type that cannot be launched: {kind[:60]}")
        repeated_shape = [cell("i32", n, name) for n in described.shape] + [
            cell("i64", n, name) for n in described.strides
        ]
        if tensor_map is not None:
            return [encode(described.tensor_map(name, tensor_map)), *repeated_shape]
        flags = (described.padding == "nan", described.rounded)[: self._flags]
        return [
            cell("*" + descriptor_type[1], described.base, name),
            *(cell("i64", n, name) for n in (*described.shape, *described.strides)),
            *(cell("i1", flag, name) for flag in flags),
            *repeated_shape,
        ]


@dataclass(frozen=True)
class _Descriptor:
    """A tensor descriptor made on the host."""

    base: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    padding: str
    rounded: bool

    @classmethod
    def of(cls, value: object, name: str) -> _Descriptor:
        """Converts Triton's TensorDescriptor, or a dict of the same fields."""
        ask = (
            value.get
            if isinstance(value, Mapping)
            else lambda key, default=None: getattr(value, key, default)
        )
        base, shape, strides = ask("base"), ask("shape"), ask("strides")
        if (
            base is None
            or shape is None
            or strides is None
            or len(shape) != len(strides)
            or not len(shape)
        ):
            raise ArgumentError(f"{name} is no tensor descriptor")
        return cls(
            base,
            tuple(int(n) for n in shape),
            tuple(int(n) for n in strides),
            str(ask("padding", "zero")),
            bool(ask("round_f32_to_tf32", False)),
        )

    def tensor_map(self, name: str, meta: Mapping[str, Any]) -> TensorMap:
        """Returns the tensor map for which the kernel was compiled: `meta` is Triton's swizzle,
        elem_size, elem_type, block_size and fp4_padded."""
        box = tuple(int(n) for n in meta["block_size"])
        if meta.get("is_im2col") or len(box) != len(self.shape) or self.strides[-1] != 1:
            raise ArgumentError(
                f"{name} is a descriptor that cannot be launched: its rank or strides are not the kernel's"
            )
        sizes = (*self.shape[:-1], self.shape[-1] * (2 if meta["fp4_padded"] else 1))
        kind, width = int(meta["elem_type"]), int(meta["elem_size"])
        return TensorMap(
            address=_address(self.base, name),
            element_type=TF32 if self.rounded else HOST_TYPES.get(kind, kind),
            sizes=sizes[::-1],
            strides=tuple(width * n for n in self.strides[-2::-1]),
            box=box[::-1],
            swizzle=int(meta["swizzle"]),
            fill_nan=self.padding == "nan",
        )


def cell(kind: str, value: object, name: str) -> Any:
    """Returns a pointer or number as a ctypes object of at most 8 bytes, of which the driver reads
    the parameter's size.

    Raises ArgumentError.
    """
    if kind.startswith("*"):
        return ctypes.c_uint64(_address(value, name))
    if kind in INTEGER_TYPES:
        if not isinstance(value, int):
            raise ArgumentError(
                f"{name} is to be a whole number ({kind}), and is a {type(value).__name__}"
            )
        return ctypes.c_uint64(value & _ALL_BITS)
    if kind not in FLOAT_TYPES:
        raise ArgumentError(f"{name} is of a type that cannot be launched: {kind[:60]}")
    if not isinstance(value, int | float):
        raise ArgumentError(f"{name} is to be a number ({kind}), and is a {type(value).__name__}")
    return _float(kind, value, name)


def _float(kind: str, value: float, name: str) -> Any:
    try:
        number = float(value)
        if kind == "fp64":
            return ctypes.c_double(number)
        if kind == "fp16":
            return ctypes.c_uint64(int.from_bytes(struct.pack("<e", number), "little"))
    except OverflowError as error:
        raise ArgumentError(f"{name} is too large for {kind}") from error
    single = ctypes.c_float(number)
    if kind == "bf16":
        return ctypes.c_uint64(int.from_bytes(bytes(single)[2:], "little"))
    return single


def _address(value: Any, name: str) -> int:
    """Returns the address of a tensor on the GPU; 0 for None."""
    if value is None:
        return 0
    if isinstance(value, Reinterpreted):
        return _address(value.base, name)
    device = getattr(getattr(value, "device", None), "type", None)
    if device != "cuda":
        actual = f"a tensor on {device}" if device else f"a {type(value).__name__}"
        raise ArgumentError(f"{name} is to be a tensor on the GPU, and is {actual}")
    return int(value.data_ptr())


def _pairs(name: str, kinds: Sequence[Json], values: Any) -> Iterator[tuple[Json, Any]]:
    """Returns the passed elements of a tuple; its constants may be present among the values or
    omitted."""
    passed = [kind for kind in kinds if kind != "constexpr"]
    if not isinstance(values, list | tuple) or len(values) not in (len(kinds), len(passed)):
        raise ArgumentError(f"{name} is to be a tuple of {len(passed)} values")
    if len(values) == len(kinds):
        values = [value for kind, value in zip(kinds, values, strict=True) if kind != "constexpr"]
    return zip(passed, values, strict=True)


def _leaves(kinds: Sequence[Json]) -> Iterator[str]:
    for kind in kinds:
        if isinstance(kind, list | tuple):
            yield from _leaves(kind)
        else:
            yield str(kind)
