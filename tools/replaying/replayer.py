"""The judge's handle on a process that replays traces: weights and inputs go in, outputs come back in the judge's own
memory.

Whatever happens over there, a malformed answer, a death, a hang, becomes a Failure, raised as Failed; the process is
then replaced, and the next `open` works.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import ConfigDict, ValidationError

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
"""Allocations of the judge that a process keeps mapped; the ones used longest ago are unmapped first."""
LETTING_GO_SECONDS = 5.0
"""Seconds that the process is given to unmap the judge's memory, before it is ended."""
MAX_SENT_IMAGES = 256
"""Binaries that a process keeps; it lets go of all of them before it is sent another."""
ONE_BY_ONE_SECONDS = 30.0
"""Seconds for a replay that looks for the step which has ended the GPU's context."""


class Alias(Value):
    """What an output shares memory with: the position of an argument of forward, or the name of a weight."""

    input: int | None = None
    state: str | None = None


class Watched(Value):
    """What a watched call did beside its kernels (tools/replaying/watching.py)."""

    operations: int = 0
    """Floating-point operations of torch's operators."""
    truncations: dict[str, int] = {}
    """Operators that turned values into whole numbers, powers of two or truths which hold less of them."""
    rearranged: dict[str, int] = {}
    """Operators that laid values out anew."""
    converted: dict[str, int] = {}
    """Operators that gave values another type."""
    changed_inputs: tuple[int, ...] = ()
    """Positions of arguments that were written to."""
    changed_state: tuple[str, ...] = ()
    """Names of the judge's weights and buffers that were written to."""
    writes_what_is_kept: bool = False
    """Whether a launch wrote to what later calls go on with."""
    launches: int = 0
    copies: int = 0
    """Launches that did nothing but copy."""
    unread: tuple[tuple[int, tuple[tuple[int, int], ...]], ...] = ()
    """Positions of arguments that were not read completely, with ranges of their elements; empty on a GPU, where no
    load is seen.
    """


class Reply(Value):
    """What one call gave back. The outputs themselves lie in the places."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outputs: tuple[Described, ...]
    """Flattened; the first 64 of them."""
    aliases: tuple[Alias | None, ...]
    """One an output."""
    count: int
    """The number of all outputs."""
    shared: tuple[int | None, ...] = ()
    """For each output that is described, the first one before it whose memory it shares."""
    copied: tuple[bool, ...]
    """One for each place: whether the output had its shape and dtype and was copied there."""
    written_outside: str = ""
    """What was written beside a tensor, where that did not end the call; empty where nothing was."""
    read_outside: str = ""
    """What was read beside a tensor. It found poison."""
    undecided: str = ""  # what a GPU may do otherwise, and an interpreter cannot decide
    watched: Watched | None = None
    """What was seen of a call that was watched."""


class _ContextDied(Exception):
    """A kernel has ended the GPU's context, and with it the process."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class _Exchange(NamedTuple):
    """A message that may be sent once more."""

    message: dict[str, Any]
    shared: Sequence[SharedTensor]
    doing: str


