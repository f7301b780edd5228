"""Observes a replayed call: torch's computations beside the kernels, conversions, and whether
kernels only copy.

Trusted code in the replaying process. A kernel that copies, fed by layout operators that compute (a
materialised expand, a negative view, a conversion), is no work of the candidate's. Operator names
do not show this; tensor contents do.

Example: the reference is `-x`, and the candidate runs `y = torch._neg_view(x).contiguous();
copy_kernel[grid](y, out)`. Before the launch y holds -x; afterwards the only changed tensor, `out`,
has the values that y had before. So `copies` equals `launches`, and `rearranged` counts the
operator behind `contiguous`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from kernelwright.tools.nested import tensors_of
from kernelwright.tools.numerics.bits import same_bits
from kernelwright.tools.operators.dispatch import without_dynamo
from kernelwright.tools.operators.operators import (
    HOST_READS,
    only_moves_data,
    operations_of_call,
    reads_a_position,
)
from kernelwright.tools.replaying.interpreter.extents import ReadElements
from kernelwright.tools.replaying.layout_operators import converts, rearranges, truncates
from kernelwright.tools.replaying.steps import Memory
from kernelwright.tools.tensor_memory import address_range, has_memory, storage_of

if TYPE_CHECKING:
    from torch._ops import OpOverload

    from kernelwright.torch_calls import Args, Kwargs, Types


MAX_COMPARED_BYTES = 1 << 30
"""Maximum size, in bytes, of a launch's compared tensors, smallest first. On a CPU a call allocates
no more."""
FIRST_COMPARED_ELEMENTS = 64
"""Elements compared first: differing tensors mostly differ there."""


@without_dynamo
class Watch(TorchDispatchMode):
    """Dispatch mode around a call. `launching` wraps its launches."""

    def __init__(
        self,
        inputs: Sequence[Any] = (),
        state: Mapping[str, Any] | None = None,
        lasting: Collection[int] = (),
        left_by_launches: Collection[int] = (),
        reads: ReadElements | None = None,
    ) -> None:
        """Starts without observations.

        inputs: the arguments of forward. state: the judge's weights and buffers by name. lasting:
        numbers of tensors that later calls use. left_by_launches: addresses of storages written by
        launches of earlier calls. reads: records which elements of the inputs are read; None on a
        GPU.
        """
        super().__init__()
        self._reads = reads
        self._inputs = {storage_of(t): n for n, t in enumerate(inputs) if has_memory(t)}
        self._state = [(n, address_range(t)) for n, t in (state or {}).items() if has_memory(t)]
        """Names and address ranges: several weights may share an allocation."""
        self.changed_state: set[str] = set()
        """Names of weights and buffers written by a launch or an operator, whatever their final
        values."""
        self.changed_inputs: set[int] = set()
        """Positions of arguments written by a launch or an operator, whatever their final values.
        """
        self.operations = 0
        """Floating-point operations of torch operators, as counted by tools.references.operators.
        """
        self.truncations: Counter[str] = Counter()
        """Operators that convert values to integers or booleans with a loss."""
        self.rearranged: Counter[str] = Counter()
        """Operators that change the layout of values: reordered, repeated, padded or rounded."""
        self.converted: Counter[str] = Counter()
        """Operators that change the dtype of values."""
        self._lasting_numbers = lasting
        self.writes_lasting_state = False
        self.launches = 0
        self.copies = 0
        """Launches whose changed tensors all hold the earlier contents of another tensor of the
        launch."""
        self._ignored_depth = 0
        self._passed_to_launches: list[Any] = []
        """Contents passed to launches, not written by any launch."""
        self._comparable_bytes = MAX_COMPARED_BYTES
        self.written: set[int] = set()
        """Addresses of storages changed by a launch."""
        self._unset: set[int] = set()
        """Addresses of storages requested by the host code and not written since: the judge's
        poison there is no answer."""
        self._left_by_launches = set(left_by_launches)
        """Storages of earlier launches to which torch has not written in this call."""

    def __torch_dispatch__(
        self, func: OpOverload, types: Types, args: Args = (), kwargs: Kwargs = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if not self._ignored_depth:
            written = _written_by(func, args, kwargs)
            self._written_to(written)
            self._left_by_launches -= _storages(written)
            self._unset -= _storages(written) | (
                _storages(tensors_of(result)) - _storages(tensors_of([args, kwargs]))
            )
            name = func.overloadpacket.__name__
            if self._reads is not None:
                _note_reads(self._reads, func, args, kwargs, result)
            if not (only_moves_data(func) or name in HOST_READS or reads_a_position(func)):
                self.operations += operations_of_call(func, args, kwargs, result)
            if truncates(name, args, result):
                self.truncations[str(func)] += 1
            if rearranges(name, args, result):
                self.rearranged[str(func)] += 1
            if converts(name, args, result):
                self.converted[str(func)] += 1
        return result

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """Context manager that ignores torch operators of the launch itself (the interpreter's
        copies)."""
        self._ignored_depth += 1
        try:
            yield
        finally:
            self._ignored_depth -= 1

    def launching(self, launch: Callable[..., None]) -> Callable[..., None]:
        """Wraps launches to observe them."""

        def watched(
            kernel: str, grid: tuple[int, int, int], args: dict[str, Any], table: Any
        ) -> None:
            with (
                self.off(),
                _disable_current_modes(),
            ):  # what this asks of torch is looked at by nobody
                before = _held(_smallest(_tensors([args, getattr(args, "reached", ())])))
                launch(kernel, grid, args, table)
                self._note(before, [table[n] for n in self._lasting_numbers if n in table])

        return watched

    def allocating(self, memory: Memory) -> Memory:
        """Wraps the allocator so that the judge's filling of memory and margins is not observed."""
        return _Unwatched(memory, self)

    def register_allocation(self, tensor: torch.Tensor, fill: float | None) -> None:
        """Registers a new tensor of the host code; `fill` None: uninitialised."""
        if has_memory(tensor):
            self._left_by_launches.discard(storage_of(tensor))
            (self._unset.add if fill is None else self._unset.discard)(storage_of(tensor))

    def _note(self, before: list[tuple[Any, Any]], kept_later: list[Any]) -> None:
        self.launches += 1
        changed = [t for t, contents in before if not same_bits(_memory(t), contents)]
        lasting = {storage_of(t) for t in kept_later if has_memory(t)}
        self.writes_lasting_state |= any(storage_of(t) in lasting for t in changed)
        self._written_to(changed)
        passed = [
            (t, contents)
            for t, contents in before
            if storage_of(t) not in self._left_by_launches | self._unset
        ]
        for tensor, contents in passed:
            if storage_of(tensor) not in self.written and self._comparable_bytes >= contents.nbytes:
                self._passed_to_launches.append(contents)
                self._comparable_bytes -= contents.nbytes
        self.written |= {storage_of(t) for t in changed}
        self._unset -= self.written
        if changed and all(
            any(_same(_memory(t), contents) for other, contents in passed if other is not t)
            for t in changed
        ):
            self.copies += 1

    def _written_to(self, tensors: Iterable[Any]) -> None:
        written = [t for t in tensors if has_memory(t)]
        positions = [self._inputs.get(storage_of(t)) for t in written]
        self.changed_inputs |= {position for position in positions if position is not None}
        for begin, end in map(address_range, written if self._state else ()):
            self.changed_state |= {
                name for name, (first, last) in self._state if begin < last and first < end
            }

    def ends_with(self, outputs: Iterable[Any]) -> None:
        """Examines a call's outputs: if all were passed to launches unwritten, every launch counts
        as a copy.

        This holds no matter how many launches share an output or write beside it.
        """
        tensors = [o for o in outputs if isinstance(o, torch.Tensor)]
        if self._reads is not None:
            for tensor in tensors:
                self._reads.note_tensor(tensor)
        if tensors and all(self._was_given(t) for t in tensors):
            self.copies = self.launches

    def _was_given(self, tensor: torch.Tensor) -> bool:
        orders = (
            [tensor.detach().reshape(-1)]
            if tensor.is_contiguous()
            else [_memory(tensor), tensor.reshape(-1)]
        )
        return any(
            _same(order, contents) for contents in self._passed_to_launches for order in orders
        )

    def as_message(self) -> dict[str, Any]:
        """Returns the observations as JSON."""
        return {
            "operations": self.operations, "truncations": dict(self.truncations), "launches": self.launches,
            "copies": self.copies, "rearranged": dict(self.rearranged),
            "converted": dict(self.converted), "changed_inputs": sorted(self.changed_inputs),
            "changed_state": sorted(self.changed_state), "writes_lasting_state": self.writes_lasting_state,
            "unread": [] if self._reads is None else self._reads.unread(),
        }  # fmt: skip


