"""The way round where this Triton lacks a private name that the true specialisation needs: a signature inferred from each launch's arguments, and `triton.compile`."""

from __future__ import annotations

from typing import Any

import torch

from tools.targets import Target
from tools.untrusted.offline_driver import check_arguments, check_grid
from tools.untrusted.recorder import Recorder

_POINTERS = {
    "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "float64": "fp64", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "i1",
    "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "uint16": "u16", "uint32": "u32", "uint64": "u64",
}  # fmt: skip
NOTE = (
    "this Triton is not one whose launches can be specialised offline: descriptors and hooks of a launch are not seen"
)


def install(recorder: Recorder, target: Target) -> None:
    """JITFunction.run compiles with an inferred signature and notes the launch."""
    import triton
    from triton.runtime.jit import JITFunction

    compile_watched = recorder.compiling(triton.compile)

    def run(self: Any, *args: Any, grid: Any, warmup: bool = False, **kwargs: Any) -> Any:
        names = [p.name for p in self.params]
        bound = self.signature.bind(*args, **{k: v for k, v in kwargs.items() if k in names})
        bound.apply_defaults()
        source = triton.compiler.ASTSource(self, *specialise(self, bound.arguments))
        options = {k: v for k, v in kwargs.items() if k not in names}
        kernel = compile_watched(source, target=target.gpu_target(), options=options)
        if not warmup:
            size = grid(bound.arguments) if callable(grid) else grid
            whole = check_grid((*size, 1, 1)[:3], kernel.metadata.name)
            check_arguments(tuple(names), tuple(bound.arguments.values()), kernel.metadata.name)
            recorder.launched(kernel.metadata, whole, ())
        return kernel

    JITFunction.run = run


def specialise(
    function: Any, arguments: dict[str, Any]
) -> tuple[dict[str, str], dict[tuple[int, ...], Any], dict[tuple[int, ...], Any]]:
    """Signature, constants and attributes as triton.compiler.ASTSource takes them."""
    signature: dict[str, str] = {}
    constants: dict[tuple[int, ...], Any] = {}
    attributes: dict[tuple[int, ...], Any] = {}
    for index, (parameter, value) in enumerate(zip(function.params, arguments.values(), strict=True)):
        if (
            parameter.is_constexpr
            or value is None
            or (type(value) is int and value == 1 and not parameter.do_not_specialize)
        ):
            signature[parameter.name], constants[(index,)] = "constexpr", value
            continue
        signature[parameter.name] = type_of(value)
        number = value.data_ptr() if isinstance(value, torch.Tensor) else value
        if type(number) is int and number % 16 == 0 and not parameter.do_not_specialize:
            attributes[(index,)] = [["tt.divisibility", 16]]
    return signature, constants, attributes


def type_of(value: Any) -> str:
    """Raises TypeError for what a kernel cannot take."""
    if isinstance(value, torch.Tensor):
        return "*" + _POINTERS[str(value.dtype).removeprefix("torch.")]
    if isinstance(value, bool):
        return "i1"
    if isinstance(value, int):
        return "i32" if -(2**31) <= value < 2**31 else "i64" if value < 2**63 else "u64"
    if isinstance(value, float):
        return "fp32"
    raise TypeError(f"a value of type {type(value).__name__} cannot be given to a kernel in plain mode")
