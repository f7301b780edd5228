"""Watches one program of a kernel while it is interpreted: every operation of the builder that depends on the
launch's arguments, on memory or on which program it is becomes a step; every number that Python reads out of such a
value becomes a decision.

Operands are told by identity. Whatever reads the contents of a value outside of an operation is seen (`data` of the
interpreter's handles is a property meanwhile): a single number is a decision that a replay has to meet again, anything
larger makes the kernel one that is not recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kernelwright.tools.replaying.interpreter.comparisons import data_dependence
from kernelwright.tools.replaying.interpreter.comparisons.recorded_steps import Step, noting
from kernelwright.tools.replaying.interpreter.recording import watched_language
from kernelwright.tools.replaying.interpreter.recording.language import (
    HandleSlot,
    Node,
    RecordedOperation,
    array,
    language,
    part,
    taking_arrays,
)
from kernelwright.tools.replaying.interpreter.recording.operations import is_pure
from kernelwright.tools.replaying.interpreter.recording.ways import Asked, handles_of, ways_of
from kernelwright.tools.replaying.interpreter.recording.whole_batches import BatchedOperation

Maker = Callable[[list[Any]], Any]
MAX_RECORDED_STEPS = 20_000
"""Steps of one path through a kernel, beyond which it is not recorded."""
MAX_PROGRAM_BYTES = 64 << 20
"""Bytes of all values of one program, at most."""
_PLAIN = (bool, int, float, complex, str, bytes)


class OtherSteps(BaseException):
    """A program took other steps than the record of an equal one."""


class Recorder:
    """Records one program. Given a path that was recorded and the values of a replay that left it, it repeats what was
    done from them, and then goes on.
    """

    def __init__(
        self,
        root: Node,
        inputs: Sequence[Any],
        path: Sequence[Node] = (),
        values: Sequence[Any] = (),
    ) -> None:
        """inputs: handles of the kernel's arguments. path: nodes of which every step has been done, but for those of
        the last beyond `stop`. values: of the replay.
        """
        self._lang = language()
        self._plain = (self._lang.handle, *_PLAIN, type(None))
        self.root = self._node = root
        self.recording, self.failed, self._watches = True, False, False
        self.busy = self.bytes = self._steps = 0
        """Operations that are being done, one inside the other."""
        self._ids: dict[int, int] = {}
        self._constants: dict[int, int] = {}
        self._alive: list[Any] = []
        self._decided: set[int] = set()
        self._count = len(inputs)
        self._pending = list(path)
        self._values = list(values)
        self._at = self._stop = 0
        self._first_new: tuple[Node, bytes] | None = None
        """The node behind which the first new one comes, and what was decided there."""
        for number, handle in enumerate(inputs):
            self._know(handle, number)
        if self._pending:
            self._node = self._pending.pop(0)
            self._count += len(self._node.fresh)

    def stop_at(self, step: int) -> None:
        """Notes that only so many steps of the path's last node have been done; nothing is recorded after them."""
        self._stop, self.recording = step, False

    # ------------------------------------------------------------------ what runs
    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, the kernel's function runs."""
        watched_language.watch(self)
        self._watches = True
        try:
            yield
        finally:
            self._look_away()
        if self.recording and not self.failed:
            self._node.ends()

    def _look_away(self) -> None:
        """From now on the program is interpreted as if there were no recorder."""
        if self._watches:
            self._watches = False
            watched_language.look_away()

    @property
    def bytes_at_once(self) -> int:
        """Bytes of the values that a program has at one time, at most."""
        return self._node.bytes_before + self._node.bytes

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """An operation that the kernel asks for."""
        if self.busy or self.failed:
            return self._done(function, arguments, named)
        used = self._used(arguments) or (bool(named) and self._used(named.values()))
        if not used and is_pure(name):
            return self._done(function, arguments, named)
        if self._repeats():
            return self._repeated(name)
        made = self._done(function, arguments, named)
        if self.recording and not self.failed:
            try:
                self._done(self._note, (name, function, arguments, named, made), {})
            except Exception:  # what cannot be written down is interpreted, program by program
                self.failed = True
        return made

    def _done(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        self.busy += 1
        try:
            return function(*arguments, **named)
        finally:
            self.busy -= 1

    def read(self, handle: Any, data: Any) -> None:
        """Python reads the contents of a value outside of every operation."""
        slot = self._ids.get(id(handle))
        if self.busy or self.failed or slot is None or slot in self._decided:
            return
        if data.size != 1:
            self._fail()
            return
        self._decided.add(slot)
        if not self._repeats_decision(slot) and self.recording:
            self._values = []
            self._node.decides_by(slot)
            self._begin_node(data.tobytes())

    def _begin_node(self, decided: bytes) -> None:
        before, self._at = self._node, 0
        before.children[decided] = self._node = Node()
        self._node.bytes_before = before.bytes_before + before.bytes
        if self._first_new is None:
            self._first_new = before, decided

    def take_back(self) -> bool:
        """Takes what was recorded out of the record again; whether the record has a beginning without it."""
        self.recording = False
        if self._first_new is None:
            return self.root.complete
        node, decided = self._first_new
        node.children.pop(decided, None)
        return True

    def _fail(self) -> None:
        if self._pending or self._at < self._end():
            raise OtherSteps
        self.failed = True

    # ------------------------------------------------------------------ what was done before
    def _end(self) -> int:
        """How many steps of this node have been done by the replay."""
        if not self._values:
            return 0
        return len(self._node.steps) if self._pending or self.recording else self._stop

    def _repeats(self) -> bool:
        if self._values and self._at < self._end():
            return True
        if self._pending:
            raise OtherSteps
        self._values = []
        if not self.recording:
            self._look_away()
        return False

    def _repeated(self, name: str) -> Any:
        step = self._node.steps[self._at]
        if step.name != name:
            raise OtherSteps
        self._at += 1
        while self._at < len(self._node.steps) and not self._node.steps[self._at].name:
            self._at += 1
        return self._restored(step.makes)

    def _restored(self, form: Any) -> Any:
        if isinstance(form, HandleSlot):
            handle = self._lang.handle(self._values[form.slot], form.dtype)
            handle.origin, handle.result = form.origin, form.result
            self._know(handle, form.slot)
            return handle if form.type is None else self._lang.tensor(handle, form.type)
        if isinstance(form, list | tuple):
            return type(form)(self._restored(one) for one in form)
        if isinstance(form, int):
            found = self._values[form]
            self._know(found, form)
            return found
        return None

    def _repeats_decision(self, slot: int) -> bool:
        """Whether the replay has met this decision and gone on behind it."""
        if not self._pending and not (self._values and self.recording):
            return False
        if self._at != len(self._node.steps) or self._node.decision != slot:
            raise OtherSteps
        if not self._pending:
            return False
        self._node, self._at = self._pending.pop(0), 0
        self._count += len(self._node.fresh)
        return True

    # ------------------------------------------------------------------ what is noted
    def _know(self, value: Any, slot: int) -> None:
        self._ids[id(value)] = slot
        self._alive.append(value)

    def _used(self, values: Iterable[Any]) -> bool:
        ids = self._ids
        return any(
            id(v) in ids or (type(v) not in self._plain and self._is_used(v)) for v in values
        )

    def _is_used(self, value: Any) -> bool:
        if isinstance(value, list | tuple):
            return self._used(value)
        return (
            id(getattr(value, "handle", value) if isinstance(value, self._lang.tensor) else value)
            in self._ids
        )

    def _slots(self, value: Any) -> Iterator[int]:
        """The numbers of all values in an argument that depend on the program."""
        if isinstance(value, list | tuple):
            for one in value:
                yield from self._slots(one)
        elif self._is_used(value):
            yield self._ids[id(value.handle if isinstance(value, self._lang.tensor) else value)]

    def _new(self, value: Any) -> int:
        self._node.fresh.append(value)
        self._count += 1
        return self._count - 1

    def _note(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        made: Any,
    ) -> None:
        self._steps += 1
        asked = Asked(name, function, arguments, named, made)
        handles = handles_of(asked)
        ways = ways_of(asked, handles, [id(h) in self._ids for h in handles])
        quick = ways.alone is not None
        operands = tuple(map(self._operand, handles)) if quick or ways.together is not None else ()
        run = ways.alone or taking_arrays(
            self._as_it_is(function, arguments, named), made, self._lang
        )
        step = noting(
            Step(name, arguments, named, made, run, ways.together, operands, quick), self._operand
        )
        run, operands = step.run, step.operands
        uses = operands if quick else (*operands, *self._slots((arguments, list(named.values()))))
        slot, before = self._new(None), self.bytes
        form = self._form(made, slot)
        if self.failed or self._steps > MAX_RECORDED_STEPS or self.bytes > MAX_PROGRAM_BYTES:
            self._fail()
            return
        batched = None if step.together is None else BatchedOperation(step.together, operands)
        asks = arguments[0] if arguments and type(arguments[0]) is int else None
        self._node.steps.append(
            RecordedOperation(
                name,
                run,
                operands if quick else None,
                form,
                slot,
                batched,
                asks,
                uses,
                self.bytes - before,
            )
        )
        if type(form) in (list, tuple):
            for number, one in enumerate(form):
                self._node.steps.append(
                    RecordedOperation("", part(number), (slot,), None, one.slot, uses=(slot,))
                )
        self._at = len(self._node.steps)

    def _form(self, made: Any, slot: int) -> Any:
        """What is to be made again of an operation's result, whose array is value number `slot`."""
        lang = self._lang
        if made is None:
            return None
        if isinstance(made, lang.handle | lang.tensor):
            handle = made.handle if isinstance(made, lang.tensor) else made
            self._know(handle, slot)
            self.bytes += array(handle).nbytes
            kind = made.type if isinstance(made, lang.tensor) else None
            origin, result = data_dependence.origin_of(handle), data_dependence.result_of(handle)
            return HandleSlot(slot, handle.dtype, kind, origin, result)
        if type(made) in (list, tuple) and all(
            isinstance(one, lang.handle | lang.tensor) for one in made
        ):
            return type(made)(self._form(one, self._new(None)) for one in made)
        if isinstance(made, (*_PLAIN, list, tuple)):
            self.failed = True  # a number that Python can decide by
        self._know(made, slot)
        return slot

    def _operand(self, handle: Any) -> int:
        slot = self._ids.get(id(handle), self._constants.get(id(handle)))
        if slot is None:
            slot = self._constants[id(handle)] = self._new(array(handle))
            self._alive.append(handle)
        return slot

    def _as_it_is(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Callable[[list[Any]], Any]:
        makers = [self._maker(a) for a in arguments]
        by_name = {key: self._maker(value) for key, value in named.items()}
        if not by_name:
            return lambda values: function(*[make(values) for make in makers])
        return lambda values: function(
            *[make(values) for make in makers],
            **{key: make(values) for key, make in by_name.items()},
        )

    def _maker(self, value: Any) -> Maker:
        """A function of all values that gives the argument."""
        lang = self._lang
        if not self._is_used(value):
            return lambda values: value
        if isinstance(value, lang.tensor):
            slot, dtype, kind = self._ids[id(value.handle)], value.handle.dtype, value.type
            return lambda values: lang.tensor(lang.handle(values[slot], dtype), kind)
        if isinstance(value, lang.handle):
            slot, dtype = self._ids[id(value)], value.dtype
            return lambda values: lang.handle(values[slot], dtype)
        if type(value) in (list, tuple):
            kind, makers = type(value), [self._maker(one) for one in value]
            return lambda values: kind(make(values) for make in makers)
        if isinstance(value, list | tuple):  # a named tuple
            self.failed = True
            return lambda values: value
        slot = self._ids[id(value)]
        return lambda values: values[slot]
