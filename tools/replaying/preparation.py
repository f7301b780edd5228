"""Runs the set-up of a trace: building the model, as far as its calls need more than the weights.

State tensors are the judge's memory, which no set-up step may write. A step that would initialise
one is skipped or, if it draws random numbers that later steps depend on, run on a scratch tensor of
equal form. All other steps read the judge's weights, so that tensors made from weights (packed,
transposed) follow when the judge loads other weights and prepares again.

Example: a model with `self.w = Parameter(torch.randn(8, 8))` and `self.packed =
self.w.t().contiguous()`, whose forward reads `packed` alone. The set-up's steps are randn -> t0
(state "w"), t(t0) -> t1, contiguous(t1) -> t2. Calls use t2, so t() and contiguous() are needed and
run on the judge's w; `randn` only makes state, and is skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from kernelwright.tools.replaying import operators
from kernelwright.tools.replaying.steps import Call, Steps, binder, numbers_made, numbers_used
from kernelwright.tools.trace.reinterpreted import Table
from kernelwright.tools.trace.shared_memory import SharedMemory, written_by
from kernelwright.tools.trace.trace import Choice, Launch, Operator, Step, all_steps


def needed_steps(
    setup: Sequence[Step], used_by_calls: Iterable[int], state: Collection[int]
) -> list[Step]:
    """Returns the steps that make or change the wanted tensors; empty if calls use nothing but
    state.

    A step that writes to memory of a needed tensor is needed. If any random step is needed, all
    are: each advances the generator.
    """
    missing = set(used_by_calls) - set(state)
    if not missing & {number for step in all_steps(setup) for number in numbers_made(step)}:
        return []
    indices = _slice(setup, missing, set(state), random=False)
    if any(_is_random(setup[i]) for i in indices):
        indices = _slice(setup, missing, set(state), random=True)
    return [setup[i] for i in sorted(indices)]


def _slice(setup: Sequence[Step], missing: set[int], state: set[int], *, random: bool) -> set[int]:
    """Returns indices of the needed steps.

    A step that writes to memory of a needed tensor, through any view, is needed; so is a weight
    that is a view of a needed tensor, which must get the weight's values.
    """
    memory = SharedMemory(setup, ())
    needed_numbers = set(missing)
    indices = set[int]()
    needed_storages = {memory.storage(number) for number in missing}
    grown = True
    while grown:  # a step that changes memory may be needed for the sake of a step before it
        grown = False
        for index in range(len(setup) - 1, -1, -1):
            if index in indices:
                continue
            step = setup[index]
            outputs = {n for inner in all_steps([step]) for n in numbers_made(inner)}
            used = {n for inner in all_steps([step]) for n in numbers_used(inner)}
            written = {memory.storage(n) for inner in all_steps([step]) for n in written_by(inner)}
            shows_state = (
                _is_view(step)
                and outputs & state
                and {memory.storage(n) for n in used} & needed_storages
            )
            writes = written & needed_storages
            if outputs & needed_numbers or writes or shows_state or (random and _is_random(step)):
                indices.add(index)
                needed_numbers |= outputs | used
                needed_storages |= {memory.storage(number) for number in (*outputs, *used)}
                grown = True
    return indices


def _is_view(step: Step) -> bool:
    return isinstance(step, Operator) and operators.known(step.op).view


def _is_random(step: Step) -> bool:
    return any(isinstance(s, Operator) and operators.known(s.op).random for s in all_steps([step]))


class Preparation:
    """The needed steps of a set-up, prepared to run over the judge's weights."""

    def __init__(
        self,
        setup: Sequence[Step],
        used_by_calls: Iterable[int],
        bound: Collection[int],
        device: str,
    ) -> None:
        """Prepares the needed steps. Raises Failed.

        wanted: numbers of the tensors that calls use. bound: those of state tensors in the judge's
        memory.
        """
        steps = needed_steps(setup, used_by_calls, bound)
        keep = {*used_by_calls, *bound}
        self._bound = frozenset(bound)
        self._parts: list[tuple[Step, Steps]] = [
            (step, Steps([step], _all_numbers(steps) | keep, device)) for step in steps
        ]

    def __bool__(self) -> bool:
        return bool(self._parts)

    def run(self, table: Table, call: Call) -> None:
        """Runs the steps. Raises Failed, and torch's errors.

        table: the state tensors; receives the tensors made by the set-up.
        """
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
    """Returns True if the step writes to no memory of a state tensor."""
    return not any(
        _inside(table.get(n), storages) for s in all_steps([step]) for n in written_by(s)
    )


def _inside(tensor: Any, storages: set[int]) -> bool:
    import torch

    strided = isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided
    return strided and tensor.untyped_storage().data_ptr() in storages


def _with_scratch(table: Table, storages: set[int]) -> Table:
    """Returns the table with copies of all tensors in state memory; tensors that shared memory
    still do."""
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
    """Binds the results of a skipped operator that would write a weight: they are its argument."""
    for number in numbers_made(step):
        if number not in table:
            argument = next((table[n] for n in numbers_used(step) if n in table), None)
            if argument is not None:
                binder({"t": number})(argument, table)


def _keep_views(
    step: Step, table: Table, state: Table, storages: set[int], views: list[tuple[Any, Any]]
) -> None:
    """Copies the judge's values into a weight that is part of a larger tensor, now and after the
    set-up."""
    if not isinstance(step, Operator) or not operators.known(step.op).view:
        return
    for number in set(numbers_made(step)) & state.keys():
        part: Any = table[number]
        weights = state[number]
        if part is not weights and not _inside(part, storages) and part.shape == weights.shape:
            part.copy_(weights)
            views.append((part, weights))