class Replayer:
    """One process at a time, taken from a zygote, over any number of candidates. A context manager. For one thread."""

    def __init__(self, device: str, zygote: Zygote) -> None:
        """device: cpu or cuda:0, as the zygote's processes see it."""
        self.device, self._zygote = device, zygote
        self._process: Process | None = None
        self._mapped: OrderedDict[str, None] = OrderedDict()
        self._pinned: list[str] = []
        """Allocations of the weights that are bound."""
        self._sent: set[str] = set()
        """Names of the binaries that the process keeps."""
        self._opening: _Exchange | None = None
        self._calls: list[_Exchange] = []
        """On a GPU, what the trace that is open was opened with, and its last call; before a later call the first."""
        self._on_gpu, self._one_by_one = device != "cpu", False
        self._time: RemainingSeconds | None = None
        self._budget = 0.0
        self.answered = 0
        """Exchanges that ended with an answer."""
        self.allowance = 0.0
        """Seconds that all replays of the candidate may take, for the message of a time limit."""
        self.spent = 0.0
        """Seconds that answers have taken since it was made, without those in which no processor was there."""
        self.is_open = False
        """Whether a trace is open: none is after its process was ended for a call that took too long."""
        self._prepares = False
        self._seed = 0

    # ------------------------------------------------------------------ a trace
    def open(
        self, traced: Traced, index: int, state: Mapping[str, SharedTensor], *, seed: int, seconds: float,
        binaries: Mapping[str, Any] | None = None
    ) -> None:  # fmt: skip
        """Rebuilds or loads the kernels of trace `index`, binds the weights by their names in the trace, and runs the
        set-up.

        seconds: for this and all calls until the next `open`. Raises Failed; NeedsGpu where a kernel cannot be
        interpreted; InfrastructureError.
        """
        trace = traced.traces[index]
        if trace is None:
            raise ValueError(f"there is no trace {index}")
        self.is_open, self._seed = False, seed
        self._start()
        self._allow(seconds)
        message = {
            "traced": trace_as_text(traced, trace),
            "seed": seed,
            "state": {n: s.spec for n, s in state.items()},
        }
        if binaries is not None:
            message["binaries"], message["images"] = kernels_to_send(traced, trace, binaries)
        self._pinned, self._calls = [], []
        exchange = _Exchange({"do": "open", **message}, list(state.values()), "prepare the model")
        self._opening = exchange if self._on_gpu else None
        reply = self._asked(*exchange)
        self._pinned = list({_name(shared): None for shared in state.values()})
        self.is_open = True
        self._prepares = bool(reply.get("prepares"))

    def set_up(self) -> float:
        """Runs the set-up again, after the judge has changed the weights; gives its seconds, 0 where the calls need
        nothing of it. Raises Failed.
        """
        self._check_open()
        if not self._prepares:
            return 0.0
        return seconds_of(self._asked({"do": "prepare"}, (), "prepare the model"))

    def call(
        self, inputs: Json, shared: Sequence[SharedTensor], places: Sequence[SharedTensor], *, call_name: str = "first",
        poison: int = 0xFF, shuffle: int = 0,
        choices: int = 0, launches: bool = True, seed: int | None = None, watch: bool = False,
    ) -> Reply:  # fmt: skip
        """One call of forward.

        inputs: the arguments as tools/wire.py describes them, with the specs of `shared` for tensors. shared: the
        memory of these tensors. places: memory of the reference's outputs, in order. call_name: first or later; if
        the trace has no later calls, all are first calls. poison: the byte in memory that nobody has set. shuffle: seed
        of the order of programs, on a CPU. choices: the alternative of autotuned launches. launches: False leaves all
        launches out. seed: of what the host code draws by torch; that of `open` where None. Raises Failed, NeedsGpu,
        InfrastructureError.
        """
        self._check_open()
        message = {
            "do": "call", "inputs": inputs, "places": [p.spec for p in places], "which": call_name, "poison": poison,
            "shuffle": shuffle,
            "choices": choices, "launches": launches, "seed": self._seed if seed is None else seed, "watch": watch,
        }  # fmt: skip
        exchange = _Exchange(message, [*shared, *places], "run forward")
        if self._on_gpu:
            self._calls = [*self._calls[:1], exchange] if call_name == "later" else [exchange]
        reply = self._asked(*exchange)
        try:
            told = Reply.model_validate({k: reply[k] for k in Reply.model_fields if k in reply})
        except (KeyError, ValidationError) as error:
            raise self._over(
                failure_of_forgery(f"an answer has not the form of one: {type(error).__name__}")
            ) from error
        if len(told.aliases) != len(told.outputs) or len(told.copied) > len(places):
            raise self._over(failure_of_forgery("an answer has not the form of one"))
        return told

    def ask(
        self, message: dict[str, Any], *, seconds: float, shared: Sequence[SharedTensor] = ()
    ) -> dict[str, Any]:
        """One exchange about the trace that is open. The deadline of `open` does not count. Raises Failed and
        InfrastructureError.
        """
        self._check_open()
        allowed = self._time, self._budget
        self._allow(seconds)
        try:
            return self._asked(message, shared, str(message["do"]).replace("_", " "))
        finally:
            self._time, self._budget = allowed

    def forget(self) -> None:
        """Has the process unmap all memory of the judge, which may then be given back to the system. The trace is
        closed. On a GPU the process goes on: another one would need a context, and load torch's kernels anew.
        """
        if self._process is not None and not (self._on_gpu and self._lets_go()):
            self._end()

    def _lets_go(self) -> bool:
        """Whether the process is alive and has nothing of the judge's memory mapped any more."""
        self._allow(LETTING_GO_SECONDS)
        self.is_open, self._opening, self._calls = False, None, []
        try:
            left = self._asked({"do": "let_go"}, (), "unmap the judge's memory").get("mapped")
        except Failed:
            return False
        self._mapped.clear()
        self._pinned = []
        return left == 0 and self._process is not None

    def unmap(self, names: Sequence[str]) -> list[str]:
        """Has the process unmap allocations of the judge in which none of its tensors lies, and returns the names of
        those that it has not mapped any more. The trace stays open. A process that does not answer is ended.
        """
        if self._process is None:
            return [*names]
        allowed = self._time, self._budget
        self._allow(LETTING_GO_SECONDS)
        try:
            left = self._asked({"do": "unmap", "names": [*names]}, (), "unmap memory").get("mapped")
        except Failed:
            self._end()
            return [*names]
        finally:
            self._time, self._budget = allowed
        for name in names:  # one that is still mapped is named again before it is used again
            self._mapped.pop(name, None)
        return [name for name in names if name not in (left if isinstance(left, list) else names)]

    def close(self) -> None:
        """Ends the process. Safe to call twice."""
        self._end()

    def __enter__(self) -> Replayer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def process(self) -> Process | None:
        """The process that is in use, for its isolation and what it printed."""
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
        """Sets the time limit for all that is asked from now on."""
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
        """The process is of no more use."""
        self._end()
        return Failed(failure)

    def _asked(
        self, message: dict[str, Any], shared: Iterable[SharedTensor], doing: str
    ) -> dict[str, Any]:
        """Sends a message and gives what answers it. Raises Failed and NeedsGpu."""
        process, allowed = self._process, self._time
        assert process is not None
        assert allowed is not None
        nonce = os.urandom(12).hex()
        blocks, forgotten, descriptors = self._lent(shared)
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
            told = (
                f"no answer within {self._budget:.3g} s{budget} while the judge asked to {doing}: an endless loop, or "
                "far too slow"
            )
            raise self._over(Failure(fault=Fault.TIMEOUT, message=told)) from error
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
        """Of the binaries that a message comes with, those that the process does not have."""
        images = message.get("images", {})
        new = {name: image for name, image in images.items() if name not in self._sent}
        if not new or len(self._sent) + len(new) <= MAX_SENT_IMAGES:
            self._sent.update(new)
            return {"images": new} if images else {}
        self._sent = set(images)
        return {"images": images, "forget_images": True}

    def _step_named(self, failure: Failure) -> Failure:
        """The failure of a GPU's context, with the step that did it: a fresh process repeats the last call and waits
        for the device after every step. As it was where that ends otherwise.
        """
        if self._one_by_one or self._opening is None or failure.fault is Fault.TIMEOUT:
            return failure
        allowed, self._one_by_one = (self._time, self._budget), True
        try:
            self._start()
            self._allow(ONE_BY_ONE_SECONDS)
            for message, shared, doing in (self._opening, *self._calls):
                self._asked({**message, "one_by_one": True, "watch": False}, shared, doing)
        except Failed as again:
            return again.failure if again.failure.fault is failure.fault else failure
        except (NeedsGpu, InfrastructureError):
            return failure
        finally:
            self._end()
            (self._time, self._budget), self._one_by_one = allowed, False
        return failure.with_(message=f"{failure.message}; not when each step was waited for")

    def _read(self, reply: dict[str, Any]) -> dict[str, Any]:
        """Raises Failed, NeedsGpu and _ContextDied."""
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

    def _lent(self, shared: Iterable[SharedTensor]) -> tuple[list[str], list[str], list[int]]:
        """Names of allocations that the process has not mapped yet, names that it may unmap, and the descriptors of the
        former on a CPU.
        """
        needed: OrderedDict[str, SharedTensor] = OrderedDict()
        for one in shared:
            needed.setdefault(_name(one), one)
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
    """Returns the name of the allocation that a tensor lies in, for both sides: an IPC handle, or the number of a
    memfd, which no other has while it is mapped anywhere.
    """
    if "ipc" in shared.spec:
        return str(shared.spec["ipc"])
    shared.spec["block"] = str(os.fstat(shared.fds[0]).st_ino)
    return str(shared.spec["block"])
