"""Executes the steps of a trace: torch operators by name, launches through `launch`, choices, and
tensors of the host code.

A step is prepared once and run many times. Memory that an operator leaves uninitialised is
poisoned, so that no step finds results of an earlier call. A tensor is dropped after its last use,
as by the host code itself.

Example: the step {"op": "aten.add.Tensor", "args": [{"t": 0}, 1.5], "out": {"t": 2}} becomes a
function of the table; run on {0: a}, it adds the entry 2: a + 1.5. If no later step uses tensor 0,
it then removes entry 0.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from kernelwright.tools.replaying import operators
from kernelwright.tools.replaying.interpreter.cpu_operators import STAND_INS
from kernelwright.tools.replaying.noise import NOISE
from kernelwright.tools.report import Failed, Failure, Fault
from kernelwright.tools.trace.reinterpreted import Json, Reader, Table, forged_trace, reader
from kernelwright.tools.trace.shared_memory import numbers_of
from kernelwright.tools.trace.trace import (
    Choice,
    Data,
    Launch,
    Operator,
    Step,
    all_steps,
    tensors_in,
)

if TYPE_CHECKING:
    import torch


MAX_ALLOCATED_BYTES = 1 << 30
"""Maximum number of bytes allocated by a call on a CPU, including those of dropped tensors."""


MAX_VIEW_ELEMENTS = 1 << 36
"""Maximum number of elements of a view."""


class Memory(Protocol):
    """Allocator of new tensors (tools/replaying/allocations.py,
    tools/replaying/interpreter/arena.py)."""

    def fresh(self, meta: torch.Tensor, fill: float | None) -> Any:
        """Returns the tensor that replaces `meta`, the result of an allocating operator: filled
        with `fill`, or poisoned.

        `meta` is on the device; if the allocator has an attribute `made_on` equal to "meta", it is
        a form without data.
        """


LaunchCall = Callable[[str, tuple[int, int, int], dict[str, Any], Table], None]


@dataclass
class Call:
    """Parameters of a run of the steps."""

    launch: LaunchCall
    """Launches a kernel: its key, grid, arguments by parameter, and the table of tensors."""
    memory: Memory
    poison: int | None = None
    """Byte for uninitialised memory, or NOISE; None leaves memory as allocated."""
    choices: Mapping[int, int] | int = 0
    """Number of the choice -> alternative; an int selects the same alternative everywhere (modulo
    the count)."""
    launches: bool = True
    around: Callable[[Step], contextlib.AbstractContextManager[Any]] | None = None
    """Context manager entered around every operator and launch."""
    allocated_bytes: int = 0
    """Bytes allocated so far."""
    step: Step | None = None
    """The running step, to explain exceptions."""
    table: Callable[[Mapping[int, Any]], Table] = dict
    """Creates the table of a call from the tensors present before it."""

    def chosen(self, index: int, count: int) -> int:
        """Returns the alternative of choice number `index`, which has `count` of them."""
        selected = self.choices if isinstance(self.choices, int) else self.choices.get(index, 0)
        return selected % count

    def count(self, nbytes: int, device: str) -> None:
        """Adds allocated bytes. Raises Failed with MEMORY above MAX_ALLOCATED_BYTES on a CPU; a GPU
        reports its own limit."""
        self.allocated_bytes += nbytes
        if device == "cpu" and self.allocated_bytes > MAX_ALLOCATED_BYTES:
            raise Failed(
                Failure(
                    fault=Fault.MEMORY,
                    message=f"one call of forward allocates more than {MAX_ALLOCATED_BYTES >> 30} GiB",
                )
            )


Prepared = Callable[[Table, Call], None]


class Arguments(dict[str, Any]):
    """Arguments of a launch by parameter."""

    reached: Sequence[Any] = ()
    """Tensors whose addresses are stored in tensors among the arguments."""


class Steps:
    """A sequence of steps, prepared to be run."""

    def __init__(self, steps: Sequence[Step], keep: Iterable[int], device: str) -> None:
        """keep: numbers of tensors that outlive the run. Raises Failed for a step that may not be
        executed."""
        last = _last_uses(steps, set(keep))
        self._steps: list[tuple[Step, Prepared, tuple[int, ...]]] = []
        choices = 0
        for index, step in enumerate(steps):
            self._steps.append((step, prepare(step, device, choices), last.get(index, ())))
            choices += isinstance(step, Choice)

    def run(self, table: Table, call: Call) -> None:
        """Runs every step in order; the table receives new tensors. Raises Failed, and torch's
        errors."""
        let_go: Callable[[], None] | None = getattr(call.memory, "let_go", None)
        for step, prepared, dropped in self._steps:
            call.step = step
            prepared(table, call)
            for number in dropped:
                table.pop(number, None)
            if dropped and let_go is not None:
                let_go()


def _last_uses(steps: Sequence[Step], keep: set[int]) -> dict[int, tuple[int, ...]]:
    """Maps the index of a step to tensors made in these steps and unused after it."""
    last: dict[int, int] = {}
    results: set[int] = set()
    for index, step in enumerate(steps):
        for inner in all_steps([step]):
            written = numbers_made(inner)
            results.update(written)
            for number in (*numbers_used(inner), *written):
                last[number] = index
    ending: dict[int, list[int]] = {}
    for number, index in last.items():
        if number in results and number not in keep:
            ending.setdefault(index, []).append(number)
    return {index: tuple(numbers) for index, numbers in ending.items()}


def numbers_used(step: Operator | Launch | Data) -> list[int]:
    """Returns the numbers of the tensors that a step reads."""
    return numbers_of(step)[0]


def numbers_made(step: Operator | Launch | Data) -> list[int]:
    """Returns the numbers of the tensors that a step makes."""
    return numbers_of(step)[1]


def prepare(step: Step, device: str, index: int = 0) -> Prepared:
    """Returns a step as a function. index: its number among choices. Raises Failed."""
    if isinstance(step, Operator):
        return _watched(step, _operator(step, device))
    if isinstance(step, Launch):
        return _watched(step, _launch(step, device))
    if isinstance(step, Data):
        return _data(step, device)
    return _choice(step, device, index)


def _watched(step: Step, prepared: Prepared) -> Prepared:
    def run(table: Table, call: Call) -> None:
        if call.around is None:
            prepared(table, call)
        else:
            with call.around(step):
                prepared(table, call)

    return run


# ------------------------------------------------------------------ operators
def _operator(step: Operator, device: str) -> Prepared:
    allowed = operators.known(step.op)
    arguments = OperatorArguments(step, device)
    bind = binder(step.out)
    if (
        allowed.name in operators.UNINITIALISED or allowed.name in operators.FILLS
    ) and not allowed.mutable:
        return _allocation(allowed, arguments, bind, device)
    grows = allowed.name in operators.GROWING
    perform = STAND_INS.get(allowed.name, allowed.call) if device == "cpu" else allowed.call
    values = (*step.args, *step.kwargs.values())
    own_generator = device != "cpu" and any(
        isinstance(v, dict) and "generator" in v for v in values
    )

    def run(table: Table, call: Call) -> None:
        args, kwargs = arguments.read(table)
        before = _storage_bytes(args[0]) if grows else 0
        result = (
            operators.drawn_on_the_host(allowed, args, kwargs, device)
            if own_generator
            else perform(*args, **kwargs)
        )
        if grows and call.poison is not None:
            _poison_beyond(result, before, call.poison % NOISE)
        if grows and (recount := getattr(table, "recount", None)) is not None:
            recount()
        if allowed.view:
            _require_some_size(result)
        elif not allowed.mutable:
            call.count(_bytes(result), device)
        bind(result, table)

    return run


class OperatorArguments:
    """Positional and named arguments of an operator, without those that concern host memory alone."""

    def __init__(self, step: Operator, device: str) -> None:
        self._args = [reader(a, device) for a in step.args]
        self._kwargs = {k: reader(v, device) for k, v in step.kwargs.items() if k != "pin_memory"}
        self._fixed = [a.value if a.constant else None for a in self._args]
        self._named = {k: a.value for k, a in self._kwargs.items() if a.constant}
        self._tensor_positions = [(i, a.value) for i, a in enumerate(self._args) if not a.constant]
        self._names = [(k, a.value) for k, a in self._kwargs.items() if not a.constant]

    def read(self, table: Table) -> tuple[list[Any], dict[str, Any]]:
        """Returns positional and named arguments, with tensors from the table."""
        args, kwargs = self._fixed.copy(), self._named.copy()
        for position, get in self._tensor_positions:
            args[position] = get(table)
        for name, get in self._names:
            kwargs[name] = get(table)
        return args, kwargs


def _allocation(
    allowed: operators.AllowedOperator,
    arguments: OperatorArguments,
    bind: Callable[[Any, Table], None],
    device: str,
) -> Prepared:
    """Returns a step that asks torch for the form, and allocates the memory from the call."""
    value = operators.FILLS.get(allowed.name)

    def run(table: Table, call: Call) -> None:
        args, kwargs = arguments.read(table)
        form = allowed.call(*args, **kwargs | {"device": getattr(call.memory, "made_on", device)})
        fill = (
            value
            if allowed.name in operators.UNINITIALISED or value is not None
            else _fill_value(allowed.name, args, kwargs)
        )
        call.count(_bytes(form), device)
        bind(call.memory.fresh(form, fill), table)

    return run


def _fill_value(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    position = 2 if name == "new_full" else 1
    return args[position] if len(args) > position else kwargs["fill_value"]


def binder(out: Json) -> Callable[[Any, Table], None]:
    """Returns a function that stores results in the table under the numbers of `out`. Raises Failed
    if the forms differ."""
    if isinstance(out, dict) and len(out) == 1 and type(out.get("t")) is int:
        number = out["t"]
        return lambda result, table: _put(number, result, table)
    if isinstance(out, dict) and len(out) == 1 and isinstance(out.get("tuple"), list | tuple):
        out = out["tuple"]
    if not isinstance(out, list | tuple) or not any(True for _ in tensors_in(out)):
        return lambda result, table: None
    parts = [binder(item) for item in out]

    def bind(result: object, table: Table) -> None:
        if not isinstance(result, list | tuple) or len(result) != len(parts):
            raise forged_trace("names other results of an operator than it has")
        for part, item in zip(parts, result, strict=True):
            part(item, table)

    return bind


def _put(number: int, result: object, table: Table) -> None:
    import torch

    if not isinstance(result, torch.Tensor):
        raise forged_trace("names a result that is no tensor")
    table[number] = result


def _bytes(result: object) -> int:
    import torch

    if isinstance(result, torch.Tensor):
        return result.numel() * result.element_size()
    return sum(map(_bytes, result)) if isinstance(result, list | tuple) else 0


def _require_some_size(result: object) -> None:
    """Raises Failed for a view that repeats memory to more elements than any machine can read."""
    for tensor in result if isinstance(result, list | tuple) else (result,):
        if tensor.numel() > MAX_VIEW_ELEMENTS:
            message = (
                f"a view of {tensor.numel():,} elements, and at most {MAX_VIEW_ELEMENTS:,} are read"
            )
            raise Failed(Failure(fault=Fault.RESOURCES, message=message))


def _storage_bytes(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage().nbytes())


def _poison_beyond(tensor: torch.Tensor, before: int, byte: int) -> None:
    """Poisons the part by which a storage has grown."""
    import torch

    storage = tensor.untyped_storage()
    if (after := int(storage.nbytes())) > before:
        torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(
            storage, before, (after - before,), (1,)
        ).fill_(byte)


# ------------------------------------------------------------------ launches, data, choices
def _launch(step: Launch, device: str) -> Prepared:
    readers: list[tuple[str, Reader]] = [
        (name, reader(value, device)) for name, value in step.args.items()
    ]

    reached = list(tensors_in(step.reaches))

    def run(table: Table, call: Call) -> None:
        if call.launches:
            arguments = Arguments({name: argument.read(table) for name, argument in readers})
            arguments.reached = [table[number] for number in reached]
            call.launch(step.kernel, step.grid, arguments, table)

    return run


def _data(step: Data, device: str) -> Prepared:
    """Returns a step that copies a host tensor, prepared on the device, and writes the run's
    addresses into the copy."""
    import torch

    source = decoded(step).to(device)
    if step.addresses and source.dtype not in (torch.int64, torch.uint64):
        raise forged_trace("holds addresses in a tensor of another type")
    if any(not 0 <= position < source.numel() for position, _, _ in step.addresses):
        raise forged_trace("holds addresses beyond a tensor")

    def run(table: Table, call: Call) -> None:
        copy = table[step.t] = torch.clone(source, memory_format=torch.preserve_format)
        for position, tensor, offset in step.addresses:
            [number] = tensors_in(tensor)  # one kernel each: a graph may capture that
            copy.view(torch.int64).view(-1)[position].fill_(table[number].data_ptr() + offset)

    return run


def decoded(step: Data) -> Any:
    """Returns a contiguous tensor on the CPU. Raises Failed if the data's size differs from shape
    and dtype."""
    import torch

    dtype: Any = getattr(torch, step.dtype, None)
    try:
        raw = bytearray(base64.b64decode(step.data, validate=True))
    except (binascii.Error, ValueError) as error:
        raise forged_trace("holds data that is no base64") from error
    count = math.prod(step.shape)
    fits = (
        isinstance(dtype, torch.dtype)
        and min(step.shape, default=0) >= 0
        and len(raw) == count * dtype.itemsize
    )
    if not fits:
        raise forged_trace("holds data of another size than its shape")
    return (
        torch.frombuffer(raw, dtype=dtype).reshape(step.shape)
        if raw
        else torch.empty(step.shape, dtype=dtype)
    )


def _choice(step: Choice, device: str, index: int) -> Prepared:
    alternatives = [
        [(s, prepare(s, device)) for s in alternative] for alternative in step.alternatives
    ]
    if not alternatives:
        raise forged_trace("holds a choice among nothing")

    def run(table: Table, call: Call) -> None:
        for inner, prepared in alternatives[call.chosen(index, len(alternatives))]:
            call.step = inner
            prepared(table, call)

    return run
