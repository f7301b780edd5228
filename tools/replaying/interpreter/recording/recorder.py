"""Records a program while Triton interprets it: operations become steps, values read by Python
become decisions.

An operation is recorded if it depends on the launch's arguments, on memory or on the program's
index; other operations are constants. Operands are recognised by object identity. Any access to a
value's contents outside of an operation is observed, since `data` of the interpreter's handles is a
property during recording: a single number is a decision, which a replay must take again; an array
stops the recording of the kernel.

Example: the statements

    offset = tl.program_id(0) * 4
    if offset > 8:
        tl.store(out, offset)

become a node with steps get_program_id -> slot 1, mul(slot 1, 4) -> slot 2, icmpSGT(slot 2, 8) ->
slot 3 and the decision on slot 3. Slot 0 is the handle of `out`. The child node for the bytes of
True holds the step store(slot 0, slot 2); the child for False is empty.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kernelwright.tools.replaying.interpreter.comparisons import data_dependence
from kernelwright.tools.replaying.interpreter.comparisons.recorded_steps import RecordedStep, noting
from kernelwright.tools.replaying.interpreter.recording import watched_language
from kernelwright.tools.replaying.interpreter.recording.fast_paths import (
    RecordedCall,
    fast_paths_of,
    handles_of,
)
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
from kernelwright.tools.replaying.interpreter.recording.whole_batches import BatchedOperation

Maker = Callable[[list[Any]], Any]
MAX_RECORDED_STEPS = 20_000
"""Maximum number of steps on a path through a kernel; longer ones are not recorded."""
MAX_PROGRAM_BYTES = 64 << 20
"""Maximum size, in bytes, of all values of a program."""
_PLAIN = (bool, int, float, complex, str, bytes)


class OtherSteps(BaseException):
    """Raised if a program takes other steps than the record of an equal program."""


class Recorder:
    """Records a program, from its start or from the point at which a replay left the record.

    In the second case the replay's results are returned for the steps done, and recording starts
    after them.
    """

    def __init__(
        self,
        root: Node,
        inputs: Sequence[Any],
        path: Sequence[Node] = (),
        values: Sequence[Any] = (),
    ) -> None:
        """Stores the starting point.

        inputs: handles of the kernel's arguments. path: nodes whose steps are all done, except for
        steps of the last node from `stop` on. values: those of the replay.
        """
        self._lang = language()
        self._plain = (self._lang.handle, *_PLAIN, type(None))
        self.root = self._node = root
        self.recording = True
        self.failed = False
        self._watches = False
        self.busy = self.bytes = self._steps = 0
        """Depth of nested operations in progress."""
        self._ids: dict[int, int] = {}
        self._constants: dict[int, int] = {}
        self._alive: list[Any] = []
        self._decided: set[int] = set()
        self._count = len(inputs)
        self._pending = list(path)
        self._values = list(values)
        self._step_index = self._stop = 0
        self._first_new: tuple[Node, bytes] | None = None
        """Parent of the first new node, and the value of the decision."""
        for number, handle in enumerate(inputs):
            self._know(handle, number)
        if self._pending:
            self._node = self._pending.pop(0)
            self._count += len(self._node.fresh)

    def stop_at(self, step: int) -> None:
        """Sets the number of completed steps in the path's last node, and disables recording."""
        self._stop = step
        self.recording = False

    # ------------------------------------------------------------------ what runs
    @contextmanager
    def watching(self) -> Iterator[None]:
        """Context manager around the kernel's function."""
        watched_language.watch(self)
        self._watches = True
        try:
            yield
        finally:
            self._look_away()
        if self.recording and not self.failed:
            self._node.ends()

    def _look_away(self) -> None:
        """Ends observation: the program is interpreted without a recorder from here on."""
        if self._watches:
            self._watches = False
            watched_language.look_away()

    @property
    def bytes_at_once(self) -> int:
        """Peak size, in bytes, of a program's values."""
        return self._node.bytes_before + self._node.bytes

    def call(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
    ) -> Any:
        """Runs an operation of the kernel: from the replay's results, as a constant, or recorded as
        a step."""
        if self.busy or self.failed:
            return self._run_unobserved(function, arguments, named)
        used = self._used(arguments) or (bool(named) and self._used(named.values()))
        if not used and is_pure(name):
            return self._run_unobserved(function, arguments, named)
        if self._repeats():
            return self._repeated(name)
        result = self._run_unobserved(function, arguments, named)
        if self.recording and not self.failed:
            try:
                self._run_unobserved(self._note, (name, function, arguments, named, result), {})
            except Exception:  # what cannot be written down is interpreted, program by program
                self.failed = True
        return result

    def _run_unobserved(
        self, function: Callable[..., Any], arguments: tuple[Any, ...], named: dict[str, Any]
    ) -> Any:
        self.busy += 1
        try:
            return function(*arguments, **named)
        finally:
            self.busy -= 1

    def read(self, handle: Any, data: Any) -> None:
        """Handles an access by Python to a value's contents outside of operations."""
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
        before = self._node
        self._step_index = 0
        before.children[decided] = self._node = Node()
        self._node.bytes_before = before.bytes_before + before.bytes
        if self._first_new is None:
            self._first_new = before, decided

    def take_back(self) -> bool:
        """Removes newly recorded nodes; returns whether the record is still usable."""
        self.recording = False
        if self._first_new is None:
            return self.root.complete
        node, decided = self._first_new
        node.children.pop(decided, None)
        return True

    def _fail(self) -> None:
        if self._pending or self._step_index < self._end():
            raise OtherSteps
        self.failed = True

    # ------------------------------------------------------------------ what was done before
    def _end(self) -> int:
        """Returns the number of this node's steps done by the replay."""
        if not self._values:
            return 0
        return len(self._node.steps) if self._pending or self.recording else self._stop

    def _repeats(self) -> bool:
        if self._values and self._step_index < self._end():
            return True
        if self._pending:
            raise OtherSteps
        self._values = []
        if not self.recording:
            self._look_away()
        return False

    def _repeated(self, name: str) -> Any:
        step = self._node.steps[self._step_index]
        if step.name != name:
            raise OtherSteps
        self._step_index += 1
        while (
            self._step_index < len(self._node.steps) and not self._node.steps[self._step_index].name
        ):
            self._step_index += 1
        return self._restored(step.result_form)

    def _restored(self, form: Any) -> Any:
        if isinstance(form, HandleSlot):
            handle = self._lang.handle(self._values[form.slot], form.dtype)
            handle.origin = form.origin
            handle.result = form.result
            self._know(handle, form.slot)
            return handle if form.type is None else self._lang.tensor(handle, form.type)
        if isinstance(form, list | tuple):
            return type(form)(self._restored(item) for item in form)
        if isinstance(form, int):
            value = self._values[form]
            self._know(value, form)
            return value
        return None

    def _repeats_decision(self, slot: int) -> bool:
        """Advances to the next node if the replay took this decision; False if the decision is new."""
        if not self._pending and not (self._values and self.recording):
            return False
        if self._step_index != len(self._node.steps) or self._node.decision != slot:
            raise OtherSteps
        if not self._pending:
            return False
        self._node, self._step_index = self._pending.pop(0), 0
        self._count += len(self._node.fresh)
        return True

    # ------------------------------------------------------------------ what is noted
    def _know(self, value: object, slot: int) -> None:
        self._ids[id(value)] = slot
        self._alive.append(value)

    def _used(self, values: Iterable[Any]) -> bool:
        ids = self._ids
        return any(
            id(v) in ids or (type(v) not in self._plain and self._is_used(v)) for v in values
        )

    def _is_used(self, value: object) -> bool:
        if isinstance(value, list | tuple):
            return self._used(value)
        return (
            id(getattr(value, "handle", value) if isinstance(value, self._lang.tensor) else value)
            in self._ids
        )

    def _slots(self, value: object) -> Iterator[int]:
        """Yields slots of all program-dependent values in an argument."""
        if isinstance(value, list | tuple):
            for item in value:
                yield from self._slots(item)
        elif self._is_used(value):
            yield self._ids[id(value.handle if isinstance(value, self._lang.tensor) else value)]

    def _new(self, value: object) -> int:
        self._node.fresh.append(value)
        self._count += 1
        return self._count - 1

    def _note(
        self,
        name: str,
        function: Callable[..., Any],
        arguments: tuple[Any, ...],
        named: dict[str, Any],
        result: object,
    ) -> None:
        self._steps += 1
        call = RecordedCall(name, function, arguments, named, result)
        handles = handles_of(call)
        paths = fast_paths_of(call, handles, [id(h) in self._ids for h in handles])
        quick = paths.alone is not None
        operands = tuple(map(self._operand, handles)) if quick or paths.together is not None else ()
        run = paths.alone or taking_arrays(
            self._original_call(function, arguments, named), result, self._lang
        )
        step = noting(
            RecordedStep(name, arguments, named, result, run, paths.together, operands, quick),
            self._operand,
        )
        run = step.run
        operands = step.operands
        uses = operands if quick else (*operands, *self._slots((arguments, list(named.values()))))
        slot, before = self._new(None), self.bytes
        form = self._form(result, slot)
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
            # A step with an empty name unpacks an element of a tuple result into a slot; it repeats
            # no operation of the kernel.
            for number, slot_form in enumerate(form):
                self._node.steps.append(
                    RecordedOperation("", part(number), (slot,), None, slot_form.slot, uses=(slot,))
                )
        self._step_index = len(self._node.steps)

    def _form(self, value: Any, slot: int) -> Any:
        """Returns the form of an operation's result whose array is value number `slot`."""
        lang = self._lang
        if value is None:
            return None
        if isinstance(value, lang.handle | lang.tensor):
            handle = value.handle if isinstance(value, lang.tensor) else value
            self._know(handle, slot)
            self.bytes += array(handle).nbytes
            kind = value.type if isinstance(value, lang.tensor) else None
            origin, result = data_dependence.origin_of(handle), data_dependence.result_of(handle)
            return HandleSlot(slot, handle.dtype, kind, origin, result)
        if type(value) in (list, tuple) and all(
            isinstance(one, lang.handle | lang.tensor) for one in value
        ):
            return type(value)(self._form(one, self._new(None)) for one in value)
        if isinstance(value, (*_PLAIN, list, tuple)):
            self.failed = True  # a number that Python can decide by
        self._know(value, slot)
        return slot

    def _operand(self, handle: Any) -> int:
        slot = self._ids.get(id(handle), self._constants.get(id(handle)))
        if slot is None:
            slot = self._constants[id(handle)] = self._new(array(handle))
            self._alive.append(handle)
        return slot

    def _original_call(
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
        """Returns a function from all values to the argument."""
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
            kind, makers = type(value), [self._maker(item) for item in value]
            return lambda values: kind(make(values) for make in makers)
        if isinstance(value, list | tuple):  # a named tuple
            self.failed = True
            return lambda values: value
        slot = self._ids[id(value)]
        return lambda values: values[slot]
