"""The judge's handle on a replaying process: weights and inputs go in, outputs return in the
judge's own memory.

A malformed answer, a death or a hang of the process becomes a Failure, raised as Failed; the
process is then replaced, and the next `open` works.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ConfigDict, ValidationError

from kernelwright.closing_context import ClosingContext
from kernelwright.tools.comparing.comparison import Described
from kernelwright.tools.references.shared_tensors import SharedTensor
from kernelwright.tools.replaying.interpreter.needs_gpu import NeedsGpu
from kernelwright.tools.replaying.messages import (
    cap_failure,
    failure_of_death,
    failure_of_forgery,
    kernels_to_send,
    seconds_of,
    trace_as_text,
)
from kernelwright.tools.report import Failed, Failure, Fault, InfrastructureError, Value, clean_text
from kernelwright.tools.sandbox import BadMessage, Process, ProcessDied, ProcessTimedOut, Zygote
from kernelwright.tools.sandbox.run_queue import RemainingSeconds
from kernelwright.tools.trace.trace import Json, Traced

SERVICE_ENTRY = "kernelwright.tools.replaying.service:serve"
MAX_MAPPED_ALLOCATIONS = 64
"""Maximum number of the judge's allocations mapped in a process; the least recently used are
unmapped first."""
LETTING_GO_SECONDS = 5.0
"""Time limit, in seconds, for unmapping the judge's memory before the process is killed."""
MAX_SENT_IMAGES = 256
"""Maximum number of binaries cached in a process; all are dropped when another would exceed this.
"""
ONE_BY_ONE_SECONDS = 30.0
"""Time limit, in seconds, of a replay that searches for the step which destroyed the GPU's context.
"""


class Alias(Value):
    """Memory shared by an output: position of an argument of forward, or name of a weight."""

    input: int | None = None
    state: str | None = None


class Watched(Value):
    """Observations of a watched call beside its kernels (tools/replaying/watching.py)."""

    operations: int = 0
    """Floating-point operations of torch operators."""
    truncations: dict[str, int] = {}
    """Operators that converted values to integers, powers of two or booleans with a loss."""
    rearranged: dict[str, int] = {}
    """Operators that changed the layout of values."""
    converted: dict[str, int] = {}
    """Operators that changed the dtype of values."""
    changed_inputs: tuple[int, ...] = ()
    """Positions of arguments that were written."""
    changed_state: tuple[str, ...] = ()
    """Names of the judge's weights and buffers that were written."""
    writes_lasting_state: bool = False
    """A launch wrote to a tensor that later calls use."""
    launches: int = 0
    copies: int = 0
    """Launches that only copied."""
    unread: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    """Positions of arguments not read completely, with ranges of unread elements; empty on a GPU,
    where loads are not observed."""


class Reply(Value):
    """Answer to a call. The outputs themselves lie in the judge's tensors."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outputs: tuple[Described, ...]
    """The first 64 outputs, flattened."""
    aliases: tuple[Alias | None, ...]
    """Shared memory of each output."""
    count: int
    """Number of all outputs."""
    shared: tuple[int | None, ...] = ()
    """For each described output, the first earlier output with the same memory."""
    copied: tuple[bool, ...]
    """For each of the judge's tensors: the output had its shape and dtype and was copied."""
    written_outside: str = ""
    """Description of writes outside of tensors, if they did not end the call; empty without any."""
    read_outside: str = ""
    """Description of reads outside of tensors, which return poison."""
    undecided: str = ""  # what a GPU may do otherwise, and an interpreter cannot decide
    watched: Watched | None = None
    """Observations of a watched call."""


