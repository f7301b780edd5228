"""Executes the steps of a trace: operators of torch by name, launches by what `launch` does with them, choices, tensors
of the host's own.

Every step is prepared once and run many times. Memory that an operator leaves unset is poisoned, so that no step finds
what an earlier call left there. A tensor is dropped after its last use, as the host code itself would have dropped it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

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

MAX_ALLOCATED_BYTES = 1 << 30
"""Bytes that one call may allocate on a CPU, those of tensors that it has dropped again included."""


MAX_VIEW_ELEMENTS = 1 << 36
"""Elements of one view, at most."""


class Memory(Protocol):
    """Where fresh tensors lie (tools/replaying/allocations.py, tools/replaying/interpreter/arena.py)."""

    def fresh(self, meta: Any, fill: float | None) -> Any:
        """The tensor that stands for `meta`, which an allocating operator gave: filled with `fill`, or poisoned. `meta`
        is on the device, or, where the memory has an attribute `made_on` that says "meta", it is a form alone.
        """


LaunchCall = Callable[[str, tuple[int, int, int], dict[str, Any], Table], None]


@dataclass
class Call:
    """What one run of the steps is done with."""

    launch: LaunchCall
    """Kernel's key, grid, arguments by parameter, and the tensors that exist."""
    memory: Memory
    poison: int | None = None
    """The byte in memory that nobody has set, or NOISE; None leaves it as it comes."""
    choices: Mapping[int, int] | int = 0
    """Number of the choice -> alternative; a whole number chooses the same (modulo their count) everywhere."""
    launches: bool = True
    around: Callable[[Step], contextlib.AbstractContextManager[Any]] | None = None
    """Entered round every operator and launch."""
    made: int = 0
    """Bytes allocated so far."""
    step: Step | None = None
    """The one that is running, for whoever explains an exception."""
    table: Callable[[Mapping[int, Any]], Table] = dict
    """Makes the table of a call from the tensors that are there before it."""

    def chosen(self, index: int, count: int) -> int:
        """The alternative of choice number `index`, of which there are `count`."""
        wanted = self.choices if isinstance(self.choices, int) else self.choices.get(index, 0)
        return wanted % count

    def count(self, made: int, device: str) -> None:
        """Raises Failed with MEMORY over MAX_ALLOCATED_BYTES on a CPU; a GPU says itself when it is full."""
        self.made += made
        if device == "cpu" and self.made > MAX_ALLOCATED_BYTES:
            raise Failed(
                Failure(
                    fault=Fault.MEMORY,
                    message=f"one call of forward allocates more than {MAX_ALLOCATED_BYTES >> 30} GiB",
                )
            )


Prepared = Callable[[Table, Call], None]


class Arguments(dict[str, Any]):
    """The arguments of a launch by parameter."""

    reached: Sequence[Any] = ()
    """Tensors whose addresses lie in tensors among the arguments."""


class Steps:
    """A sequence of steps, ready to be run."""

    def __init__(self, steps: Sequence[Step], keep: Iterable[int], device: str) -> None:
        """keep: numbers of the tensors that outlive the run. Raises Failed for a step that may not be executed."""
        last = _last_uses(steps, set(keep))
        self._steps: list[tuple[Step, Prepared, tuple[int, ...]]] = []
        choices = 0
        for index, step in enumerate(steps):
            self._steps.append((step, prepare(step, device, choices), last.get(index, ())))
            choices += isinstance(step, Choice)

    def run(self, table: Table, call: Call) -> None:
        """Every step in order; the table holds the tensors that are there, and gets those that are made. Raises Failed,
        and whatever torch raises.
        """
        let_go: Callable[[], None] | None = getattr(call.memory, "let_go", None)
        for step, prepared, dropped in self._steps:
            call.step = step
            prepared(table, call)
            for number in dropped:
                table.pop(number, None)
            if dropped and let_go is not None:
                let_go()


def _last_uses(steps: Sequence[Step], keep: set[int]) -> dict[int, tuple[int, ...]]:
    """Index of a step -> the tensors made in these steps that none after it uses."""
    last: dict[int, int] = {}
    made: set[int] = set()
    for index, step in enumerate(steps):
        for inner in all_steps([step]):
            written = numbers_made(inner)
            made.update(written)
            for number in (*numbers_used(inner), *written):
                last[number] = index
    ending: dict[int, list[int]] = {}
    for number, index in last.items():
        if number in made and number not in keep:
            ending.setdefault(index, []).append(number)
    return {index: tuple(numbers) for index, numbers in ending.items()}


def numbers_used(step: Operator | Launch | Data) -> list[int]:
    """Returns the numbers of the tensors that a step reads."""
    return numbers_of(step)[0]


def numbers_made(step: Operator | Launch | Data) -> list[int]:
    """Returns the numbers of the tensors that a step makes."""
    return numbers_of(step)[1]


def prepare(step: Step, device: str, index: int = 0) -> Prepared:
    """One step as a function. index: the number of the choice among choices. Raises Failed."""
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
    known = operators.known(step.op)
    arguments = OperatorArguments(step, device)
    bind = binder(step.out)
    if (
        known.name in operators.UNINITIALISED or known.name in operators.FILLS
    ) and not known.mutable:
        return _allocation(known, arguments, bind, device)
    grows = known.name in operators.GROWING
    perform = STAND_INS.get(known.name, known.call) if device == "cpu" else known.call
    given = (*step.args, *step.kwargs.values())
    own_generator = device != "cpu" and any(isinstance(v, dict) and "generator" in v for v in given)

    def run(table: Table, call: Call) -> None:
        args, kwargs = arguments.read(table)
        before = _storage_bytes(args[0]) if grows else 0
        made = (
            operators.drawn_on_the_host(known, args, kwargs, device)
            if own_generator
            else perform(*args, **kwargs)
        )
        if grows and call.poison is not None:
            _poison_beyond(made, before, call.poison % NOISE)
        if grows and (recount := getattr(table, "recount", None)) is not None:
            recount()
        if known.view:
            _require_some_size(made)
        elif not known.mutable:
            call.count(_bytes(made), device)
        bind(made, table)

    return run