def _storages(tensors: Iterable[Any]) -> set[int]:
    return {storage_of(t) for t in tensors if has_memory(t)}


COPYING = frozenset({"clone", "_to_copy", "contiguous"})
"""Operators whose result equals their first argument, element for element."""


FILLING = frozenset({"fill_", "zero_"})
"""Operators that write to a tensor without reading it."""


def _note_reads(
    reads: ReadElements,
    func: OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    result: object,
) -> None:
    """Records an operator's reads; a view, or use of a tensor's form alone, reads nothing."""
    name = func.overloadpacket.__name__
    if name.startswith("new_") or name.endswith("_like") or name in FILLING:
        return
    if name == "copy_":
        reads.note_copy(args[1], args[0]) if args[0].shape == args[1].shape else reads.note_tensor(
            args[1]
        )
    elif name in COPYING and isinstance(result, torch.Tensor) and result.shape == args[0].shape:
        reads.note_copy(args[0], result)
    elif func._schema.is_mutable or not any(
        returned.alias_info is not None for returned in func._schema.returns
    ):
        for tensor in tensors_of([args, kwargs]):
            reads.note_tensor(tensor)


def _written_by(func: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Returns the tensors that an operator writes, by its schema: `self` of `add_`, `out` of
    `mm.out`."""
    if not func._schema.is_mutable:
        return []
    tensors: list[Any] = []
    # By the schema and not by the name: `out` of a product is written too, though `mm.out` does not end in `_`.
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            tensors += tensors_of(value)
    return tensors


class _Unwatched:
    """Allocator (tools/replaying/steps.py) whose own operators are not observed."""

    def __init__(self, memory: Memory, watch: Watch) -> None:
        self._memory = memory
        self._watch = watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def fresh(self, meta: torch.Tensor, fill: float | None) -> Any:
        """Allocates as the wrapped allocator does."""
        with self._watch.off():
            tensor = self._memory.fresh(meta, fill)
        self._watch.register_allocation(tensor, fill)
        return tensor

    def let_go(self) -> None:
        """Forwards to the wrapped allocator, if it checks margins of dropped tensors."""
        if let_go := getattr(self._memory, "let_go", None):
            with self._watch.off():
                let_go()


def _tensors(value: object) -> list[Any]:
    """Returns the tensors among the arguments of a launch, each piece of memory once."""
    tensors = [t for t in tensors_of(value, wrapped_in="base") if t.numel()]
    return list({(t.data_ptr(), t.numel()): t for t in reversed(tensors)}.values())[::-1]


def _held(tensors: list[Any]) -> list[tuple[Any, Any]]:
    """Returns tensors with copies of their contents; empty if a GPU lacks the memory."""
    try:
        return [(t, _memory(t).clone()) for t in tensors]
    except torch.cuda.OutOfMemoryError:
        return []


def _smallest(tensors: list[Any]) -> list[Any]:
    """Returns the smallest tensors up to MAX_COMPARED_BYTES in total, in their given order.

    A view that repeats its memory counts with its full size, and so excludes no other tensor.
    """
    selected, remaining_bytes = set[int](), MAX_COMPARED_BYTES
    for tensor in sorted(tensors, key=lambda t: t.numel() * t.element_size()):
        remaining_bytes -= tensor.numel() * tensor.element_size()
        if remaining_bytes < 0:
            break
        selected.add(id(tensor))
    return [t for t in tensors if id(t) in selected]


def _memory(tensor: torch.Tensor) -> Any:
    """Returns the elements in memory order, one-dimensional; those of a tensor with holes or
    overlaps in logical order."""
    order = sorted(range(tensor.dim()), key=lambda d: -tensor.stride()[d])
    return tensor.detach().permute(order).reshape(-1)


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compares values; NaN equals NaN."""
    if a.numel() != b.numel() or (a.dtype != b.dtype and (a.is_complex() or b.is_complex())):
        return False
    return _equal(a[:FIRST_COMPARED_ELEMENTS], b[:FIRST_COMPARED_ELEMENTS]) and _equal(a, b)


def _equal(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.dtype != b.dtype or (a.is_floating_point() and a.element_size() == 1):
        a, b = a.double(), b.double()
    return torch.equal(a, b) or (
        a.is_floating_point() and not bool(((a != b) & ((a == a) | (b == b))).any())
    )
