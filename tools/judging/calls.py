"""Replays the calls of a candidate at a size, with its weights bound to the judge's memory. Trusted
side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

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
from kernelwright.tools.references.shared_tensors import Buffers, SharedTensor, TensorLayout
from kernelwright.tools.replaying.noise import NOISE
from kernelwright.tools.replaying.replayer import Replayer, Reply
from kernelwright.tools.sizing.input_layouts import InputLayout, copy_values
from kernelwright.tools.trace.forms_of_outputs import overlaps
from kernelwright.tools.trace.trace import Trace, Traced

if TYPE_CHECKING:
    import torch


MARGIN_BYTE = 0xFF
"""Byte in the margins around a tensor on a GPU: NaN beyond every input."""


class CandidateCalls:
    """Calls of a trace on the inputs and weights of a prepared problem."""

    def __init__(
        self, prepared: PreparedProblem, traced: Traced, index: int, replayer: Replayer, buffers: Buffers,
        inputs: tuple[list[Any], Sequence[SharedTensor]] = ([], ()),
    ) -> None:  # fmt: skip
        """Stores the parts. index: that of the trace. inputs: described, with their memory if
        allocated before."""
        self.prepared = prepared
        self._traced = traced
        self._index = index
        self._replayer = replayer
        self._buffers = buffers
        self.reloaded: bool | None = None
        """True if all weights of the reference are loaded into the candidate; None if the reference
        has none."""
        self.missing: tuple[str, ...] = ()
        """The reference's weights that no tensor of the candidate holds."""
        self.model = prepared.model
        """The reference whose weights the candidate has."""
        self.weights: dict[str, tuple[str, SharedTensor]] = {}
        """Candidate's name of a parameter or buffer -> the reference's name, and the memory of both
        sides."""
        self._targets: list[SharedTensor] = []
        self._tree, self._inputs = inputs[0], list(inputs[1])
        self.is_first = True
        """The next call is the first after the set-up."""
        self.layouts: Sequence[InputLayout | None] = ()
        """Layouts of the tensor inputs, set before the first call; empty for the problem's own."""
        self.configuration: int | None = None
        """Configuration of autotuned launches; None: selected by the seed of the call."""

    @property
    def trace(self) -> Trace:
        """The trace, with weights located by their values among its state tensors."""
        trace = self._traced.traces[self._index]
        assert trace is not None
        return trace

    # -------------------------------------------------------------- opening
    def open(self, seed: int, seconds: float, binaries: Mapping[str, Any] | None = None) -> None:
        """Binds the weights and runs the set-up. seed: that of random numbers in `__init__`. Raises
        Failed."""
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
        """Returns names with those of weights located by value; by order of all parameters if
        values are ambiguous. Raises Failed."""
        positions = self._positions_of(missing, seconds)
        if len(positions) < len(missing) and (by_order := map_by_order(self.prepared, self.trace)):
            return by_order
        self._traced, located = with_positions(
            self._traced, self._index, positions, weights_of(self.prepared)
        )
        return names | located

    def _bind(self, names: Mapping[str, str]) -> None:
        """Binds these tensors of the candidate to memory with the reference's weights."""
        state = state_of(self.prepared.model)
        shared = self._shared([state[ours].detach() for ours in names.values()])
        self.weights = {
            theirs: (ours, s) for (theirs, ours), s in zip(names.items(), shared, strict=True)
        }
        self._synchronize()

    def _open_trace(self, seed: int, seconds: float, binaries: Mapping[str, Any] | None) -> None:
        bound = {n: s for n, (_, s) in self.weights.items()}
        self._replayer.open(
            self._traced, self._index, bound, seed=seed, seconds=seconds, binaries=binaries
        )

    def _positions_of(self, missing: Sequence[str], seconds: float) -> dict[str, Position]:
        """Returns positions, in tensors of the set-up, of weights that no name identifies. Raises
        Failed."""
        weights = weights_of(self.prepared)
        shared = self._shared([weights[name] for name in missing])
        self._synchronize()
        message = {
            "do": "locate",
            "weights": {n: s.spec for n, s in zip(missing, shared, strict=True)},
        }
        answer = self._replayer.ask(message, seconds=seconds, shared=shared)
        return read_positions(answer.get("positions"), self.trace)

    def load_weights(self, model: torch.nn.Module) -> None:
        """Loads weights into both models, and recomputes tensors that the candidate made from the
        old ones."""
        self.put_weights(model)
        self.set_up()

    def set_up(self) -> None:
        """Runs the set-up again: the next call is a first one."""
        self._replayer.set_up()
        self.is_first = True

    def put_weights(self, model: torch.nn.Module) -> None:
        """Loads weights into both models, but keeps tensors that the candidate made from the old
        ones."""
        state = state_of(model)
        for ours, shared in self.weights.values():
            shared.tensor.copy_(state[ours].detach())
        self._synchronize()
        self.model = model

    def _restore_state(self) -> None:
        """Resets state that the reference's call changes."""
        if changing := self.prepared.reference.changing:
            state = state_of(self.model)
            for ours, shared in self.weights.values():
                if ours in changing:
                    shared.tensor.copy_(state[ours].detach())

    @property
    def bound(self) -> frozenset[str]:
        """The candidate's names of the weights that the judge loads.

        Buffers that are equal for every seed (a rotary embedding's frequencies) are constants of
        the problem, under any name.
        """
        weights = weights_of(self.prepared)
        return frozenset(theirs for theirs, (ours, _) in self.weights.items() if ours in weights)

    def unchanged_names(self) -> set[str]:
        """Returns the candidate's names of the judge's weights and buffers that the reference does
        not update."""
        updated = self.prepared.reference.changing or ()
        return {theirs for theirs, (ours, _) in self.weights.items() if ours not in updated}

    @property
    def has_weights(self) -> bool:
        """True if some weights of the candidate are bound to the judge's, so that others can be
        loaded."""
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

    @property
    def may_go_on(self) -> bool:
        """Returns False after a call whose process died or was ended: no further call is possible."""
        return self._replayer.is_open

    def call(
        self,
        expected: ExpectedOutputs,
        poison: int,
        shuffle: int,
        *,
        launches: bool = True,
        watch: bool = False,
    ) -> tuple[list[Any], Reply]:
        """Runs a call on a draw. Raises Failed.

        Returns the outputs (None for values that are no tensors), the inputs that the reference
        changes, and the buffers that the reference updates (None for a missing buffer), all in the
        judge's memory; and the process's reply.
        """
        import torch

        self._fill(expected)
        self._restore_state()
        for target in self._targets:
            target.memory.fill_(
                poison % NOISE
            ) if self._buffers.device != "cpu" else target.tensor.fill_(0)
        self._synchronize()
        self._buffers.give_back_unused_memory()
        call_name = "later" if self.trace.later is not None and not self.is_first else "first"
        self.is_first = False
        choices = shuffle if self.configuration is None else self.configuration
        reply = ask_with_host_memory(
            lambda: self._replayer.call(
                self._tree, self._inputs, self._targets, call_name=call_name, poison=poison, shuffle=shuffle,
                choices=choices,
                launches=launches, seed=expected.rng, watch=watch,
            ),
            idle=lambda: [*expected.inputs, *expected.eager, *(expected.exact or ())],
            needed=lambda: state_of(self.model).values(),
            can_repeat=lambda: call_name == "first" and self._replayer.process is not None,
        )  # fmt: skip
        inputs = iter(self._inputs)
        input_tensors = [
            next(inputs).tensor if isinstance(v, torch.Tensor) else None for v in expected.inputs
        ]
        changed = [input_tensors[i] for i in sorted(self.prepared.mutated)]
        state_tensors = {ours: shared.tensor for ours, shared in self.weights.values()}
        return [
            *self.outputs_in_place(expected),
            *changed,
            *map(state_tensors.get, self.prepared.reference.updated),
        ], reply

    def _fill(self, expected: ExpectedOutputs) -> None:
        import torch

        tensors = [v for v in expected.inputs if isinstance(v, torch.Tensor)]
        if not self._targets:
            self._targets = self._shared(
                [o for o in self.returned(expected) if isinstance(o, torch.Tensor)]
            )
        if not self._tree:
            self._inputs = self._laid_out(tensors) if self.layouts else self._shared(tensors)
            waiting = iter(self._inputs)
            arguments = self.prepared.reference.arguments(expected.inputs)
            self._tree = [wire.describe(v, lambda _: next(waiting).spec) for v in arguments]
            return
        for shared, value in zip(self._inputs, tensors, strict=True):
            copy_values(shared.tensor, value)

    def _laid_out(self, tensors: Sequence[Any]) -> list[SharedTensor]:
        """Returns memory that holds these tensors in the layouts.

        Gaps between elements are filled like margins, so that a kernel which reads them as elements
        is wrong.
        """
        forms = []
        for tensor, layout in zip(tensors, self.layouts, strict=True):
            strides = tensor.stride() if layout is None else layout.strides
            offset = 0 if layout is None else layout.offset
            forms.append(TensorLayout(tensor.shape, strides, tensor.dtype, offset))
        placed = self._buffers.placed(forms)
        for shared, tensor in zip(placed, tensors, strict=True):
            shared.memory.fill_(MARGIN_BYTE)
            copy_values(shared.tensor, tensor)
        return placed

    @property
    def keeps_state(self) -> bool:
        """True if later calls use tensors of the first: an answer could be cached there."""
        return self.trace.later is not None

    @property
    def inputs(self) -> list[SharedTensor]:
        """Memory of the tensor inputs."""
        return self._inputs

    @property
    def targets(self) -> list[SharedTensor]:
        """Memory to which outputs are copied."""
        return self._targets

    def outputs_in_place(self, expected: ExpectedOutputs) -> list[Any]:
        """Returns the outputs of the last call; None for values that are no tensors."""
        import torch

        targets = iter(self._targets)
        return [
            next(targets).tensor if isinstance(o, torch.Tensor) else None
            for o in self.returned(expected)
        ]

    def returned(self, expected: ExpectedOutputs) -> list[Any]:
        """Returns the reference's outputs, without the inputs that it changed and the buffers that
        it updated."""
        return expected.eager[: len(expected.eager) - self.prepared.beside_outputs]