class OperatorArguments:
    """Positional and named arguments of one operator. What concerns host memory alone is left out."""

    def __init__(self, step: Operator, device: str) -> None:
        self._args = [reader(a, device) for a in step.args]
        self._kwargs = {k: reader(v, device) for k, v in step.kwargs.items() if k != "pin_memory"}
        self._fixed = [a.value if a.constant else None for a in self._args]
        self._named = {k: a.value for k, a in self._kwargs.items() if a.constant}
        self._places = [(i, a.value) for i, a in enumerate(self._args) if not a.constant]
        self._names = [(k, a.value) for k, a in self._kwargs.items() if not a.constant]

    def read(self, table: Table) -> tuple[list[Any], dict[str, Any]]:
        """Positional and named arguments, with the tensors that the table holds now."""
        args, kwargs = self._fixed.copy(), self._named.copy()
        for place, get in self._places:
            args[place] = get(table)
        for name, get in self._names:
            kwargs[name] = get(table)
        return args, kwargs


def _allocation(
    known: operators.AllowedOperator,
    arguments: OperatorArguments,
    bind: Callable[[Any, Table], None],
    device: str,
) -> Prepared:
    """Asks torch for the form; the memory is the call's own."""
    value = operators.FILLS.get(known.name)

    def run(table: Table, call: Call) -> None:
        args, kwargs = arguments.read(table)
        made = known.call(*args, **kwargs | {"device": getattr(call.memory, "made_on", device)})
        fill = (
            value
            if known.name in operators.UNINITIALISED or value is not None
            else _fill_value(known.name, args, kwargs)
        )
        call.count(_bytes(made), device)
        bind(call.memory.fresh(made, fill), table)

    return run


def _fill_value(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    place = 2 if name == "new_full" else 1
    return args[place] if len(args) > place else kwargs["fill_value"]


def binder(out: Json) -> Callable[[Any, Table], None]:
    """Puts results into the table under the numbers that `out` gives them. Raises Failed where the forms differ."""
    if isinstance(out, dict) and len(out) == 1 and type(out.get("t")) is int:
        number = out["t"]
        return lambda made, table: _put(number, made, table)
    if isinstance(out, dict) and len(out) == 1 and isinstance(out.get("tuple"), list | tuple):
        out = out["tuple"]
    if not isinstance(out, list | tuple) or not any(True for _ in tensors_in(out)):
        return lambda made, table: None
    parts = [binder(one) for one in out]

    def bind(made: Any, table: Table) -> None:
        if not isinstance(made, list | tuple) or len(made) != len(parts):
            raise forged_trace("names other results of an operator than it has")
        for part, one in zip(parts, made, strict=True):
            part(one, table)

    return bind


def _put(number: int, made: Any, table: Table) -> None:
    import torch

    if not isinstance(made, torch.Tensor):
        raise forged_trace("names a result that is no tensor")
    table[number] = made


def _bytes(made: Any) -> int:
    import torch

    if isinstance(made, torch.Tensor):
        return made.numel() * made.element_size()
    return sum(map(_bytes, made)) if isinstance(made, list | tuple) else 0


def _require_some_size(made: Any) -> None:
    """Raises Failed for a view that shows one piece of memory again and again, to more than any machine reads."""
    for tensor in made if isinstance(made, list | tuple) else (made,):
        if tensor.numel() > MAX_VIEW_ELEMENTS:
            message = (
                f"a view of {tensor.numel():,} elements, and at most {MAX_VIEW_ELEMENTS:,} are read"
            )
            raise Failed(Failure(fault=Fault.RESOURCES, message=message))


def _storage_bytes(tensor: Any) -> int:
    return int(tensor.untyped_storage().nbytes())


def _poison_beyond(tensor: Any, before: int, byte: int) -> None:
    """Sets what a storage has grown by."""
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
            arguments = Arguments({name: one.read(table) for name, one in readers})
            arguments.reached = [table[number] for number in reached]
            call.launch(step.kernel, step.grid, arguments, table)

    return run


def _data(step: Data, device: str) -> Prepared:
    """The tensor is made and brought to the device now; every run gets a copy of it, with the addresses of that run."""
    import torch

    held = decoded(step).to(device)
    if step.addresses and held.dtype not in (torch.int64, torch.uint64):
        raise forged_trace("holds addresses in a tensor of another type")
    if any(not 0 <= place < held.numel() for place, _, _ in step.addresses):
        raise forged_trace("holds addresses beyond a tensor")

    def run(table: Table, call: Call) -> None:
        made = table[step.t] = torch.clone(held, memory_format=torch.preserve_format)
        for place, tensor, offset in step.addresses:
            [number] = tensors_in(tensor)  # one kernel each: a graph may capture that
            made.view(torch.int64).view(-1)[place].fill_(table[number].data_ptr() + offset)

    return run


def decoded(step: Data) -> Any:
    """A contiguous tensor on the CPU. Raises Failed where the bytes are not as many as shape and dtype ask for."""
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
