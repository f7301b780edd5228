"""What passes between the judge and one candidate: inputs, weights and places for outputs in the judge's memory, and calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tools import wire
from tools.buffers import Buffers, Shared
from tools.conversation import Conversation
from tools.situation import Expected, Situation

MARGIN_BYTE = 0xFF
"""NaN beyond every input."""


class Exchange:
    """One candidate's side of one problem. Everything here may raise Failed."""

    def __init__(self, situation: Situation, talk: Conversation, buffers: Buffers) -> None:
        self.situation, self.talk, self.buffers = situation, talk, buffers
        self.inputs: list[Shared] = []
        self.places: list[Shared] = []
        self.weights: dict[str, tuple[str, Shared]] = {}
        """Candidate's name -> the reference's name, and the memory of it."""
        self.reloaded: bool | None = None
        self._arguments: list[Any] = []

    def load(self, source: str) -> None:
        """The candidate's module and model, and its parameters matched with the reference's."""
        positional, named = self.situation.reference.init_arguments()
        fds: list[int] = []
        init = wire.describe((positional, named), lambda t: self.share(t, fds).spec)
        reply = self.talk.ask("load", fds, source=source, init=init, weights_seed=self.situation.weights_seed)
        if self.situation.has_weights:
            self._match(reply["parameters"])

    def share(self, tensor: Any, fds: list[int]) -> Shared:
        return self.share_together([tensor], fds)[0]

    def share_together(self, tensors: Sequence[Any], fds: list[int]) -> list[Shared]:
        """The tensors in shared memory. `fds` gets what is to be sent with their specs, which say the place of their descriptor in it."""
        placed = self.buffers.together([t if not _overlaps(t) else t.contiguous() for t in tensors])
        for shared, tensor in zip(placed, tensors, strict=True):
            shared.fill_margins(MARGIN_BYTE)
            shared.tensor.copy_(tensor)
            shared.spec["fd"] = len(fds)
        fds.extend(placed[0].fds if placed else ())
        return placed

    def _match(self, listed: Any) -> None:
        """Shares the reference's weights under the candidate's names: by name, else by order of equal shapes, else by the common seed only."""
        from tools.weights import match

        pairs = match(self.situation.model, listed)
        self.reloaded = pairs is not None
        if pairs is None:
            return
        fds: list[int] = []
        state = state_of(self.situation.model)
        placed = self.share_together([state[ours].detach() for ours in pairs.values()], fds)
        self.weights = {theirs: (ours, shared) for (theirs, ours), shared in zip(pairs.items(), placed, strict=True)}
        self.talk.ask("weights", fds, weights={theirs: shared.spec for theirs, (_, shared) in self.weights.items()})

    def load_weights(self, model: Any) -> None:
        """Both models have these weights from now on."""
        state = state_of(model)
        for ours, shared in self.weights.values():
            shared.tensor.copy_(state[ours].detach())
        self.synchronize()
        self.talk.ask("reload")

    def open(self, expected: Expected) -> None:
        """Shares the inputs and the places of the outputs."""
        import torch

        fds: list[int] = []
        self.inputs, self._arguments = [], list(expected.inputs)

        def share(tensor: Any) -> dict[str, Any]:
            self.inputs.append(self.share(tensor, fds))
            return self.inputs[-1].spec

        tree = wire.describe(list(expected.inputs), share)
        self.talk.ask("inputs", fds, sets=[tree])
        fds = []
        self.places = [self.share(o, fds) for o in self.returned(expected.eager) if isinstance(o, torch.Tensor)]
        self.talk.ask("places", fds, places=[p.spec for p in self.places])

    def returned(self, outputs: list[Any]) -> list[Any]:
        return outputs[: len(outputs) - len(self.situation.mutated)]

    def refill(self, expected: Expected) -> None:
        import torch

        tensors = [v for v in expected.inputs if isinstance(v, torch.Tensor)]
        for shared, value in zip(self.inputs, tensors, strict=True):
            shared.tensor.copy_(value)

    def synchronize(self) -> None:
        if self.buffers.device != "cpu":
            import torch

            torch.cuda.synchronize()

    def got(self) -> list[Any]:
        return [p.tensor for p in self.places] + [self.input(i) for i in sorted(self.situation.mutated)]

    def input(self, index: int) -> Any:
        import torch

        before = sum(isinstance(v, torch.Tensor) for v in self._arguments[:index])
        return self.inputs[before].tensor

    def run(self, expected: Expected, poison: int, mode: str) -> dict[str, Any]:
        """One call in the candidate's process; its outputs are in the places afterwards."""
        for place in self.places:
            place.memory.fill_(poison)
        self.synchronize()
        return self.talk.ask("run", set=0, rng=expected.rng, poison=poison, mode=mode)


def state_of(model: Any) -> dict[str, Any]:
    return dict(model.named_parameters()) | dict(model.named_buffers())


def _overlaps(tensor: Any) -> bool:
    return any(n > 1 and s == 0 for n, s in zip(tensor.shape, tensor.stride(), strict=True))
