"""The process that replays traces, for successive candidates: trusted code that runs hostile
kernels in a sandbox.

Receives a message at a time, and answers each with its nonce: `open` (a trace and the judge's
weights), `locate` (weights by their values), `prepare` (the set-up again), `call` (inputs, and
tensors for the outputs), `clock_...` (tools/replaying/gpu/timing.py), `unmap` (some of the judge's
memory), `let_go` (of the trace and of all of that memory), `stop`. Memory is the judge's; the
process has no expected output.
"""

from __future__ import annotations

import base64
import contextlib
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from kernelwright.tools import wire
from kernelwright.tools.comparing.comparison import describe
from kernelwright.tools.nested import take_apart, tensors_of
from kernelwright.tools.numerics.bits import same_bits
from kernelwright.tools.replaying.explanation import failure_of
from kernelwright.tools.replaying.gpu.one_by_one import OneByOne, count_launches
from kernelwright.tools.replaying.interpreter import guarded_memory
from kernelwright.tools.replaying.interpreter.comparisons.constant_results import observation
from kernelwright.tools.replaying.interpreter.comparisons.messages import (
    told_comparisons,
    told_results,
)
from kernelwright.tools.replaying.interpreter.comparisons.outcomes import outcomes
from kernelwright.tools.replaying.interpreter.extents import ReadElements
from kernelwright.tools.replaying.interpreter.needs_gpu import NotInterpreted
from kernelwright.tools.replaying.kept_memory import as_if_called_again, mixture, restore
from kernelwright.tools.replaying.mapped_memory import Mapped
from kernelwright.tools.replaying.replay import Replay
from kernelwright.tools.replaying.steps import Call
from kernelwright.tools.replaying.watching import Watch
from kernelwright.tools.report import Failure
from kernelwright.tools.sandbox.channel import Channel
from kernelwright.tools.tensor_memory import has_memory, storage_of
from kernelwright.tools.trace.forms_of_outputs import shared_memory
from kernelwright.tools.trace.trace import MAX_OUTPUTS, Launch, Traced

Message = dict[str, Any]


class ReplayDevice(Protocol):
    """Device-specific part of a replaying process: `OnCpu` or `OnGpu`."""

    def open(self, traced: Traced, binaries: Mapping[str, Any]) -> None:
        """Prepares the kernels of a trace for launches, after unloading those of the previous
        trace."""

    def close(self) -> None:
        """Unloads the kernels and releases all resources."""

    def stopwatch(self, replay: Replay, traced: Traced) -> Any:
        """Returns the clock of the open trace."""

    def call_of_setup(self) -> Call:
        """Returns the call that runs the preparation."""

    def prepared(self) -> None:
        """Marks the end of the preparation: its tensors stay."""

    def call(self, replay: Replay, call_name: str, *, poison: int, shuffle: int) -> Call:
        """Returns the call that runs forward."""

    def called(self, replay: Replay, call_name: str) -> None:
        """Marks the end of a call: its memory may be freed."""

    def finish(self, activity: str = "a kernel") -> None:
        """Waits for the device. Raises a kernel's error, with the activity as its cause."""

    def noted(self) -> dict[str, Any]:
        """Returns reads and writes outside of tensors."""

    def explained(self, error: BaseException, failure: Failure) -> tuple[Failure, bool]:
        """Returns the failure as known on this device, and whether the process is no longer usable."""


def serve(channel: Channel, payload: Message) -> None:
    """Serves the judge until "stop", or until a kernel has destroyed the GPU's context.

    payload: {"device": "cpu" or "cuda:0"}.
    """
    device = str(payload["device"])
    machine: ReplayDevice
    if device == "cpu":
        from kernelwright.tools.replaying.interpreter.process import OnCpu

        machine = OnCpu()
    else:
        from kernelwright.tools.replaying.gpu.process import OnGpu

        machine = OnGpu(device)
    Service(channel, device, machine).answer()


