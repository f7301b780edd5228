"""One trace, ready to be replayed: its weights bound, its set-up run, its calls repeated on whatever inputs the judge
gives. Knows no process and no device.
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
    """The trace of one size on one device."""

    def __init__(self, trace: Trace, state: Mapping[str, Any], device: str, seed: int) -> None:
        """state: the judge's weights by name; names that the trace lacks are ignored. seed: of the set-up. Raises
        Failed.
        """
        self._trace, self._seed, self._device = trace, seed, device
        self.state = {name: tensor for name, tensor in state.items() if name in trace.state}
        self._own_forms: list[tuple[Any, Any]] = []
        """The judge's weight, and the copy that lies in memory as the candidate's does."""
        self._lay_out_as_traced(strides_of(trace.setup, trace.state.values()))
        self._weights: Table = {trace.state[name]: tensor for name, tensor in self.state.items()}
        self._kept: Table = dict(self._weights)
        """What every first call begins with."""
        self._lasting: Table | None = None
        """What every later call begins with: what the first call has left."""
        wanted = _needed_from_outside(trace.first, trace.first_outputs, trace.inputs)
        self.left_by_first: set[int] = set()
        """Numbers of what later calls go on with."""
        later = trace.later
        if later is not None:
            self.left_by_first = _needed_from_outside(
                later, trace.later_outputs, trace.later_inputs
            )
            wanted |= self.left_by_first - _made_in(trace.first)
        self._wanted = wanted | self._weights.keys()
        self.preparation = Preparation(trace.setup, wanted, self._weights.keys(), device)
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
            own = torch.empty_strided(
                weights.shape, stride, dtype=weights.dtype, device=weights.device
            )
            self._own_forms.append((weights, own))
            self.state[name] = own

    def take_weights(self) -> None:
        """Has to be called before a call: weights whose strides are not the judge's get its values."""
        for weights, own in self._own_forms:
            own.copy_(weights)

    def give_weights(self) -> None:
        """Has to be called after a call: what it changed in them is changed in the judge's memory."""
        for weights, own in self._own_forms:
            weights.copy_(own)

    @property
    def has_later(self) -> bool:
        """Whether later calls ask for something else than the first."""
        return self._later is not None

    def steps(self, which: str) -> Sequence[Step]:
        """What a call asks for. which: first or later."""
        later = self._trace.later
        return self._trace.first if later is None or which != "later" else later

    def prepare(self, call: Call) -> None:
        """The set-up, over the weights as they are now. Raises Failed, and whatever torch raises."""
        import torch

        table = dict(self._weights)
        self.take_weights()
        if self.preparation:
            seed_everything(self._seed)
            with torch.no_grad():
                self.preparation.run(table, call)
        self._kept, self._lasting = {n: t for n, t in table.items() if n in self._wanted}, None

    def locate(self, weights: Mapping[str, Any], call: Call) -> dict[str, Position]:
        """Runs the whole set-up, and returns where these values lie in what it made (`find_values`). The trace has to
        be opened anew afterwards. Raises Failed, and whatever torch raises.
        """
        import torch

        setup = self._trace.setup
        made = {number for step in all_steps(setup) for number in numbers_made(step)}
        table = dict(self._weights)
        self.take_weights()
        seed_everything(self._seed)
        with torch.no_grad():
            Preparation(setup, made, self._weights.keys(), self._device).run(table, call)
        free = {n: t for n, t in table.items() if n not in self._weights and has_memory(t)}
        parameters = [
            self._trace.state[name] for name in self._trace.parameters if name in self._trace.state
        ]
        return find_values(weights, free, [*parameters, *self._trace.state.values()])

    def forget_first(self) -> None:
        """Drops what the first call left: the next call has to be a first one."""
        self._lasting = None

    def run(self, which: str, inputs: Sequence[Any], call: Call, seed: int | None) -> list[Any]:
        """One call on these arguments of forward; seed: of what torch draws, None leaves the generator as it is. Gives
        the outputs in order: tensors, {"other": type's name}, plain values.

        Raises Failed, whatever torch raises, and ValueError where a later call comes before any first.
        """
        import torch

        later = self._later if which == "later" else None
        if later is not None and self._lasting is None:
            raise ValueError("a later call was asked for before the first one")
        pattern, outputs = (
            (self._trace.inputs, self._trace.first_outputs)
            if later is None
            else (self._trace.later_inputs, self._trace.later_outputs)
        )
        table = call.table(self._kept if later is None else self._lasting or {})
        bind(pattern, list(inputs), table)
        if seed is not None:
            seed_everything(seed)
        with torch.no_grad():
            (later or self._first).run(table, call)
        if later is None and self._later is not None:
            left = {n: table[n] for n in self.left_by_first if n in table}
            self._lasting = self._kept | _apart_from(list(inputs), left)
        return [self._output(leaf, table) for leaf in output_leaves(outputs)]

    def _output(self, leaf: Json, table: Table) -> Any:
        if isinstance(leaf, dict) and "t" in leaf:
            if leaf["t"] not in table:
                raise forged_trace("gives back a tensor that nothing made")
            return table[leaf["t"]]
        return leaf

    def kept_tensors(self) -> list[Any]:
        """The tensors that outlive a call: the candidate's own, not the judge's weights."""
        weights = {id(t) for t in self._weights.values()}
        return [t for t in self.persistent_tensors() if id(t) not in weights and t.numel()]

    def persistent_tensors(self) -> list[Any]:
        """Every tensor that outlives a call: weights, what the set-up made, what the first call left."""
        return list((self._kept | (self._lasting or {})).values())


def _apart_from(inputs: list[Any], left: Table) -> Table:
    """The tensors that a first call left, those that lie in its inputs as copies: a later call's inputs take their
    place in the judge's memory, where a caller's lie elsewhere.
    """
    import torch

    given = [t for t in tensors_of(inputs) if has_memory(t)]
    found = dict(left)
    for number, tensor in left.items():
        if has_memory(tensor) and any(overlap(tensor, t) for t in given):
            begin, end = address_range(tensor)
            with torch.utils._python_dispatch._disable_current_modes():
                whole = tensor.as_strided(((end - begin) // tensor.element_size(),), (1,))
                found[number] = whole.clone().as_strided(tensor.shape, tensor.stride(), 0)
    return found


def _made_in(steps: Sequence[Step]) -> set[int]:
    return {number for step in all_steps(steps) for number in numbers_made(step)}


def _needed_from_outside(steps: Sequence[Step], outputs: Json, inputs: Json) -> set[int]:
    """Numbers that the steps use, or give back, and that neither they nor the inputs make."""
    made = set(tensors_in(inputs))
    used: set[int] = set()
    for step in all_steps(steps):
        used |= set(numbers_used(step)) - made
        made |= set(numbers_made(step))
    return used | (set(tensors_in(outputs)) - made)
