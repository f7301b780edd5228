"""Converts values of a trace (tools/trace/trace.py, "How values are written") to arguments of
operators and launches.

Example: {"tuple": [{"t": 3}, 0.5]} becomes a reader which returns (table[3], 0.5); [2, 4], without
tensors, becomes the constant [2, 4].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kernelwright.tools.report import Cheat, Failed, Failure, Fault, clean_text

Json = Any
MAX_GENERATORS = 1 << 16
"""Maximum number of the host code's own generators in a trace."""
SEED_BOUND = 1 << 63
"""Bound of seeds: torch accepts -SEED_BOUND up to, not including, 2 * SEED_BOUND."""
Table = dict[int, Any]
"""Tensors by number."""


def forged_trace(message: str) -> Failed:
    """Returns the failure for a trace that no honest tracer writes."""
    return Failed(
        Failure(
            fault=Fault.CHEAT, cheat=Cheat.FORGERY, message=clean_text(f"the trace {message}", 300)
        )
    )


@dataclass(frozen=True)
class Reinterpreted:
    """A tensor read by its kernel as another dtype: Triton's TensorWrapper."""

    base: Any
    tl_dtype: str


@dataclass(frozen=True)
class Descriptor:
    """A tensor descriptor made on the host. Attributes are named as in Triton's TensorDescriptor."""

    base: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    padding: str


@dataclass(frozen=True)
class Reader:
    """A value that may hold tensors: constant, or computed from the table at each call."""

    constant: bool
    value: Any
    """The value itself, or a function of the table."""

    def read(self, table: Table) -> Any:
        """Returns the value, with tensors from the table."""
        return self.value if self.constant else self.value(table)


def reader(value: Json, device: str) -> Reader:
    """Prepares a value of a trace. Devices become `device`. Raises Failed for an unknown form."""
    if isinstance(value, list | tuple):
        return _sequence([reader(v, device) for v in value], list)
    if not isinstance(value, dict):
        return Reader(True, value)
    if len(value) != 1:
        raise forged_trace("holds a value of no known form")
    ((tag, body),) = value.items()
    match tag:
        case "t" if type(body) is int:
            return Reader(False, _tensor(body))
        case "tuple" if isinstance(body, list | tuple):
            return _sequence([reader(v, device) for v in body], tuple)
        case "descriptor" if isinstance(body, dict):
            return _descriptor(body, device)
        case "reinterpret" if isinstance(body, dict):
            return _reinterpreted(body, device)
        case "generator" if isinstance(body, dict):
            return _generator(body)
    return Reader(True, _constant(tag, body, device))


def _tensor(number: int) -> Callable[[Table], Any]:
    def get(table: Table) -> Any:
        try:
            return table[number]
        except KeyError:
            raise forged_trace(f"uses tensor {number}, which nothing has made") from None

    return get


def _sequence(parts: list[Reader], kind: Callable[[list[Any]], Any]) -> Reader:
    if all(part.constant for part in parts):
        return Reader(True, kind([part.value for part in parts]))
    return Reader(False, lambda table: kind([part.read(table) for part in parts]))


def _descriptor(body: dict[str, Json], device: str) -> Reader:
    try:
        base = reader(body["base"], device)
        shape, strides, block = (
            tuple(map(int, body[name])) for name in ("shape", "strides", "block")
        )
        padding = str(body.get("padding", "zero"))
    except (KeyError, TypeError, ValueError) as error:
        raise forged_trace("holds a descriptor of no known form") from error
    return Reader(False, lambda table: Descriptor(base.read(table), shape, strides, block, padding))


def _reinterpreted(body: dict[str, Json], device: str) -> Reader:
    if not isinstance(body.get("base"), dict) or not isinstance(body.get("tl_dtype"), str):
        raise forged_trace("holds a reinterpreted tensor of no known form")
    base, kind = reader(body["base"], device), body["tl_dtype"]
    return Reader(False, lambda table: Reinterpreted(base.read(table), kind))


def _generator(body: dict[str, Json]) -> Reader:
    """Returns a reader of a generator of the host code, on the CPU, stored in the table under a
    number below those of tensors.

    At its first draw in a call the generator starts from its seed.
    """
    import torch

    number, seed = body.get("number"), body.get("seed")
    if type(number) is not int or type(seed) is not int:
        raise forged_trace("holds a generator without a whole number and seed")
    if not (0 <= number < MAX_GENERATORS and -SEED_BOUND <= seed < 2 * SEED_BOUND):
        raise forged_trace("holds a generator that torch does not make")
    key = -1 - number

    def get(table: Table) -> Any:
        if body.get("first") is True or key not in table:
            table[key] = torch.Generator().manual_seed(seed)
        return table[key]

    return Reader(False, get)


def _constant(tag: str, body: Json, device: str) -> Any:
    """Converts a value that is no tensor and holds none. Raises Failed for an unknown form."""
    import torch

    kinds: dict[str, Any] = {
        "dtype": torch.dtype,
        "layout": torch.layout,
        "memory_format": torch.memory_format,
    }
    if tag == "device":
        return torch.device(device)
    if tag == "float" and body in ("inf", "-inf", "nan"):
        return float(body)
    if tag in kinds and isinstance(body, str):
        constant = getattr(torch, body, None)
        if isinstance(constant, kinds[tag]):
            return constant
    if tag in ("tl_dtype", "function", "triton", "pointer_type"):
        return {tag: body}
    raise forged_trace(f"holds a value of no known form ({clean_text(tag, 40)})")


def bind(pattern: Json, argument: object, table: Table) -> None:
    """Puts the tensors of an argument of forward into the table under the numbers that the trace gives them.

    Raises Failed if the forms differ.
    """
    import torch

    if isinstance(pattern, Mapping) and len(pattern) == 1:
        ((tag, body),) = pattern.items()
        if tag == "t" and type(body) is int and isinstance(argument, torch.Tensor):
            table[body] = argument
            return
        if tag == "tensor":
            bind(body, argument, table)
            return
        if tag == "tuple" and isinstance(argument, tuple):
            pattern = body
        elif (
            tag == "dict"
            and isinstance(argument, dict)
            and isinstance(body, dict)
            and set(body) == set(argument)
        ):
            pattern, argument = list(body.values()), [argument[k] for k in body]
    if isinstance(pattern, list | tuple):
        if not isinstance(argument, list | tuple) or len(argument) != len(pattern):
            raise forged_trace("takes other inputs than the problem gives")
        for part, value in zip(pattern, argument, strict=True):
            bind(part, value, table)
    elif isinstance(argument, torch.Tensor):
        raise forged_trace("leaves out a tensor that the problem gives")