class Service:
    """State of a replaying process, and its answers."""

    def __init__(self, channel: Channel, device: str, machine: ReplayDevice) -> None:
        self._channel = channel
        self._device = device
        self._machine = machine
        self._mapped = Mapped()
        self._traced = Traced()
        self._replay: Replay | None = None
        self._call: Call | None = None
        self._stopwatch: Any = None
        self._images: dict[str, bytes] = {}
        """Binaries by name."""
        self._noted: list[list[Any]] = []
        """Contents of the candidate's own memory at the last two notes."""
        self._left_by_launches: set[int] = set()
        """Addresses of persistent storages that launches have written in watched calls."""

    def answer(self) -> None:
        """Answers messages until "stop", or until an answer reports that the process is dead."""
        while True:
            message = self._channel.receive()
            if message["do"] == "stop":
                return
            reply = self._reply(message)
            self._channel.send({"nonce": message["nonce"], **reply})
            if reply.get("dead"):
                return

    def _reply(self, message: Message) -> Message:
        self._call = None
        try:
            self._mapped.forget(message.get("forget", ()))
            self._mapped.receive(message.get("blocks", ()), self._channel.take_descriptors())
            if message["do"].startswith("clock_"):
                return dict(self._clock().answer(message, self._sets))
            return dict(getattr(self, f"do_{message['do']}")(message))
        except NotInterpreted as missing:
            return {"needs_gpu": missing.reason}
        except BaseException as error:
            if isinstance(error, NotImplementedError) and self._launching():
                return {"needs_gpu": f"Triton's interpreter does not have it: {error}"}
            failure, dead = self._explained(error)
            return {"failure": failure.model_dump(mode="json"), "dead": dead}

    def _launching(self) -> bool:
        return self._call is not None and isinstance(self._call.step, Launch)

    def _explained(self, error: BaseException) -> tuple[Failure, bool]:
        step = self._call.step if self._call is not None else None
        failure = failure_of(error, step, self._traced.functions, Path.cwd())
        return self._machine.explained(error, failure)

    # ------------------------------------------------------------------ a trace
    def do_open(self, message: Message) -> Message:
        """Opens a trace with its weights, and runs its preparation. Returns the preparation's
        seconds."""
        self._replay = self._stopwatch = None
        self._noted = []
        self._traced = Traced.model_validate_json(message["traced"])
        trace = self._traced.traces[0]
        assert trace is not None
        state = {name: self._mapped.tensor(spec) for name, spec in message["state"].items()}
        self._replay = Replay(trace, state, self._device, message["seed"])
        self._machine.open(self._traced, self._with_images(message))
        around = (
            OneByOne(self._traced, "the set-up", self._machine.finish)
            if message.get("one_by_one")
            else None
        )
        return {"seconds": self._prepared(around), "prepares": bool(self._replay.preparation)}

    def _with_images(self, message: Message) -> dict[str, Any]:
        """Returns the message's kernels with their binaries, some of which came with earlier
        messages."""
        if message.get("forget_images"):
            self._images.clear()
        self._images |= {
            name: base64.b64decode(image) for name, image in message.get("images", {}).items()
        }
        images = {"": b"", **self._images}
        return {
            key: {
                **kernel,
                "binary": images[kernel["binary"]],
                "reversed": images[kernel["reversed"]],
            }
            for key, kernel in message.get("binaries", {}).items()
        }

    def do_prepare(self, message: Message) -> Message:
        """Runs the preparation of the open trace again. Returns its seconds."""
        return {"seconds": self._prepared()}

    def do_locate(self, message: Message) -> Message:
        """Returns the positions of weights' values in the tensors of the set-up. Closes the trace."""
        replay = self._opened()
        weights = {name: self._mapped.tensor(spec) for name, spec in message["weights"].items()}
        call = self._call = self._machine.call_of_setup()
        positions = replay.locate(weights, call)
        self._machine.finish()
        self._call = self._replay = None
        return {"positions": positions}

    def _prepared(self, around: OneByOne | None = None) -> float:
        began = time.perf_counter()
        self._left_by_launches = set()
        replay = self._opened()
        call = self._call = self._machine.call_of_setup()
        call.around = around
        replay.prepare(call)
        self._machine.finish()
        self._machine.prepared()
        return time.perf_counter() - began

    def _opened(self) -> Replay:
        if self._replay is None:
            raise RuntimeError("asked for a call before a trace was opened")
        return self._replay

    def do_let_go(self, message: Message) -> Message:
        """Closes the trace and unmaps the judge's memory. Returns the number of allocations still
        in use."""
        self._replay = self._stopwatch = None
        self._noted = []
        self._left_by_launches = set()
        self._machine.close()
        return {"mapped": self._mapped.forget_all()}

    def do_unmap(self, message: Message) -> Message:
        """Unmaps unused allocations of the judge; returns the names of those still mapped."""
        names = [str(name) for name in message["names"]]
        self._mapped.forget(names)
        return {"mapped": self._mapped.held(names)}

    def _clock(self) -> Any:
        """Returns the clock of the open trace (tools/replaying/gpu/timing.py)."""
        if self._stopwatch is None:
            self._stopwatch = self._machine.stopwatch(self._opened(), self._traced)
        return self._stopwatch

    def _sets(self, message: Message) -> list[list[Any]]:
        return [wire.restore(tree, self._mapped.tensor) for tree in message["sets"]]

    # ------------------------------------------------------------------ what is kept between calls
    def do_note_kept(self, message: Message) -> Message:
        """Notes what the candidate's own memory holds; tells whether there is any, whether it has changed since, and
        whether it has by numbers that a call may add to.
        """
        self._noted = [*self._noted[-1:], [t.clone() for t in self._opened().kept_tensors()]]
        before, now = self._noted[0], self._noted[-1]
        changed = not all(map(same_bits, before, now))
        moved = changed and bool(as_if_called_again(before, now, 1))
        return {"kept": bool(self._noted[-1]), "moved": moved, "changed": changed}

    def do_advance_kept(self, message: Message) -> Message:
        """Advances the candidate's own memory as if `times` more calls had changed it like the
        last."""
        if len(self._noted) == 2:
            before, now = self._noted
            for position, value in as_if_called_again(before, now, int(message["times"])).items():
                self._opened().kept_tensors()[position].copy_(value)
        return {}

    def do_mix_kept(self, message: Message) -> Message:
        """Puts back what the candidate's memory held when it was noted, a part of it as it was noted first and the rest
        as it was noted last; tells whether there is a part of this number.
        """
        number = int(message["part"])
        states = self._noted[::-1] if len(self._noted) == 2 else [[], []]
        mixed = mixture(states, number)
        restore(self._opened().kept_tensors(), mixed or ())
        return {"mixed": mixed is not None}

    # ------------------------------------------------------------------ comparisons
    def do_comparisons(self, message: Message) -> Message:
        """Returns the comparisons of loaded data in the kernels, and their outcomes.

        forget: "outcomes" resets all outcomes afterwards; "misses" keeps outcomes, and resets only
        the smallest distances between operands.
        """
        comparisons = told_comparisons(self._traced.functions)
        results = told_results(self._traced.functions)
        if message.get("forget") == "outcomes":
            outcomes.forget_outcomes()
            observation.forget_values()
        elif message.get("forget") == "misses":
            outcomes.begin_draw()
        return {"comparisons": comparisons, "results": results}

    # ------------------------------------------------------------------ a call
    def do_call(self, message: Message) -> Message:
        """Runs forward and copies its outputs to the judge's tensors.

        Returns the outputs' forms, shared memory, which were copied, and reads and writes outside
        of tensors.
        """
        replay = self._opened()
        inputs = wire.restore(message["inputs"], self._mapped.tensor)
        targets = [self._mapped.tensor(spec) for spec in message["places"]]
        call = self._call = self._machine.call(
            replay, message["which"], poison=message["poison"], shuffle=message["shuffle"]
        )
        call.choices, call.launches = message["choices"], message["launches"]
        if message.get("one_by_one"):
            of = count_launches(replay.steps(message["which"]), call.chosen)
            call.around = OneByOne(self._traced, str(of), self._machine.finish)
        left_by_first = replay.left_by_first if message["which"] == "first" else ()
        leaves, _ = take_apart(inputs)
        observation.active = all(map(is_finite, leaves))
        reads = ReadElements(leaves) if message.get("watch") and self._device == "cpu" else None
        watch = (
            Watch(leaves, replay.state, left_by_first, self._left_by_launches, reads)
            if message.get("watch")
            else None
        )
        if watch is not None:
            call.launch, call.memory = watch.launching(call.launch), watch.allocating(call.memory)
        replay.take_weights()
        with watch or contextlib.nullcontext(), guarded_memory.noting(reads):
            outputs = replay.run(message["which"], inputs, call, message["seed"])
        replay.give_weights()
        self._machine.finish()
        reply = self._described(outputs, leaves, replay.state)
        reply |= {"copied": copied(outputs, targets), **self._machine.noted()}
        if watch is not None:
            watch.ends_with(outputs)
            reply["watched"] = watch.as_message()
            lasting = set(map(storage_of, filter(has_memory, replay.kept_tensors())))
            self._left_by_launches = (self._left_by_launches | watch.written) & lasting
        del outputs, watch, call
        self._call = None  # it holds the memory of the call
        self._machine.called(replay, message["which"])
        return reply

    def _described(
        self, outputs: list[Any], inputs: Sequence[Any], state: Mapping[str, Any]
    ) -> Message:
        shown = outputs[:MAX_OUTPUTS]
        return {
            "outputs": [_described(output) for output in shown],
            "aliases": [alias(output, inputs, state) for output in shown],
            "count": len(outputs),
            "shared": shared_memory(shown),
        }


