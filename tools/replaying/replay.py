"""Replays a trace: binds weights, runs its set-up, and repeats its calls on inputs from the judge.

Independent of process and device.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright.tools.expected.weights import Position, find_values
from kernelwright.tools.nested import tensors_of
from kernelwright.tools.numerics.seeds import seed_everything
from kernelwright.tools.replaying.preparation import Preparation
from kernelwright.tools.replaying.state_forms import strides_of
from kernelwright.tools.replaying.steps import Call, Steps, numbers_made, numbers_used
from kernelwright.tools.tensor_memory import address_range, has_memory, overlap
from kernelwright.tools.trace.reinterpreted import Json, Table, bind, forged_trace
from kernelwright.tools.trace.trace import Step, Trace, all_steps, output_leaves, tensors_in


class Replay:
    """The trace of a size on a device."""

    def __init__(self, trace: Trace, state: Mapping[str, Any], device: str, seed: int) -> None:
        """Binds the weights. Raises Failed.

        state: the judge's weights by name; names unknown to the trace are ignored. seed: that of
        the set-up.
        """
        self._trace = trace
        self._seed = seed
        self._device = device
        self.state = {name: tensor for name, tensor in state.items() if name in trace.state}
        self._relaid_weights: list[tuple[Any, Any]] = []
        """Pairs of the judge's weight and a copy with the candidate's strides."""
        self._lay_out_as_traced(strides_of(trace.setup, trace.state.values()))
        self._weights: Table = {trace.state[name]: tensor for name, tensor in self.state.items()}
        self._initial_table: Table = dict(self._weights)
        """Tensors present before a first call."""
        self._lasting: Table | None = None
        """Tensors present before a later call: those that the first call left."""
        needed_numbers = _needed_from_outside(trace.first, trace.first_outputs, trace.inputs)
        self.left_by_first: set[int] = set()
        """Numbers of tensors from the first call that later calls use."""
        later = trace.later
        if later is not None:
            self.left_by_first = _needed_from_outside(
                later, trace.later_outputs, trace.later_inputs
            )
            needed_numbers |= self.left_by_first - _numbers_made_in(trace.first)
        self._needed_numbers = needed_numbers | self._weights.keys()
        self.preparation = Preparation(trace.setup, needed_numbers, self._weights.keys(), device)
        self._first = Steps(
            trace.first, {*tensors_in(trace.first_outputs), *self.left_by_first}, device
        )
        self._later = (
            None if later is None else Steps(later, set(tensors_in(trace.later_outputs)), device)
        )

    def _lay_out_as_traced(self, strides: Mapping[int, tuple[int, ...]]) -> None:
        import torch

        for name, weights in self.state.items():
            stride = strides.get(self._trace.state[name])
            if (
                stride is None
                or len(stride) != weights.dim()
                or stride == weights.stride()
                or 0 in stride
            ):
                continue
            relaid = torch.empty_strided(
                weights.shape, stride, dtype=weights.dtype, device=weights.device
            )
            self._relaid_weights.append((weights, relaid))
            self.state[name] = relaid

    def take_weights(self) -> None:
        """Copies the judge's values to weights with other strides. Call before each call of the
        trace."""
        for weights, relaid in self._relaid_weights:
            relaid.copy_(weights)

    def give_weights(self) -> None:
        """Copies changed weights with other strides back to the judge's memory. Call after each
        call of the trace."""
        for weights, relaid in self._relaid_weights:
            weights.copy_(relaid)

    @property
    def has_later(self) -> bool:
        """True if later calls have other steps than the first."""
        return self._later is not None

    def steps(self, call_name: str) -> Sequence[Step]:
        """Returns the steps of a call. call_name: first or later."""
        later = self._trace.later
        return self._trace.first if later is None or call_name != "later" else later

    def prepare(self, call: Call) -> None:
        """Runs the set-up over the current weights. Raises Failed, and torch's errors."""
        import torch

        table = dict(self._weights)
        self.take_weights()
        if self.preparation:
            seed_everything(self._seed)
            with torch.no_grad():
                self.preparation.run(table, call)
        self._initial_table, self._lasting = (
            {n: t for n, t in table.items() if n in self._needed_numbers},
            None,
        )

    def locate(self, weights: Mapping[str, Any], call: Call) -> dict[str, Position]:
        """Runs the whole set-up; returns the positions of the weights' values in its tensors
        (`find_values`).

        The trace has to be opened again afterwards. Raises Failed, and torch's errors.
        """
        import torch

        setup = self._trace.setup
        numbers = {number for step in all_steps(setup) for number in numbers_made(step)}
        table = dict(self._weights)
        self.take_weights()
        seed_everything(self._seed)
        with torch.no_grad():
            Preparation(setup, numbers, self._weights.keys(), self._device).run(table, call)
        free = {n: t for n, t in table.items() if n not in self._weights and has_memory(t)}
        parameters = [
            self._trace.state[name] for name in self._trace.parameters if name in self._trace.state
        ]
        return find_values(weights, free, [*parameters, *self._trace.state.values()])

    def forget_first(self) -> None:
        """Drops the tensors that the first call left: the next call must be a first one."""
        self._lasting = None

    def run(self, call_name: str, inputs: Sequence[Any], call: Call, seed: int | None) -> list[Any]:
        """Runs a call; returns its outputs in order: tensors, {"other": type's name}, plain values.

        inputs: the arguments of forward. seed: that of torch's generators; None leaves them
        unchanged. Raises Failed, torch's errors, and ValueError for a later call before any first.
        """
        import torch

        later = self._later if call_name == "later" else None
        if later is not None and self._lasting is None:
            raise ValueError("a later call was asked for before the first one")
        pattern, outputs = (
            (self._trace.inputs, self._trace.first_outputs)
            if later is None
            else (self._trace.later_inputs, self._trace.later_outputs)
        )
        table = call.table(self._initial_table if later is None else self._lasting or {})
        bind(pattern, list(inputs), table)
        if seed is not None:
            seed_everything(seed)
        with torch.no_grad():
            (later or self._first).run(table, call)
        if later is None and self._later is not None:
            lasting = {n: table[n] for n in self.left_by_first if n in table}
            self._lasting = self._initial_table | _apart_from(list(inputs), lasting)
        return [self._output(leaf, table) for leaf in output_leaves(outputs)]

    def _output(self, leaf: Json, table: Table) -> Any:
        if isinstance(leaf, dict) and "t" in leaf:
            if leaf["t"] not in table:
                raise forged_trace("gives back a tensor that nothing made")
            return table[leaf["t"]]
        return leaf

    def kept_tensors(self) -> list[Any]:
        """Returns the candidate's own tensors that outlive a call, without the judge's weights."""
        weights = {id(t) for t in self._weights.values()}
        return [t for t in self.persistent_tensors() if id(t) not in weights and t.numel()]

    def persistent_tensors(self) -> list[Any]:
        """Returns all tensors that outlive a call: weights, those of the set-up, those that the
        first call left."""
        return list((self._initial_table | (self._lasting or {})).values())


