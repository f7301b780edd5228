"""Calls of the candidate: checked, with its launches off, timed, profiled. Outputs are copied into the judge's memory, never sent."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from tools.compare import describe, flatten
from tools.results import Fault
from tools.seeds import seed_everything
from tools.untrusted.launches import Launches
from tools.untrusted.surroundings import Surroundings
from tools.untrusted.trouble import failure_of

Reply = dict[str, Any]
MOST_OUTPUTS = 64


class Runner:
    """Holds the model and the last outputs."""

    def __init__(self, model: Any, launches: Launches, around: Surroundings, path: str) -> None:
        self._model, self._launches, self._around, self._device, self._path = (
            model,
            launches,
            around,
            around.device,
            path,
        )
        self.places: list[torch.Tensor] = []
        self.expected_weights: dict[str, torch.Tensor] = {}
        self._kept: list[list[Any]] = []

    def run(self, inputs: list[Any], message: dict[str, Any]) -> Reply:
        """One call. `mode`: check, off (launches suppressed), bare (contents not masked) or plain (neither masked, counted, poisoned nor guarded)."""
        seed_everything(message["rng"])
        mode = message.get("mode", "check")
        real = mode in ("bare", "plain")
        watched = None if mode == "plain" else self._around.watched(message["poison"], bare=real)
        hidden = self._around.open_all() if real else self._around.open(inputs)
        try:
            with hidden:
                with self._launches.counting() as launched, self._around.running(watched, off=mode == "off"):
                    outputs = self._model(*inputs)
                self._finish()
                leaves = flatten(outputs)
                reply = self._described(leaves, inputs, real=real)
        except BaseException as error:
            failure = failure_of(error, self._path, Fault.RUNTIME).model_dump(mode="json")
            return {"failure": failure, "launches": dict(self._launches.counts)}
        self._kept = [leaves]
        reply["launches"] = dict(launched)
        return (
            reply
            if watched is None
            else reply | {"census": watched.census.as_message(), "written_outside": watched.written_outside()}
        )

    def _described(self, leaves: list[Any], inputs: list[Any], *, real: bool) -> Reply:
        """Form, aliases, changed weights; and the outputs copied. real: contents are not masked."""
        with contextlib.nullcontext() if real else self._around.open((inputs, leaves, self._state())):
            described = [
                describe(leaf).model_dump(mode="json") | _aliases(leaf, inputs, self._state())
                for leaf in leaves[:MOST_OUTPUTS]
            ]
            told = {"outputs": described, "count": len(leaves), "weights_changed": self._changed_weights()}
            return told | self._copy_where_equal(leaves)

    def _finish(self) -> None:
        if self._device != "cpu":
            torch.cuda.synchronize()

    def _state(self) -> list[torch.Tensor]:
        if not isinstance(self._model, torch.nn.Module):
            return []
        return list(state_of(self._model).values())

    def _changed_weights(self) -> list[str]:
        """Parameters that the call changed. Buffers may change: running statistics do."""
        if not isinstance(self._model, torch.nn.Module):
            return []
        return [
            n
            for n, p in state_of(self._model).items()
            if isinstance(p, torch.nn.Parameter)
            and n in self.expected_weights
            and not _same_bits(p, self.expected_weights[n])
        ]

    def copy(self, call: int) -> Reply:
        """The outputs of one kept call into the judge's places."""
        try:
            return self._copy_where_equal(self._kept[call])
        except BaseException as error:
            return {"failure": failure_of(error, self._path, Fault.OUTPUT).model_dump(mode="json")}

    def _copy_where_equal(self, leaves: list[Any]) -> Reply:
        """Copies where type, shape and dtype are as expected; the judge finds the rest in the description."""
        copied = []
        for leaf, place in zip(leaves, self.places, strict=False):
            fits = (
                type(leaf) is torch.Tensor
                and leaf.shape == place.shape
                and leaf.dtype == place.dtype
                and leaf.device.type == place.device.type
            )
            if fits and leaf.layout is torch.strided:
                place.copy_(leaf.detach())
            copied.append(fits)
        self._finish()
        return {"copied": copied}

    def arm(self, sets: list[list[Any]], rng: int) -> Reply:
        from tools.untrusted import cuda_clock

        self._kept = []
        self._block = cuda_clock.Block(self._model, sets, rng)
        self._launched: dict[str, int] = {}
        return {}

    def time(self) -> Reply:
        """The calls of the armed block, and no more."""
        try:
            with self._launches.counting() as launched:
                self._block.run()
        except BaseException as error:
            return {"failure": failure_of(error, self._path, Fault.RUNTIME).model_dump(mode="json")}
        self._launched = launched
        return {}

    def told(self) -> Reply:
        try:
            milliseconds, self._kept, allocated = self._block.told()
        except BaseException as error:
            return {"failure": failure_of(error, self._path, Fault.RUNTIME).model_dump(mode="json")}
        return {"ms": milliseconds, "launches": dict(self._launched), "allocated": allocated}

    def profile(self, sets: list[list[Any]]) -> Reply:
        from tools.untrusted import cuda_clock

        try:
            self._kept = []
            with self._launches.counting() as launched:
                kernels = cuda_clock.kernels(self._model, sets)
        except BaseException as error:
            return {"failure": failure_of(error, self._path, Fault.RUNTIME).model_dump(mode="json")}
        return {"kernels": kernels, "launches": dict(launched)}


def state_of(model: Any) -> dict[str, torch.Tensor]:
    """Parameters, then buffers, by dotted name: read from the modules' own tables, whatever methods the candidate overrides."""
    found: dict[str, dict[str, torch.Tensor]] = {"_parameters": {}, "_buffers": {}}
    waiting, seen = [("", model)], set()
    while waiting:
        prefix, module = waiting.pop(0)
        if id(module) in seen:
            continue
        seen.add(id(module))
        for table, into in found.items():
            into.update({prefix + n: t for n, t in module.__dict__[table].items() if t is not None})
        waiting += [(f"{prefix}{n}.", m) for n, m in module.__dict__["_modules"].items() if m is not None]
    return found["_parameters"] | found["_buffers"]


def _same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.detach().reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))


def _aliases(leaf: Any, inputs: list[Any], state: list[torch.Tensor]) -> dict[str, Any]:
    """Which input or weight the output shares memory with: {"input": i} or {"weight": i}."""
    if not isinstance(leaf, torch.Tensor) or leaf.layout is not torch.strided or not leaf.numel():
        return {}
    low, high = _extent(leaf)
    for kind, tensors in (("input", inputs), ("weight", state)):
        for index, tensor in enumerate(tensors):
            if isinstance(tensor, torch.Tensor) and tensor.numel() and tensor.device == leaf.device:
                start, end = _extent(tensor)
                if low < end and start < high:
                    return {"alias": {kind: index}}
    return {}


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    start = tensor.data_ptr()
    return start, start + (
        sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    ) * tensor.element_size()
