"""The set-up of a trace: building the model, as far as its calls need more of it than its weights.

State tensors are the judge's memory, and no step of the set-up writes them: a step that would initialise one is left
out, or, where it draws random numbers that later steps depend on, done on a scratch tensor of the same form. Every
other step reads the judge's weights. So tensors that are made from weights, packed or transposed ones, follow when the
judge loads other weights and prepares again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kernelwright.tools.replaying import operators
from kernelwright.tools.replaying.steps import Call, Steps, binder, numbers_made, numbers_used
from kernelwright.tools.trace.reinterpreted import Table
from kernelwright.tools.trace.shared_memory import SharedMemory, written_by
from kernelwright.tools.trace.trace import Choice, Launch, Operator, Step, all_steps


def needed(setup: Sequence[Step], wanted: Iterable[int], state: Collection[int]) -> list[Step]:
    """The steps that make or change the wanted tensors, the state aside; none where the calls use nothing but state.

    A step that changes memory is kept where it is given anything that is kept. Where one random step is kept, all are:
    each moves the generator on.
    """
    missing = set(wanted) - set(state)
    if not missing & {number for step in all_steps(setup) for number in numbers_made(step)}:
        return []
    kept = _slice(setup, missing, set(state), random=False)
    if any(_is_random(setup[i]) for i in kept):
        kept = _slice(setup, missing, set(state), random=True)
    return [setup[i] for i in sorted(kept)]


def _slice(setup: Sequence[Step], missing: set[int], state: set[int], *, random: bool) -> set[int]:
    """Returns the indices of the needed steps. A step that writes to memory of anything needed, through whichever view,
    is needed. A weight that is a view of something needed is kept as well: that is to have the weight's values.
    """
    memory = SharedMemory(setup, ())
    needed_numbers, kept = set(missing), set[int]()
    needed_storages = {memory.storage(number) for number in missing}
    grown = True
    while grown:  # a step that changes memory may be needed for the sake of a step before it
        grown = False
        for index in range(len(setup) - 1, -1, -1):
            if index in kept:
                continue
            step = setup[index]
            made = {n for inner in all_steps([step]) for n in numbers_made(inner)}
            used = {n for inner in all_steps([step]) for n in numbers_used(inner)}
            written = {memory.storage(n) for inner in all_steps([step]) for n in written_by(inner)}
            shows_state = (
                _is_view(step)
                and made & state
                and {memory.storage(n) for n in used} & needed_storages
            )
            writes = written & needed_storages
            if made & needed_numbers or writes or shows_state or (random and _is_random(step)):
                kept.add(index)
                needed_numbers |= made | used
                needed_storages |= {memory.storage(number) for number in (*made, *used)}
                grown = True
    return kept


def _is_view(step: Step) -> bool:
    return isinstance(step, Operator) and operators.known(step.op).view


def _is_random(step: Step) -> bool:
    return any(isinstance(s, Operator) and operators.known(s.op).random for s in all_steps([step]))


class Preparation:
    """The steps of a set-up that are needed, ready to be run over the judge's weights."""

    def __init__(
        self, setup: Sequence[Step], wanted: Iterable[int], bound: Collection[int], device: str
    ) -> None:
        """wanted: numbers that the calls use.

        bound: those of state tensors whose memory is the judge's. Raises Failed.
        """
        steps = needed(setup, wanted, bound)
        keep = {*wanted, *bound}
        self._bound = frozenset(bound)
        self._parts: list[tuple[Step, Steps]] = [
            (step, Steps([step], _all_numbers(steps) | keep, device)) for step in steps
        ]

    def __bool__(self) -> bool:
        return bool(self._parts)

    def run(self, table: Table, call: Call) -> None:
        """table: the state tensors; gets what the set-up makes. Raises Failed, and whatever torch raises."""
        state = {number: table[number] for number in self._bound}
        storages = {t.untyped_storage().data_ptr() for t in state.values() if t.numel()}
        views: list[tuple[Any, Any]] = []
        for step, steps in self._parts:
            if _leaves_weights_alone(step, table, storages):
                steps.run(table, call)
                _keep_views(step, table, state, storages, views)
                table.update(state)
                continue
            if _is_random(step) or isinstance(step, Launch | Choice):
                scratch = _with_scratch(table, storages)
                steps.run(scratch, call)
                table.update(
                    {n: scratch[n] for n in _all_numbers([step]) - set(table) if n in scratch}
                )
            elif isinstance(step, Operator):
                _bind_results(step, table)
        for view, weights in views:
            view.copy_(weights)


def _all_numbers(steps: Iterable[Step]) -> set[int]:
    return {n for step in all_steps(steps) for n in (*numbers_made(step), *numbers_used(step))}


def _leaves_weights_alone(step: Step, table: Table, storages: set[int]) -> bool:
    """Whether nothing that the step may write lies in the memory of a state tensor."""
    return not any(
        _inside(table.get(n), storages) for s in all_steps([step]) for n in written_by(s)
    )


def _inside(tensor: Any, storages: set[int]) -> bool:
    import torch

    strided = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    return strided and tensor.untyped_storage().data_ptr() in storages


def _with_scratch(table: Table, storages: set[int]) -> Table:
    """The table with copies in place of whatever lies in the memory of a state tensor; what shared memory still
    does.
    """
    import torch

    copies: dict[int, Any] = {}
    scratch = dict(table)
    for number, tensor in table.items():
        if _inside(tensor, storages):
            storage = tensor.untyped_storage()
            whole = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage)
            copy = copies.setdefault(storage.data_ptr(), whole.clone())
            flat = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
            scratch[number] = flat.set_(
                copy.untyped_storage(), tensor.storage_offset(), tensor.shape, tensor.stride()
            )
    return scratch


def _bind_results(step: Operator, table: Table) -> None:
    """An operator that would write a weight is left out: what it gives back is the tensor that it was given."""
    for number in numbers_made(step):
        if number not in table:
            given = next((table[n] for n in numbers_used(step) if n in table), None)
            if given is not None:
                binder({"t": number})(given, table)


def _keep_views(
    step: Step, table: Table, state: Table, storages: set[int], views: list[tuple[Any, Any]]
) -> None:
    """A weight that the host code made as a part of a larger tensor: that part gets the judge's values, now and at the
    end.
    """
    if not isinstance(step, Operator) or not operators.known(step.op).view:
        return
    for number in set(numbers_made(step)) & state.keys():
        made: Any = table[number]
        weights = state[number]
        if made is not weights and not _inside(made, storages) and made.shape == weights.shape:
            made.copy_(weights)
            views.append((made, weights))