def _apart_from(inputs: list[Any], lasting: Table) -> Table:
    """Returns the tensors that a first call left, copied if they lie in its inputs.

    In the judge's memory a later call's inputs replace these inputs; a caller's lie elsewhere.
    """
    import torch

    input_tensors = [t for t in tensors_of(inputs) if has_memory(t)]
    separate = dict(lasting)
    for number, tensor in lasting.items():
        if has_memory(tensor) and any(overlap(tensor, t) for t in input_tensors):
            begin, end = address_range(tensor)
            with torch.utils._python_dispatch._disable_current_modes():
                whole = tensor.as_strided(((end - begin) // tensor.element_size(),), (1,))
                separate[number] = whole.clone().as_strided(tensor.shape, tensor.stride(), 0)
    return separate


def _numbers_made_in(steps: Sequence[Step]) -> set[int]:
    return {number for step in all_steps(steps) for number in numbers_made(step)}


def _needed_from_outside(steps: Sequence[Step], outputs: Json, inputs: Json) -> set[int]:
    """Returns numbers that the steps use or return, made neither by them nor by the inputs."""
    available = set(tensors_in(inputs))
    used: set[int] = set()
    for step in all_steps(steps):
        used |= set(numbers_used(step)) - available
        available |= set(numbers_made(step))
    return used | (set(tensors_in(outputs)) - available)
