"""Converts the arguments of a launch to the tensors of Triton's interpreter, by the types in the
trace's signature.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelwright.tools.compiling.text.constants import named_tuple
from kernelwright.tools.trace.reinterpreted import Descriptor, Reinterpreted, forged_trace

if TYPE_CHECKING:
    from collections.abc import Callable

    import triton.language as tl

Json = Any
_ALL_BITS = (1 << 64) - 1
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
MISSING_ARGUMENT = object()


class KernelParameters:
    """Parameters of one kernel, and the source of each value: the launch, or a constant of the
    specialisation.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        signature: Mapping[str, Json],
        constants: Mapping[tuple[int | str, ...], Any],
        fields: Mapping[str, Sequence[str]],
    ) -> None:
        """Reads the signature of a kernel. Raises Failed if the trace has no type for a parameter
        without default.

        function: the rebuilt kernel as a Python function. constants: restored values by path.
        fields: names of the fields of parameters which are named tuples.
        """
        import inspect

        from triton.runtime.jit import _normalize_ty

        parameters = inspect.signature(function).parameters
        notes = inspect.get_annotations(function)
        plain = {name for name in notes if _normalize_ty(notes[name]) == "constexpr"}
        self._parameters: list[tuple[str, int, Json, bool]] = []
        self._constants = constants
        self._fields = fields
        for index, name in enumerate(parameters):
            kind = signature.get(name, MISSING_ARGUMENT)
            if kind is MISSING_ARGUMENT:
                if parameters[name].default is inspect.Parameter.empty:
                    raise forged_trace(f"says nothing of the parameter {name} of a kernel")
                continue
            self._parameters.append((name, index, kind, name in plain))

    def values(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the arguments of a launch by parameter. Raises Failed for a value of the wrong
        type.
        """
        return {
            name: self._with_fields(
                name,
                self._value(name, (index,), kind, arguments.get(name, MISSING_ARGUMENT), plain),
            )
            for name, index, kind, plain in self._parameters
        }

    def _with_fields(self, name: str, argument: object) -> Any:
        if type(argument) is not tuple:
            return argument
        try:
            return named_tuple(argument, self._fields.get(name))
        except ValueError as error:
            raise forged_trace(f"has {error}") from error

    def _value(
        self, name: str, path: tuple[int | str, ...], kind: Json, argument: object, plain: bool
    ) -> Any:
        if isinstance(kind, list | tuple):
            return self._tuple(name, path, kind, argument, plain)
        if argument is MISSING_ARGUMENT or kind == "constexpr":
            constant = self._constants.get(path, None if argument is MISSING_ARGUMENT else argument)
            return constant if plain else _as_constant(constant)
        return _typed(name, kind, argument)

    def _tuple(
        self,
        name: str,
        path: tuple[int | str, ...],
        kinds: Sequence[Json],
        argument: object,
        plain: bool,
    ) -> Any:
        """A tuple of parameters: constants may stand among the values, or be left out of them."""
        if (whole := self._constants.get(path, MISSING_ARGUMENT)) is not MISSING_ARGUMENT:
            return whole if plain else _as_constant(whole)
        values = list(argument) if isinstance(argument, list | tuple) else []
        passed = [i for i, kind in enumerate(kinds) if kind != "constexpr"]
        if len(values) == len(kinds):
            arguments = dict(enumerate(values))
        elif len(values) == len(passed):
            arguments = dict(zip(passed, values, strict=True))
        else:
            raise forged_trace(f"gives other values for the tuple {name} than its type has")
        return tuple(
            self._value(name, (*path, i), kind, arguments.get(i, MISSING_ARGUMENT), plain)
            for i, kind in enumerate(kinds)
        )


def _as_constant(value: object) -> Any:
    """Returns a compiled-in parameter without `constexpr` annotation as a tensor: a number of 1,
    None, or a tuple of these.
    """
    from triton.runtime import interpreter

    return interpreter._implicit_cvt(value) if isinstance(value, bool | int | tuple) else value


def _typed(name: str, kind: str, value: object) -> Any:
    """Returns a run-time argument as a Triton tensor of the type `kind`."""
    import torch
    import triton.language as tl

    if kind.startswith("tensordesc"):
        return _descriptor(name, value)
    type_ = _type(name, kind)
    if isinstance(type_, tl.pointer_type):
        value = value.base if isinstance(value, Reinterpreted) else value
        if value is not None and not isinstance(value, torch.Tensor):
            raise forged_trace(f"gives a {type(value).__name__} for the pointer {name}")
        return _tensor(np.array([0 if value is None else value.data_ptr()], np.uint64), type_)
    if type(value) not in (bool, int, float) or (type(value) is float and not type_.is_floating()):
        raise forged_trace(f"gives a {type(value).__name__} for the {kind} {name}")
    return _tensor(_number(type_, value), type_)


def _type(name: str, kind: str) -> Any:
    import triton.language as tl

    try:
        return tl.str_to_ty(kind, None)
    except Exception as error:
        raise forged_trace(f"has a type of no known form for the parameter {name}") from error


def _number(type_: tl.dtype, value: Any) -> Any:
    from triton.runtime import interpreter

    if str(type_) == "bf16":
        return interpreter.interpreter_builder.get_bf16(value).data
    dtype = interpreter._get_np_dtype(type_)
    with np.errstate(all="ignore"):
        if type_.is_floating():
            return np.array([value], np.float64).astype(dtype)
        if dtype == np.bool_:
            return np.array([bool(value)])
        bits = int(value) & _ALL_BITS & ((1 << (8 * dtype.itemsize)) - 1)
        return np.array([bits], _UNSIGNED[dtype.itemsize]).view(dtype)


def _tensor(data: np.ndarray, type_: tl.dtype) -> Any:
    import triton.language as tl
    from triton.runtime import interpreter

    return tl.tensor(interpreter.TensorHandle(data, type_), type_)


def _descriptor(name: str, value: object) -> Any:
    from triton.runtime import interpreter
    from triton.tools.tensor_descriptor import TensorDescriptor

    if not isinstance(value, Descriptor):
        raise forged_trace(f"gives a {type(value).__name__} for the descriptor {name}")
    descriptor = TensorDescriptor(
        value.base,
        list(value.shape),
        list(value.strides),
        list(value.block_shape),
        padding=value.padding,
    )
    return interpreter._implicit_cvt(descriptor)
