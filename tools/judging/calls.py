"""One candidate at one size: its weights bound to the judge's memory, and its calls replayed there. Trusted side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kernelwright.tools import wire
from kernelwright.tools.comparing.on_the_host import ask_with_host_memory
from kernelwright.tools.expected.prepared_problem import (
    ExpectedOutputs,
    PreparedProblem,
)
from kernelwright.tools.expected.weights import Position, weights_of
from kernelwright.tools.judging.state import state_of
from kernelwright.tools.judging.weights.mapping import (
    map_by_name,
    map_by_order,
    missing_weights,
    read_positions,
    with_positions,
)
from kernelwright.tools.references.shared_tensors import Buffers, SharedTensor, TensorForm
from kernelwright.tools.replaying.noise import NOISE
from kernelwright.tools.replaying.replayer import Replayer, Reply
from kernelwright.tools.sizing.input_layouts import InputLayout, copy_values
from kernelwright.tools.trace.forms_of_outputs import overlaps
from kernelwright.tools.trace.trace import Trace, Traced

MARGIN_BYTE = 0xFF
"""What lies in the memory around a tensor on a GPU: NaN beyond every input."""


class CandidateCalls:
    """Calls of one trace on the inputs and the weights of one prepared problem."""

    def __init__(
        self, prepared: PreparedProblem, traced: Traced, index: int, replayer: Replayer, buffers: Buffers,
        inputs: tuple[list[Any], Sequence[SharedTensor]] = ([], ()),
    ) -> None:  # fmt: skip
        """index: which of the traces. inputs: described, and the memory for them that there is already."""
        self.prepared = prepared
        self._traced, self._index, self._replayer, self._buffers = traced, index, replayer, buffers
        self.reloaded: bool | None = None
        """Whether all weights of the reference are loaded into the candidate; None where the reference has none."""
        self.missing: tuple[str, ...] = ()
        """The reference's weights that no tensor of the candidate holds."""
        self.model = prepared.model
        """The reference whose weights the candidate has."""
        self.weights: dict[str, tuple[str, SharedTensor]] = {}
        """The candidate's name of a parameter or buffer -> the reference's name, and the memory of both sides."""
        self._places: list[SharedTensor] = []
        self._tree, self._inputs = inputs[0], list(inputs[1])
        self.is_first = True
        """Whether the next call is the first one after the module was set up."""
        self.layouts: Sequence[InputLayout | None] = ()
        """Layouts of the inputs that are tensors, to be set before the first call; empty for the problem's own."""
        self.configuration: int | None = None
        """The configuration of autotuned launches; None: one by the seed of the call."""

    @property
    def trace(self) -> Trace:
        """The trace, with the weights that were located by their values among its state tensors."""
        trace = self._traced.traces[self._index]
        assert trace is not None
        return trace

    # -------------------------------------------------------------- opening
    def open(self, seed: int, seconds: float, binaries: Any = None) -> None:
        """Binds the weights and sets the module up. seed: of random numbers in its `__init__`. Raises Failed."""
        names = map_by_name(self.prepared, self.trace)
        self._bind(names)
        self._open_trace(seed, seconds, binaries)
        missing = missing_weights(self.prepared, names.values())
        if missing:
            names = self._names_by_values_or_order(names, missing, seconds)
            missing = missing_weights(self.prepared, names.values())
            self._bind(names)
            self._open_trace(seed, seconds, binaries)
        self.missing = missing
        self.reloaded = not missing if weights_of(self.prepared) else None

    def _names_by_values_or_order(
        self, names: dict[str, str], missing: Sequence[str], seconds: float
    ) -> dict[str, str]:
        """Returns the names of tensors with those of weights that values tell, or the order of all parameters does
        where values do not tell all. Raises Failed.
        """
        positions = self._positions_of(missing, seconds)
        if len(positions) < len(missing) and (by_order := map_by_order(self.prepared, self.trace)):
            return by_order
        self._traced, located = with_positions(
            self._traced, self._index, positions, weights_of(self.prepared)
        )
        return names | located

    def _bind(self, names: Mapping[str, str]) -> None:
        """Gives the candidate's tensors of these names memory that holds the reference's weights."""
        state = state_of(self.prepared.model)
        shared = self._shared([state[ours].detach() for ours in names.values()])
        self.weights = {
            theirs: (ours, s) for (theirs, ours), s in zip(names.items(), shared, strict=True)
        }
        self._synchronize()

    def _open_trace(self, seed: int, seconds: float, binaries: Any) -> None:
        bound = {n: s for n, (_, s) in self.weights.items()}
        self._replayer.open(
            self._traced, self._index, bound, seed=seed, seconds=seconds, binaries=binaries
        )

    def _positions_of(self, missing: Sequence[str], seconds: float) -> dict[str, Position]:
        """Returns where the values of weights that no name tells lie in tensors of the set-up. Raises Failed."""
        weights = weights_of(self.prepared)
        shared = self._shared([weights[name] for name in missing])
        self._synchronize()
        message = {
            "do": "locate",
            "weights": {n: s.spec for n, s in zip(missing, shared, strict=True)},
        }
        answer = self._replayer.ask(message, seconds=seconds, shared=shared)
        return read_positions(answer.get("positions"), self.trace)

    def load_weights(self, model: Any) -> None:
        """Both models have these weights from now on; what the candidate made of the old ones is made again."""
        self.put_weights(model)
        self.set_up()

    def set_up(self) -> None:
        """The module is set up again: the next call is a first one."""
        self._replayer.set_up()
        self.is_first = True

    def put_weights(self, model: Any) -> None:
        """Both models have these weights from now on; what the candidate made of the old ones stays."""
        state = state_of(model)
        for ours, shared in self.weights.values():
            shared.tensor.copy_(state[ours].detach())
        self._synchronize()
        self.model = model

    def _restore_state(self) -> None:
        """Every call begins with the state that the reference's began with."""
        if changing := self.prepared.reference.changing:
            state = state_of(self.model)
            for ours, shared in self.weights.values():
                if ours in changing:
                    shared.tensor.copy_(state[ours].detach())

    @property
    def bound(self) -> frozenset[str]:
        """The candidate's names of the weights that the judge loads. Buffers that are equal for every seed (a rotary
        embedding's frequencies) are constants of the problem, whatever the candidate calls them.
        """
        weights = weights_of(self.prepared)
        return frozenset(theirs for theirs, (ours, _) in self.weights.items() if ours in weights)

    def kept_names(self) -> set[str]:
        """The candidate's names of the judge's weights and buffers that the reference does not update."""
        updated = self.prepared.reference.changing or ()
        return {theirs for theirs, (ours, _) in self.weights.items() if ours not in updated}

    @property
    def has_weights(self) -> bool:
        """Whether some of the candidate's weights are the judge's, and others can be loaded."""
        weights = weights_of(self.prepared)
        return any(ours in weights for ours, _ in self.weights.values())

    def _shared(self, tensors: list[Any]) -> list[SharedTensor]:
        placed = self._buffers.together([t if not overlaps(t) else t.contiguous() for t in tensors])
        for shared, tensor in zip(placed, tensors, strict=True):
            if self._buffers.device != "cpu":
                shared.fill_margins(MARGIN_BYTE)
            shared.tensor.copy_(tensor)
        return placed

    def _synchronize(self) -> None:
        if self._buffers.device != "cpu":
            import torch

            torch.cuda.synchronize()

    def call(
        self,
        expected: ExpectedOutputs,
        poison: int,
        shuffle: int,
        *,
        launches: bool = True,
        watch: bool = False,
    ) -> tuple[list[Any], Reply]:
        """One call on one draw.

        Gives outputs (None for what is no tensor), inputs that the reference changes, and buffers that it updates (None
        for one that the candidate lacks), as they lie in the judge's memory. Raises Failed.
        """
        import torch

        self._fill(expected)
        self._restore_state()
        for place in self._places:
            place.memory.fill_(
                poison % NOISE
            ) if self._buffers.device != "cpu" else place.tensor.fill_(0)
        self._synchronize()
        self._buffers.give_back_unused_memory()
        which = "later" if self.trace.later is not None and not self.is_first else "first"
        self.is_first = False
        choices = shuffle if self.configuration is None else self.configuration
        reply = ask_with_host_memory(
            lambda: self._replayer.call(
                self._tree, self._inputs, self._places, call_name=which, poison=poison, shuffle=shuffle,
                choices=choices,
                launches=launches, seed=expected.rng, watch=watch,
            ),
            idle=lambda: [*expected.inputs, *expected.eager, *(expected.exact or ())],
            needed=lambda: state_of(self.model).values(),
            again=lambda: which == "first" and self._replayer.process is not None,
        )  # fmt: skip
        inputs = iter(self._inputs)
        given = [
            next(inputs).tensor if isinstance(v, torch.Tensor) else None for v in expected.inputs
        ]
        changed = [given[i] for i in sorted(self.prepared.mutated)]
        held = {ours: shared.tensor for ours, shared in self.weights.values()}
        return [
            *self.outputs_in_place(expected),
            *changed,
            *map(held.get, self.prepared.reference.updated),
        ], reply

    def _fill(self, expected: ExpectedOutputs) -> None:
        import torch

        tensors = [v for v in expected.inputs if isinstance(v, torch.Tensor)]
        if not self._places:
            self._places = self._shared(
                [o for o in self.returned(expected) if isinstance(o, torch.Tensor)]
            )
        if not self._tree:
            self._inputs = self._laid_out(tensors) if self.layouts else self._shared(tensors)
            waiting = iter(self._inputs)
            given = self.prepared.reference.arguments(expected.inputs)
            self._tree = [wire.describe(v, lambda _: next(waiting).spec) for v in given]
            return
        for shared, value in zip(self._inputs, tensors, strict=True):
            copy_values(shared.tensor, value)

    def _laid_out(self, tensors: Sequence[Any]) -> list[SharedTensor]:
        """Returns memory that holds these tensors in the layouts. What lies between their elements is filled as margins
        are, so that a kernel which takes it for elements is wrong.
        """
        forms = []
        for tensor, layout in zip(tensors, self.layouts, strict=True):
            strides = tensor.stride() if layout is None else layout.strides
            offset = 0 if layout is None else layout.offset
            forms.append(TensorForm(tensor.shape, strides, tensor.dtype, offset))
        placed = self._buffers.placed(forms)
        for shared, tensor in zip(placed, tensors, strict=True):
            shared.memory.fill_(MARGIN_BYTE)
            copy_values(shared.tensor, tensor)
        return placed

    @property
    def keeps_state(self) -> bool:
        """Whether later calls go on with what the first one made: there an answer may be kept."""
        return self.trace.later is not None

    @property
    def inputs(self) -> list[SharedTensor]:
        """The memory of the inputs that are tensors."""
        return self._inputs

    @property
    def places(self) -> list[SharedTensor]:
        """Returns the buffers that outputs are copied to."""
        return self._places

    def outputs_in_place(self, expected: ExpectedOutputs) -> list[Any]:
        """The outputs as the last call left them there; None for what is no tensor."""
        import torch

        places = iter(self._places)
        return [
            next(places).tensor if isinstance(o, torch.Tensor) else None
            for o in self.returned(expected)
        ]

    def returned(self, expected: ExpectedOutputs) -> list[Any]:
        """What the reference returned, without the inputs that it changed and the buffers that it updated."""
        return expected.eager[: len(expected.eager) - self.prepared.beside_outputs]