def _described(output: object) -> Message:
    """Returns a tensor's form, or the type of any other output: a trace holds such a value as
    {"other": type}."""
    if isinstance(output, dict) and len(output) == 1:
        [(tag, body)] = output.items()
        return {
            "type": {"other": str(body)[:80], "float": "float", "dtype": "dtype"}.get(tag, "object")
        }
    return describe(output).model_dump(mode="json")


def is_finite(value: Any) -> bool:
    """Returns True if an input has neither infinities nor NaN."""
    import torch

    is_float = isinstance(value, torch.Tensor) and value.dtype.to_real().is_floating_point
    if not is_float:
        return True
    return bool((value.float() if value.itemsize == 1 else value).isfinite().all())


def copied(outputs: Sequence[Any], targets: Sequence[Any]) -> list[bool]:
    """Copies each output tensor to its target if shape and dtype agree; returns which were copied."""
    import torch

    done = []
    tensors = [output for output in outputs if isinstance(output, torch.Tensor)]
    for output, target in zip(tensors, targets, strict=False):
        fits = output.shape == target.shape and output.dtype == target.dtype
        if fits and output.layout is torch.strided:
            target.copy_(output.detach())
        done.append(fits and output.layout is torch.strided)
    if any(target.is_cuda for target in targets):
        torch.cuda.synchronize()  # the judge, another process, reads them next
    return done


def alias(output: object, inputs: Sequence[Any], state: Mapping[str, Any]) -> Message | None:
    """Returns the input (position) or weight (name) with which an output shares memory."""
    import torch

    if (
        not isinstance(output, torch.Tensor)
        or output.layout is not torch.strided
        or not output.numel()
    ):
        return None
    storage = output.untyped_storage().data_ptr()
    for index, argument in enumerate(inputs):
        if any(
            t.numel() and t.untyped_storage().data_ptr() == storage for t in tensors_of(argument)
        ):
            return {"input": index}
    for name, tensor in state.items():
        if tensor.numel() and tensor.untyped_storage().data_ptr() == storage:
            return {"state": name}
    return None