class _ContextDied(Exception):
    """Raised if a kernel destroyed the GPU's context, and with it the process."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Exchange(NamedTuple):
    """A message that may have to be repeated."""

    message: dict[str, Any]
    shared: Sequence[SharedTensor]
    doing: str


class Replayer(ClosingContext):
    """Handle on a process taken from a zygote, replaced after failures; serves any number of
    candidates.

    A context manager, for use by a single thread.
    """

    def __init__(self, device: str, zygote: Zygote) -> None:
        """device: cpu or cuda:0, as seen by the zygote's processes."""
        self.device = device
        self._zygote = zygote
        self._process: Process | None = None
        self._mapped: OrderedDict[str, None] = OrderedDict()
        self._pinned: list[str] = []
        """Allocations of the bound weights."""
        self._sent: set[str] = set()
        """Names of binaries cached in the process."""
        self._opening: _Exchange | None = None
        self._calls: list[_Exchange] = []
        """On a GPU: the opening of the current trace and its last call; before a later call also
        the first."""
        self._on_gpu, self._one_by_one = device != "cpu", False
        self._time: RemainingSeconds | None = None
        self._budget = 0.0
        self.answered = 0
        """Number of answered exchanges."""
        self.allowance = 0.0
        """Time limit, in seconds, of all replays of the candidate, for messages."""
        self.spent = 0.0
        """Seconds spent in answered exchanges, without time in which no processor was available."""
        self.is_open = False
        """A trace is open; False after the process was killed for a call that took too long."""
        self._prepares = False
        self._seed = 0

    # ------------------------------------------------------------------ a trace
    def open(
        self, traced: Traced, index: int, state: Mapping[str, SharedTensor], *, seed: int, seconds: float,
        binaries: Mapping[str, Any] | None = None
    ) -> None:  # fmt: skip
        """Rebuilds or loads the kernels of trace `index`, binds the weights by their names, and
        runs the set-up.

        seconds: time limit for this and all calls until the next `open`. Raises Failed; NeedsGpu
        for a kernel that cannot be interpreted; InfrastructureError.
        """
        trace = traced.traces[index]
        if trace is None:
            raise ValueError(f"there is no trace {index}")
        self.is_open = False
        self._seed = seed
        self._start()
        self._allow(seconds)
        message = {
            "traced": trace_as_text(traced, trace),
            "seed": seed,
            "state": {n: s.spec for n, s in state.items()},
        }
        if binaries is not None:
            message["binaries"], message["images"] = kernels_to_send(traced, trace, binaries)
        self._pinned = []
        self._calls = []
        exchange = _Exchange({"do": "open", **message}, list(state.values()), "prepare the model")
        self._opening = exchange if self._on_gpu else None
        reply = self._exchange(*exchange)
        self._pinned = list({_name(shared): None for shared in state.values()})
        self.is_open = True
        self._prepares = bool(reply.get("prepares"))

    def set_up(self) -> float:
        """Runs the set-up again after a change of weights; returns its seconds, 0 if calls do not
        need it. Raises Failed."""
        self._check_open()
        if not self._prepares:
            return 0.0
        return seconds_of(self._exchange({"do": "prepare"}, (), "prepare the model"))

    def call(
        self,
        inputs: Json,
        shared: Sequence[SharedTensor],
        targets: Sequence[SharedTensor],
        *,
        call_name: str = "first",
        poison: int = 0xFF,
        shuffle: int = 0,
        choices: int = 0,
        launches: bool = True,
        seed: int | None = None,
        watch: bool = False,
    ) -> Reply:
        """Runs a call of forward.

        inputs: the arguments in the format of tools/wire.py, with the specs of `shared` for
        tensors. shared: the memory of these tensors. targets: memory of the reference's outputs, in
        order. call_name: first or later; a trace without later calls has first calls only. poison:
        byte in uninitialised memory. shuffle: seed of the order of programs, on a CPU. choices:
        alternative of autotuned launches. launches: False skips all launches. seed: that of the
        host code's random draws; None: that of `open`. Raises Failed, NeedsGpu,
        InfrastructureError.
        """
        self._check_open()
        message = {
            "do": "call", "inputs": inputs, "places": [p.spec for p in targets], "which": call_name, "poison": poison,
            "shuffle": shuffle,
            "choices": choices, "launches": launches, "seed": self._seed if seed is None else seed, "watch": watch,
        }  # fmt: skip
        exchange = _Exchange(message, [*shared, *targets], "run forward")
        if self._on_gpu:
            self._calls = [*self._calls[:1], exchange] if call_name == "later" else [exchange]
        reply = self._exchange(*exchange)
        try:
            answer = Reply.model_validate({k: reply[k] for k in Reply.model_fields if k in reply})
        except (KeyError, ValidationError) as error:
            raise self._over(
                failure_of_forgery(f"an answer has not the form of one: {type(error).__name__}")
            ) from error
        if len(answer.aliases) != len(answer.outputs) or len(answer.copied) > len(targets):
            raise self._over(failure_of_forgery("an answer has not the form of one"))
        return answer

    def ask(
        self, message: dict[str, Any], *, seconds: float, shared: Sequence[SharedTensor] = ()
    ) -> dict[str, Any]:
        """Sends a message about the open trace, with a time limit of its own. Raises Failed and
        InfrastructureError."""
        self._check_open()
        allowed = self._time, self._budget
        self._allow(seconds)
        try:
            return self._exchange(message, shared, str(message["do"]).replace("_", " "))
        finally:
            self._time, self._budget = allowed

    def forget(self) -> None:
        """Unmaps all memory of the judge in the process, so that it can be freed, and closes the
        trace.

        On a GPU the process is kept: another would have to create a context and load torch's
        kernels again.
        """
        if self._process is not None and not (self._on_gpu and self._lets_go()):
            self._end()

    def _lets_go(self) -> bool:
        """Unmaps the judge's memory; returns True if the process is alive and has none of it
        mapped."""
        self._allow(LETTING_GO_SECONDS)
        self.is_open = False
        self._opening = None
        self._calls = []
        try:
            still_mapped = self._exchange({"do": "let_go"}, (), "unmap the judge's memory").get(
                "mapped"
            )
        except Failed:
            return False
        self._mapped.clear()
        self._pinned = []
        return still_mapped == 0 and self._process is not None

    def unmap(self, names: Sequence[str]) -> list[str]:
        """Unmaps unused allocations of the judge in the process; returns the names of those unmapped.

        The trace stays open. A process that does not answer is ended.
        """
        if self._process is None:
            return [*names]
        allowed = self._time, self._budget
        self._allow(LETTING_GO_SECONDS)
        try:
            answer = self._exchange({"do": "unmap", "names": [*names]}, (), "unmap memory")
        except Failed:
            self._end()
            return [*names]
        finally:
            self._time, self._budget = allowed
        for name in names:  # a name still mapped is sent again before its next use
            self._mapped.pop(name, None)
        self._pinned = [name for name in self._pinned if name not in names]
        still_mapped = answer.get("mapped")
        if not isinstance(still_mapped, list):
            still_mapped = names
        return [name for name in names if name not in still_mapped]

    def close(self) -> None:
        """Ends the process. May be called twice."""
        self._end()

    @property
    def process(self) -> Process | None:
        """The current process, for its isolation and output."""
        return self._process

    def _check_open(self) -> None:
        if not self.is_open:
            raise InfrastructureError("no trace is open in the replayer: open one first")

    def _start(self) -> None:
        if self._process is None:
            self._process = self._zygote.start(SERVICE_ENTRY, {"device": self.device})
            self._mapped.clear()
            self._sent.clear()

    def _allow(self, seconds: float) -> None:
        """Sets the time limit of all following exchanges."""
        assert self._process is not None
        self._time, self._budget = (
            RemainingSeconds(self._process, seconds, waited_before=self._process.waited()),
            seconds,
        )

    def _end(self) -> None:
        process, self._process, self.is_open = self._process, None, False
        if process is not None:
            process.kill()

    def _over(self, failure: Failure) -> Failed:
        """Ends a process that is no longer usable, and returns the failure to raise."""
        self._end()
        return Failed(failure)

    def _exchange(
        self, message: dict[str, Any], shared: Iterable[SharedTensor], doing: str
    ) -> dict[str, Any]:
        """Sends a message and returns its answer. Raises Failed and NeedsGpu."""
        process = self._process
        allowed = self._time
        assert process is not None
        assert allowed is not None
        nonce = os.urandom(12).hex()
        blocks, forgotten, descriptors = self._allocations_for(shared)
        whole = {
            "nonce": nonce,
            "blocks": blocks,
            "forget": forgotten,
            **message,
            **self._new_images(message),
        }
        before = allowed.remaining
        try:
            process.send(whole, descriptors)
            reply = allowed.receive()
            self.spent += max(before - allowed.remaining, 0.0)
            self.answered += 1
        except ProcessDied as death:
            raise self._over(failure_of_death(death, process, doing)) from death
        except ProcessTimedOut as error:
            self.spent += max(before, 0.0)
            budget = (
                f" (of {self.allowance:g} s for all replays)"
                if self._budget < self.allowance
                else ""
            )
            message_text = (
                f"no answer within {self._budget:.3g} s{budget} while the judge asked to {doing}: an endless loop, or "
                "far too slow"
            )
            raise self._over(Failure(fault=Fault.TIMEOUT, message=message_text)) from error
        except (BadMessage, ValueError) as error:
            raise self._over(
                failure_of_forgery(
                    f"the channel carried something that is no message: {type(error).__name__}"
                )
            ) from error
        if reply.get("nonce") != nonce:
            raise self._over(
                failure_of_forgery("a message on the channel does not answer what was asked")
            )
        try:
            return self._read(reply)
        except Failed:
            for name in blocks:  # which may not have been mapped
                self._mapped.pop(name, None)
            self._sent.difference_update(message.get("images", ()))
            raise
        except _ContextDied as death:
            self._end()
            raise Failed(self._step_named(death.failure)) from death

    def _new_images(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the message's binaries that the process does not have."""
        images = message.get("images", {})
        new = {name: image for name, image in images.items() if name not in self._sent}
        if not new or len(self._sent) + len(new) <= MAX_SENT_IMAGES:
            self._sent.update(new)
            return {"images": new} if images else {}
        self._sent = set(images)
        return {"images": images, "forget_images": True}

    def _step_named(self, failure: Failure) -> Failure:
        """Returns the failure of a GPU's context with the responsible step.

        A new process repeats the last call, and waits for the device after each step. Returns the
        failure unchanged if the repetition ends differently.
        """
        if self._one_by_one or self._opening is None or failure.fault is Fault.TIMEOUT:
            return failure
        allowed, self._one_by_one = (self._time, self._budget), True
        try:
            self._start()
            self._allow(ONE_BY_ONE_SECONDS)
            for message, shared, doing in (self._opening, *self._calls):
                self._exchange({**message, "one_by_one": True, "watch": False}, shared, doing)
        except Failed as repeated:
            return repeated.failure if repeated.failure.fault is failure.fault else failure
        except (NeedsGpu, InfrastructureError):
            return failure
        finally:
            self._end()
            (self._time, self._budget), self._one_by_one = allowed, False
        return failure.with_(message=f"{failure.message}; not when each step was waited for")

    def _read(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Returns the answer. Raises Failed, NeedsGpu and _ContextDied."""
        if "needs_gpu" in reply:
            raise NeedsGpu(clean_text(reply["needs_gpu"], 200).replace("\n", " "))
        if "failure" not in reply:
            return reply
        try:
            failure = cap_failure(Failure.model_validate(reply["failure"]))
        except ValidationError as error:
            raise self._over(
                failure_of_forgery("an answer has not the form of one: ValidationError")
            ) from error
        raise _ContextDied(failure) if reply.get("dead") else Failed(failure)

    def _allocations_for(
        self, shared: Iterable[SharedTensor]
    ) -> tuple[list[str], list[str], list[int]]:
        """Returns names of allocations to map, names of those to unmap, and descriptors of the
        former on a CPU."""
        needed: OrderedDict[str, SharedTensor] = OrderedDict()
        for tensor in shared:
            needed.setdefault(_name(tensor), tensor)
        new = [name for name in needed if name not in self._mapped]
        for name in (*self._pinned, *needed):
            self._mapped[name] = None
            self._mapped.move_to_end(name)
        most = max(MAX_MAPPED_ALLOCATIONS, len(needed) + len(self._pinned))
        forgotten = list(self._mapped)[: max(len(self._mapped) - most, 0)]
        for name in forgotten:
            del self._mapped[name]
        return new, forgotten, [fd for name in new for fd in needed[name].fds]


def _name(shared: SharedTensor) -> str:
    """Returns the name of a tensor's allocation, for both sides: an IPC handle, or the inode number
    of a memfd.

    An inode number is unique while the memfd is mapped anywhere.
    """
    if "ipc" in shared.spec:
        return str(shared.spec["ipc"])
    shared.spec["block"] = str(os.fstat(shared.fds[0]).st_ino)
    return str(shared.spec["block"])
