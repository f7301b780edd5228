"""One replayed call, watched: what torch computes beside the kernels, what it converts, and whether the kernels do more
than copy.

Trusted code in the replayer's process. A kernel that copies, fed by layout operators that compute (an expand that is
materialised, a negative view, a conversion), is no work of the candidate's; names of operators do not tell that,
contents do.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

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

MAX_COMPARED_BYTES = 1 << 30
"""Bytes of a launch's tensors whose contents are compared, at most: the smallest first. On a CPU a call allocates no
more.
"""
FIRST_COMPARED_ELEMENTS = 64
"""Elements that are compared before all are: what differs mostly does so there."""


@without_dynamo
class Watch(TorchDispatchMode):
    """Entered round one call. `launching` wraps what makes the launches."""

    def __init__(
        self,
        inputs: Sequence[Any] = (),
        state: Mapping[str, Any] | None = None,
        kept: Collection[int] = (),
        left_by_launches: Collection[int] = (),
        reads: ReadElements | None = None,
    ) -> None:
        """inputs: the arguments of forward. state: the judge's weights and buffers by name. kept: numbers of the
        tensors that later calls go on with. left_by_launches: addresses of storages that hold what launches of earlier
        calls wrote. reads: notes which elements of the inputs are read; None on a GPU.
        """
        super().__init__()
        self._reads = reads
        self._inputs = {storage_of(t): n for n, t in enumerate(inputs) if has_memory(t)}
        self._state = [(n, address_range(t)) for n, t in (state or {}).items() if has_memory(t)]
        """Names, and where each lies: those of one candidate may share an allocation."""
        self.changed_state: set[str] = set()
        """Names of weights and buffers that a launch or an operator wrote to, whatever they hold afterwards."""
        self.changed_inputs: set[int] = set()
        """Positions of arguments that a launch or an operator wrote to, whatever they hold afterwards."""
        self.operations = 0
        """Floating-point operations of torch's operators, as tools.references.operators counts them."""
        self.truncations: Counter[str] = Counter()
        """Operators that turn values into whole numbers or truths which hold less of them."""
        self.rearranged: Counter[str] = Counter()
        """Operators that laid values out anew: other places, repeated, padded or rounded."""
        self.converted: Counter[str] = Counter()
        """Operators that gave values another type."""
        self._kept, self.writes_what_is_kept = kept, False
        self.launches = 0
        self.copies = 0
        """Launches whose every changed tensor holds just what another tensor of the launch held."""
        self._off = 0
        self._given: list[Any] = []
        """What launches were given and no launch had written."""
        self._room = MAX_COMPARED_BYTES
        self.written: set[int] = set()
        """Storages that a launch has changed, by their address."""
        self._unset: set[int] = set()
        """Storages that the host code has asked for and that nothing has been written to: what lies there, the judge's
        poison, is nobody's answer.
        """
        self._left_by_launches = set(left_by_launches)
        """Storages in which torch has made nothing in this call."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        made = func(*args, **kwargs)
        if not self._off:
            written = _written_by(func, args, kwargs)
            self._written_to(written)
            self._left_by_launches -= _storages(written)
            self._unset -= _storages(written) | (
                _storages(tensors_of(made)) - _storages(tensors_of([args, kwargs]))
            )
            name = func.overloadpacket.__name__
            if self._reads is not None:
                _note_reads(self._reads, func, args, kwargs, made)
            if not (only_moves_data(func) or name in HOST_READS or reads_a_position(func)):
                self.operations += operations_of_call(func, args, kwargs, made)
            if truncates(name, args, made):
                self.truncations[str(func)] += 1
            if rearranges(name, args, made):
                self.rearranged[str(func)] += 1
            if converts(name, args, made):
                self.converted[str(func)] += 1
        return made

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """What the launch itself asks of torch (the interpreter's own copies) is not the host code's."""
        self._off += 1
        try:
            yield
        finally:
            self._off -= 1

    def launching(self, launch: Callable[..., None]) -> Callable[..., None]:
        """Returns the same launches, which are watched."""

        def watched(
            kernel: str, grid: tuple[int, int, int], args: dict[str, Any], table: Any
        ) -> None:
            with (
                self.off(),
                _disable_current_modes(),
            ):  # what this asks of torch is looked at by nobody
                before = _held(_smallest(_tensors([args, getattr(args, "reached", ())])))
                launch(kernel, grid, args, table)
                self._note(before, [table[n] for n in self._kept if n in table])

        return watched

    def allocating(self, memory: Memory) -> Memory:
        """The same memory; how the judge fills it and what lies round it is not the host code's."""
        return _Unwatched(memory, self)

    def made(self, tensor: Any, fill: float | None) -> None:
        """A new tensor of the host code's: torch has made what lies there, or nobody has (`fill` None)."""
        if has_memory(tensor):
            self._left_by_launches.discard(storage_of(tensor))
            (self._unset.add if fill is None else self._unset.discard)(storage_of(tensor))

    def _note(self, before: list[tuple[Any, Any]], kept_later: list[Any]) -> None:
        self.launches += 1
        changed = [t for t, kept in before if not same_bits(_memory(t), kept)]
        lasting = {storage_of(t) for t in kept_later if has_memory(t)}
        self.writes_what_is_kept |= any(storage_of(t) in lasting for t in changed)
        self._written_to(changed)
        given = [
            (t, kept)
            for t, kept in before
            if storage_of(t) not in self._left_by_launches | self._unset
        ]
        for tensor, kept in given:
            if storage_of(tensor) not in self.written and self._room >= kept.nbytes:
                self._given.append(kept)
                self._room -= kept.nbytes
        self.written |= {storage_of(t) for t in changed}
        self._unset -= self.written
        if changed and all(
            any(_same(_memory(t), kept) for other, kept in given if other is not t) for t in changed
        ):
            self.copies += 1

    def _written_to(self, tensors: Iterable[Any]) -> None:
        written = [t for t in tensors if has_memory(t)]
        places = [self._inputs.get(storage_of(t)) for t in written]
        self.changed_inputs |= {place for place in places if place is not None}
        for begin, end in map(address_range, written if self._state else ()):
            self.changed_state |= {
                name for name, (first, last) in self._state if begin < last and first < end
            }

    def ends_with(self, outputs: Iterable[Any]) -> None:
        """Told of a call's outputs: where each of them was there before a kernel ran, in what a launch was given, the
        launches are copies, however many share it and whatever they write beside it.
        """
        tensors = [o for o in outputs if isinstance(o, torch.Tensor)]
        if self._reads is not None:
            for tensor in tensors:
                self._reads.note_tensor(tensor)
        if tensors and all(self._was_given(t) for t in tensors):
            self.copies = self.launches

    def _was_given(self, tensor: Any) -> bool:
        orders = (
            [tensor.detach().reshape(-1)]
            if tensor.is_contiguous()
            else [_memory(tensor), tensor.reshape(-1)]
        )
        return any(_same(order, kept) for kept in self._given for order in orders)

    def as_message(self) -> dict[str, Any]:
        """JSON."""
        return {
            "operations": self.operations, "truncations": dict(self.truncations), "launches": self.launches,
            "copies": self.copies, "rearranged": dict(self.rearranged),
            "converted": dict(self.converted), "changed_inputs": sorted(self.changed_inputs),
            "changed_state": sorted(self.changed_state), "writes_what_is_kept": self.writes_what_is_kept,
            "unread": [] if self._reads is None else self._reads.unread(),
        }  # fmt: skip


def _storages(tensors: Iterable[Any]) -> set[int]:
    return {storage_of(t) for t in tensors if has_memory(t)}


COPYING = frozenset({"clone", "_to_copy", "contiguous"})
"""Operators whose result is their first argument, element for element."""


FILLING = frozenset({"fill_", "zero_"})
"""Operators that write to a tensor without reading it."""


def _note_reads(reads: ReadElements, func: Any, args: Any, kwargs: Any, made: Any) -> None:
    """Tells `reads` what an operator reads; a view reads nothing, nor does what takes a tensor's form alone."""
    name = func.overloadpacket.__name__
    if name.startswith("new_") or name.endswith("_like") or name in FILLING:
        return
    if name == "copy_":
        reads.note_copy(args[1], args[0]) if args[0].shape == args[1].shape else reads.note_tensor(
            args[1]
        )
    elif name in COPYING and isinstance(made, torch.Tensor) and made.shape == args[0].shape:
        reads.note_copy(args[0], made)
    elif func._schema.is_mutable or not any(
        returned.alias_info is not None for returned in func._schema.returns
    ):
        for tensor in tensors_of([args, kwargs]):
            reads.note_tensor(tensor)


def _written_by(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The tensors that an operator writes to, by its schema: `self` of `add_`, `out` of `mm.out`."""
    if not func._schema.is_mutable:
        return []
    found: list[Any] = []
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            found += tensors_of(value)
    return found


class _Unwatched:
    """Memory (tools/replaying/steps.py) whose own operators a watch does not see."""

    def __init__(self, memory: Memory, watch: Watch) -> None:
        self._memory, self._watch = memory, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def fresh(self, meta: Any, fill: float | None) -> Any:
        """Allocates as the memory itself does."""
        with self._watch.off():
            tensor = self._memory.fresh(meta, fill)
        self._watch.made(tensor, fill)
        return tensor

    def let_go(self) -> None:
        """Does nothing; memory that looks at margins when a tensor is dropped has this method too."""
        if let_go := getattr(self._memory, "let_go", None):
            with self._watch.off():
                let_go()


def _tensors(value: Any) -> list[Any]:
    """Every tensor among the arguments of a launch, each piece of memory once."""
    found = [t for t in tensors_of(value, wrapped_in="base") if t.numel()]
    return list({(t.data_ptr(), t.numel()): t for t in reversed(found)}.values())[::-1]


def _held(tensors: list[Any]) -> list[tuple[Any, Any]]:
    """Tensors and copies of what they hold; none where a GPU has no room for those."""
    try:
        return [(t, _memory(t).clone()) for t in tensors]
    except torch.cuda.OutOfMemoryError:
        return []


def _smallest(tensors: list[Any]) -> list[Any]:
    """Those that hold MAX_COMPARED_BYTES together, in their order.

    A view that shows its memory again and again counts as what it shows, and hides no other tensor.
    """
    held, left = set[int](), MAX_COMPARED_BYTES
    for tensor in sorted(tensors, key=lambda t: t.numel() * t.element_size()):
        left -= tensor.numel() * tensor.element_size()
        if left < 0:
            break
        held.add(id(tensor))
    return [t for t in tensors if id(t) in held]


def _memory(tensor: Any) -> Any:
    """The tensor's elements in the order in which they lie in memory, one-dimensional; a tensor with holes or
    overlaps in its own order.
    """
    order = sorted(range(tensor.dim()), key=lambda d: -tensor.stride(d))
    return tensor.detach().permute(order).reshape(-1)


def _same(a: Any, b: Any) -> bool:
    """Equal values; NaN equals NaN."""
    if a.numel() != b.numel() or (a.dtype != b.dtype and (a.is_complex() or b.is_complex())):
        return False
    return _equal(a[:FIRST_COMPARED_ELEMENTS], b[:FIRST_COMPARED_ELEMENTS]) and _equal(a, b)


def _equal(a: Any, b: Any) -> bool:
    if a.dtype != b.dtype or (a.is_floating_point() and a.element_size() == 1):
        a, b = a.double(), b.double()
    return torch.equal(a, b) or (
        a.is_floating_point() and not bool(((a != b) & ((a == a) | (b == b))).any())
    )
