"""The candidate's service: load, run, copy, time, as the judge asks. It holds the candidate, its inputs and nothing else.

Every request carries a nonce and is answered with it: what was written to the channel by anyone else is recognised.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import torch

from tools import wire
from tools.results import Cheat, Failure, Fault
from tools.sandbox.channel import Channel
from tools.seeds import seed_everything
from tools.untrusted import graphs, interpreter, redirect, tamper
from tools.untrusted.launches import Launches
from tools.untrusted.libdevice import provide_libdevice
from tools.untrusted.mask import storages_in
from tools.untrusted.memory import Mapped
from tools.untrusted.run import Runner, state_of
from tools.untrusted.surroundings import Surroundings
from tools.untrusted.trouble import failure_of

NAME = "candidate"


def serve(channel: Channel, payload: dict[str, Any]) -> None:
    Session(channel, payload).answer()


class Session:
    """One candidate, from its text to its last answer."""

    def __init__(self, channel: Channel, payload: dict[str, Any]) -> None:
        self._channel, self._device = channel, str(payload["device"])
        self._interpreted = self._device == "cpu"
        self._path = str(Path(payload["file"]).resolve())
        self._mapped, self._launches, self._watch = Mapped(), Launches(), tamper.Watch()
        self._around = Surroundings(self._device, self._launches)
        self._sets: list[list[Any]] = []
        self._weights: dict[str, torch.Tensor] = {}
        self._model: Any = None
        self._runner: Runner | None = None

    def answer(self) -> None:
        """Until the judge says stop, or is gone."""
        while True:
            message = self._channel.receive()
            if message["do"] == "stop":
                return
            reply = getattr(self, f"do_{message['do']}")(message)
            self._channel.send({"nonce": message["nonce"], "violations": self._violations(), **reply})

    def _violations(self) -> list[tuple[str, str]]:
        inside = [(Cheat.TAMPER.value, f"{name} inside an interpreted kernel") for name in self._launches.foreign[:8]]
        return self._watch.violations + inside

    # -------------------------------------------------------------- loading
    def do_load(self, message: dict[str, Any]) -> dict[str, Any]:
        """The candidate's module and model. Answers with its parameters, or with a failure."""
        self._prepare()
        fault = Fault.IMPORT
        try:
            module = self._import(message["source"])
            fault = Fault.ENTRY_POINT
            self._mapped.receive(self._channel.take_descriptors())
            arguments = self._arguments(message["init"])
            with self._around.loading():
                self._model = self._build(module, arguments, message["weights_seed"])
            parameters = self._describe_state()
        except BaseException as error:
            return _failed(failure_of(error, self._path, fault))
        self._runner = Runner(self._model, self._launches, self._around, self._path)
        return {"parameters": parameters}

    def _arguments(self, tree: Any) -> Any:
        """Init arguments; tensors among them are the candidate's own copies, masked like all it has."""
        arguments = wire.restore(tree, lambda spec: self._mapped.tensor(spec).clone())
        if self._around.mask:
            self._around.mask.toggle(storages_in(arguments))
        return arguments

    def _prepare(self) -> None:
        if self._interpreted:
            for change in (*interpreter.REPAIRS, *interpreter.QUICKER):
                change()
            provide_libdevice()
            interpreter.without_a_gpu()
            redirect.install()
            graphs.install()
        else:
            from tools.untrusted import cuda_clock

            cuda_clock.preload()
        tamper.preload()
        self._watch.trap()
        self._launches.install(interpreted=self._interpreted)

    def _import(self, source: str) -> Any:
        Path(self._path).write_text(source, "utf-8")
        spec = importlib.util.spec_from_file_location(NAME, self._path)
        if spec is None or spec.loader is None:
            raise ImportError("the candidate's file cannot be loaded")
        module = importlib.util.module_from_spec(spec)
        sys.modules[NAME] = module
        self._watch.arm(self._path)
        with self._around.loading():
            spec.loader.exec_module(module)
        return module

    def _build(self, module: Any, arguments: Any, seed: int) -> Any:
        if not isinstance(getattr(module, "ModelNew", None), type):
            raise TypeError("the candidate defines no class ModelNew")
        positional, named = arguments
        seed_everything(seed)
        with torch.device(self._device):
            model = module.ModelNew(*positional, **named)
        return model.to(self._device) if isinstance(model, torch.nn.Module) else model

    def _describe_state(self) -> list[dict[str, Any]]:
        """Parameters and buffers, in order: name, kind, shape, dtype."""
        if not isinstance(self._model, torch.nn.Module):
            return []
        return [
            {
                "kind": "parameter" if isinstance(t, torch.nn.Parameter) else "buffer",
                "name": n,
                "shape": list(t.shape),
                "dtype": str(t.dtype).removeprefix("torch."),
            }
            for n, t in state_of(self._model).items()
        ]

    # -------------------------------------------------------------- memory
    def do_inputs(self, message: dict[str, Any]) -> dict[str, Any]:
        """Maps sets of inputs; `append` keeps those that are there."""
        self._mapped.receive(self._channel.take_descriptors())
        sets = [wire.restore(tree, self._mapped.tensor) for tree in message["sets"]]
        self._sets = self._sets + sets if message.get("append") else sets
        return {}

    def do_places(self, message: dict[str, Any]) -> dict[str, Any]:
        """Where outputs are to be copied."""
        self._mapped.receive(self._channel.take_descriptors())
        self._ready().places = [self._mapped.tensor(spec) for spec in message["places"]]
        return {}

    def do_weights(self, message: dict[str, Any]) -> dict[str, Any]:
        """Maps the judge's weights by the candidate's own names, and loads them."""
        self._mapped.receive(self._channel.take_descriptors())
        self._weights = {name: self._mapped.tensor(spec) for name, spec in message["weights"].items()}
        return self.do_reload(message)

    def do_reload(self, message: dict[str, Any]) -> dict[str, Any]:
        """Copies what the judge's buffers hold now into parameters and buffers, in place, so that versions count up."""
        state = state_of(self._model)
        with torch.no_grad(), self._around.open(state):
            for name, value in self._weights.items():
                state[name].copy_(value)
        self._ready().expected_weights = self._weights
        return {}

    # -------------------------------------------------------------- running
    def do_run(self, message: dict[str, Any]) -> dict[str, Any]:
        return self._ready().run(self._sets[message["set"]], message)

    def do_arm(self, message: dict[str, Any]) -> dict[str, Any]:
        return self._ready().arm([self._sets[i] for i in message["sets"]], message["rng"])

    def do_time(self, message: dict[str, Any]) -> dict[str, Any]:
        return self._ready().time()

    def do_told(self, message: dict[str, Any]) -> dict[str, Any]:
        return self._ready().told()

    def do_copy(self, message: dict[str, Any]) -> dict[str, Any]:
        return self._ready().copy(message["call"])

    def do_profile(self, message: dict[str, Any]) -> dict[str, Any]:
        return self._ready().profile([self._sets[i] for i in message["sets"]])

    def do_integrity(self, message: dict[str, Any]) -> dict[str, Any]:
        """What of torch, triton and the service itself was replaced since the candidate came."""
        return {"patched": self._watch.patched()}

    def _ready(self) -> Runner:
        if self._runner is None:
            raise RuntimeError("asked to run before a candidate was loaded")
        return self._runner


def _failed(failure: Failure) -> dict[str, Any]:
    return {"failure": failure.model_dump(mode="json")}
