"""The tape: every operator and launch of a candidate's host code, in order, as plain data.

Runs in a candidate's process, on tensors without values. Example: `y = x * 2; k[(4,)](y, 1000)`
appends

    {"op": "aten.mul.Tensor", "args": [{"t": 0}, 2], "kwargs": {}, "out": {"t": 1}, "line": 12}
    {"kernel": "3f9c...", "grid": [4, 1, 1], "args": {"y": {"t": 1}, "n": 1000}, "reaches": [], "line": 12}
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernelwright.tools.operators.dispatch import without_dynamo
from kernelwright.tools.trace.trace import MAX_DATA_BYTES, MAX_STEPS, Json, tensors_in
from kernelwright.tools.tracing.kernels import NotPlain, Texts, plain
from kernelwright.tools.tracing.pretended_gpu.fake_gpu import VALUES, tensor_at

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types


Step = dict[str, Any]
_SILENT = ("prim", "prims_guard")
MAX_TENSORS = 200_000
LEAST_ADDRESS = 1 << 20
"""Smaller numbers do not count as addresses."""


class TooLong(RuntimeError):
    """Raised if the host code exceeds the limits of a trace."""


@without_dynamo
class Tape(TorchDispatchMode):
    """Dispatch mode around the candidate's code. `steps` receives the next step."""

    def __init__(self, path: str, texts: Texts) -> None:
        super().__init__()
        self.steps: list[Step] = []
        self.candidate_operators: dict[str, Any] = {}
        """Operators registered by the candidate, by qualified name: their inner operators are
        recorded."""
        self._path = path
        self._texts = texts
        self._numbers: dict[int, int] = {}
        self._alive: list[torch.Tensor] = []
        self.storages: list[int] = []
        """Identity of each tensor's storage, by tensor number."""
        self._reach: dict[int, set[int]] = {}
        """For a storage that holds addresses, the numbers of the tensors at these addresses."""
        self._data = 0
        self._generators: dict[tuple[int, int], torch.Generator] = {}
        """Generators of the host code that have drawn, by identity and seed, in the order of their
        numbers."""
        self.launches = 0
        """Number of recorded launches."""

    # -------------------------------------------------------------- tensors
    def number(self, tensor: torch.Tensor) -> int:
        """Returns the tensor's number; records a new tensor with values from the host code as a
        Data step."""
        number_before = self._numbers.get(id(tensor))
        if number_before is not None:
            return number_before
        if len(self._alive) >= MAX_TENSORS:
            raise TooLong("more tensors than a trace may hold")
        number = self._numbers[id(tensor)] = len(self._alive)
        self._alive.append(tensor)
        self.storages.append(
            tensor.untyped_storage()._cdata if tensor.layout is torch.strided else -1 - number
        )
        if not isinstance(tensor, torch._subclasses.fake_tensor.FakeTensor):
            self._write_data(number, tensor)
        return number

    def tensor(self, number: int) -> torch.Tensor:
        """Returns the tensor with this number."""
        return self._alive[number]

    def _write_data(self, number: int, tensor: torch.Tensor) -> None:
        with torch.utils._python_dispatch._disable_current_modes():
            values = tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
            addresses = self._addresses(values)
            raw = bytes(values.view(-1).view(torch.uint8).tolist()) if values.numel() else b""
        self._data += len(raw)
        if self._data > MAX_DATA_BYTES // 2:
            raise TooLong("more data of the host's own than a trace may hold")
        self._append({
            "t": number, "dtype": str(tensor.dtype).removeprefix("torch."), "shape": [int(n) for n in tensor.shape],
            "data": base64.b64encode(raw).decode(), "addresses": addresses,
        })  # fmt: skip
        self._note_reach(number, {n for _, tensor, _ in addresses for n in tensor.values()})

    def _addresses(self, values: torch.Tensor) -> list[list[Any]]:
        """Returns tensor addresses among the values, in the trace's format, and sets these values
        to zero."""
        if values.dtype not in (torch.int64, torch.uint64):
            return []
        addresses: list[list[Any]] = []
        flat = values.view(torch.int64).view(-1)
        for index in (flat >= LEAST_ADDRESS).nonzero().view(-1).tolist():
            if (at := tensor_at(int(flat[index]))) is not None:
                addresses.append([index, {"t": self.number(at[0])}, at[1]])
        flat[[index for index, _, _ in addresses]] = 0
        return addresses

    def _note_reach(self, number: int, tensors: set[int]) -> None:
        if tensors:
            self._reach.setdefault(self.storages[number], set()).update(tensors)

    def _reached(self, numbers: Iterable[int]) -> set[int]:
        """Returns numbers of the tensors whose addresses are stored in these tensors."""
        return {n for number in numbers for n in self._reach.get(self.storages[number], ())}

    # -------------------------------------------------------------- values
    def value(self, value: Any) -> Json:
        """Returns an argument or result in the trace's format. Raises NotPlain."""
        if isinstance(value, torch.Tensor):
            return {"t": self.number(value)}
        if isinstance(value, tuple):
            return {"tuple": [self.value(v) for v in tuple.__iter__(value)]}
        if isinstance(value, list):
            return [self.value(v) for v in list.__iter__(value)]
        if isinstance(value, torch.dtype | torch.memory_format | torch.layout):
            return {type(value).__name__: str(value).removeprefix("torch.")}
        if isinstance(value, torch.device):
            return {"device": value.type}
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            return plain(value.node.hint)
        if isinstance(value, torch.Generator):
            return self._generator(value)
        if type(value).__name__ == "TensorDescriptor" and hasattr(value, "block_shape"):
            return {"descriptor": self._descriptor(value)}
        if hasattr(value, "data_ptr") and (base := _wrapped_tensor(value)) is not None:
            return self.value(_at_address(base, value))
        if type(value).__name__ == "TensorWrapper" and hasattr(value, "base"):
            return {"reinterpret": {"base": self.value(value.base), "tl_dtype": str(value.dtype)}}
        if type(value).__module__.startswith("triton") or hasattr(value, "fn"):
            return self._texts.value(value)
        return plain(value)

    def _generator(self, value: torch.Generator) -> Json:
        """Returns a generator in the trace's format; None for torch's own.

        A generator with a new seed counts as another generator; a repeated seed cannot be
        distinguished from a continued sequence.
        """
        if value is torch.default_generator:
            return None
        key = (id(value), value.initial_seed())
        first = key not in self._generators
        self._generators[key] = value
        return {
            "generator": {
                "number": list(self._generators).index(key),
                "seed": key[1],
                "first": first,
            }
        }

    def _descriptor(self, value: Any) -> Json:
        return {
            "base": self.value(value.base), "shape": [plain(int(n)) for n in value.shape],
            "strides": [plain(int(n)) for n in value.strides],
            "block": [plain(int(n)) for n in value.block_shape], "padding": str(getattr(value, "padding", "zero")),
        }  # fmt: skip

    def output(self, value: object) -> Json:
        """Returns forward's result in the trace's format.

        Reads tuples, lists and dicts through their base classes, and a dataclass as a dict of its
        fields; any other object becomes {"other": type}.
        """
        if isinstance(value, torch.Tensor):
            exact = type(value) is torch.Tensor or isinstance(
                value, torch._subclasses.fake_tensor.FakeTensor | torch.nn.Parameter
            )
            return {"t": self.number(value)} if exact else {"other": type(value).__name__[:60]}
        if isinstance(value, tuple):
            return {"tuple": [self.output(v) for v in tuple.__iter__(value)]}
        if isinstance(value, list):
            return [self.output(v) for v in list.__iter__(value)]
        if isinstance(value, dict):
            return {"dict": {str(k)[:100]: self.output(v) for k, v in dict.items(value)}}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [f.name for f in dataclasses.fields(value)]
            return {
                "dict": {name[:100]: self.output(getattr(value, name, None)) for name in fields}
            }
        try:
            return plain(value)
        except NotPlain:
            return {"other": type(value).__name__[:60]}

    # -------------------------------------------------------------- steps
    def _append(self, step: Step) -> None:
        if len(self.steps) >= MAX_STEPS:
            raise TooLong(f"more than {MAX_STEPS:,} steps in one call")
        if "op" not in step and "data" not in step:  # a launch, or a choice of launches
            VALUES.forget_all()
        step["line"] = self._line()
        self.steps.append(step)

    def _line(self) -> int:
        """Returns the line of the innermost frame in the candidate's file."""
        frame: Any = sys._getframe(2)
        while frame is not None:
            if frame.f_code.co_filename == self._path:
                return int(frame.f_lineno)
            frame = frame.f_back
        return 0

    def launched(self, kernel: str, grid: tuple[int, int, int], args: dict[str, Any]) -> None:
        """Records a launch. kernel: its key in the trace; args: by parameter."""
        written = {name: self.value(v) for name, v in args.items()}
        self.launches += 1
        reached = [{"t": number} for number in sorted(self._reached(tensors_in(written)))]
        self._append({"kernel": kernel, "grid": list(grid), "args": written, "reaches": reached})

    def choice(self, name: str, alternatives: list[list[Step]], labels: list[str]) -> None:
        """Records a choice among these lists of steps. Name and labels are shortened to 120 and 200
        characters."""
        self._append(
            {
                "name": name[:120],
                "alternatives": alternatives,
                "labels": [text[:200] for text in labels],
            }
        )

    @contextlib.contextmanager
    def diverted(self) -> Iterator[list[Step]]:
        """Context manager that collects steps in a separate list."""
        before, self.steps = self.steps, []
        try:
            yield self.steps
        finally:
            self.steps = before

    def __torch_dispatch__(
        self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
    ) -> Any:
        kwargs = kwargs or {}
        candidate_function = (
            self.candidate_operators.get(func._schema.name)
            if self.candidate_operators and hasattr(func, "_schema")
            else None
        )
        if candidate_function is not None:
            with self:
                return candidate_function(*args, **kwargs)
        if func.namespace in _SILENT or _is_symbolic([*args, *kwargs.values()]):
            return func(*args, **kwargs)
        if func is torch.ops.aten._to_copy.default and kwargs.get("dtype") is args[0].dtype:
            kwargs = {
                name: value for name, value in kwargs.items() if name != "dtype"
            }  # moved, and not converted
        # arguments first: what the host made itself is written down before it is used
        written = [self.value(a) for a in args], {k: self.value(v) for k, v in kwargs.items()}
        result = func(*args, **kwargs)
        if not _has_tensor([*args, *kwargs.values(), result]):
            return result  # of types alone (promote_types): there is nothing to replay
        if _has_default_dtype(func, kwargs, result):
            written[1]["dtype"] = self.value(result.dtype)  # a replay has the usual default
        out = self.value(result)
        self._append({"op": str(func), "args": written[0], "kwargs": written[1], "out": out})
        if self._reach and (reached := self._reached(tensors_in([*written[0], written[1]]))):
            for number in tensors_in(out):
                if self._alive[number].dtype in (torch.int64, torch.uint64):
                    self._note_reach(number, reached)
        return result


def _is_symbolic(values: Iterable[Any]) -> bool:
    """Returns True for an operator on symbolic sizes: a compiler of the candidate's is running, and
    nothing is computed."""
    return any(
        value._has_symbolic_sizes_strides
        if isinstance(value, torch.Tensor)
        else isinstance(value, torch.SymInt)
        or (isinstance(value, list | tuple) and _is_symbolic(value))
        for value in values
    )


def _has_default_dtype(func: OpOverload, kwargs: dict[str, Any], result: object) -> bool:
    """Returns True if an operator made a tensor of an unusual default dtype."""
    if torch.get_default_dtype() is torch.float32 or kwargs.get("dtype") is not None:
        return False
    takes_dtype = any(argument.name == "dtype" for argument in func._schema.arguments)
    return takes_dtype and isinstance(result, torch.Tensor) and result.is_floating_point()


def _has_tensor(values: Iterable[Any]) -> bool:
    return any(
        isinstance(v, torch.Tensor) or (isinstance(v, list | tuple) and _has_tensor(v))
        for v in values
    )


def _wrapped_tensor(value: object) -> torch.Tensor | None:
    """Returns the tensor below an object with an address (flag_gems' StridedBuffer); None without
    one."""
    if type(value).__name__ == "TensorWrapper":
        return None
    return next(
        (v for v in getattr(value, "__dict__", {}).values() if isinstance(v, torch.Tensor)), None
    )


def _at_address(base: torch.Tensor, value: Any) -> torch.Tensor:
    """Returns a view of `base` that starts at the object's address."""
    offset = (int(value.data_ptr()) - int(base.data_ptr())) // base.element_size()
    return base if not offset else base.as_strided((1,), (1,), int(base.storage_offset()) + offset)
