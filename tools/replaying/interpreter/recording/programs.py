"""The programs of a kernel's launches: one is interpreted and recorded, the others are replayed from the record, as
long as Python would decide the same in them. One that decides otherwise is interpreted from where it does, and that is
recorded too.

A replay makes the same operations in the same order with the same operands as the interpreter would: every load, store
and atomic operation goes through the launch's guard, and its races are followed. An operation that raises is done once
more under the interpreter, so that its error has the line of the kernel's text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernelwright.tools.replaying.interpreter.guarded_memory import OutOfBounds
from kernelwright.tools.replaying.interpreter.races import NeedsInterleaving
from kernelwright.tools.replaying.interpreter.recording.language import Node, language
from kernelwright.tools.replaying.interpreter.recording.recorder import OtherSteps, Recorder
from kernelwright.tools.report import Failed, Failure, Fault

Function = Callable[..., Any]
MIN_PROGRAMS_TO_RECORD = 3
"""A first launch of fewer programs is not worth a record."""
MAX_NODES = 2_000
MAX_MISSES = 8
"""Programs that left the record after which it must have served most of them, or is given up."""
CHANGING_KERNEL_MESSAGE = (
    "the kernel does something else in equal programs: what it does must follow from its arguments"
)


class Programs:
    """The recorded programs of one kernel, for arguments of one form: equal types, equal constants."""

    def __init__(self) -> None:
        self._root: Node | None = None
        self._given_up = False
        self._extends = True
        """Whether ways that nobody has gone are recorded in this launch."""
        self._launches = self._hits = self._misses = self._nodes = 0
        self._bytes = 0
        self.apart = False
        """Whether programs of these launches have to run one after the other."""
        self.follows_elements = False
        """Whether these launches read what they write."""

    @property
    def root(self) -> Node | None:
        """Returns where the record begins; None where there is none."""
        return self._root

    def batch(self, most: int) -> int:
        """How many programs have together at most so many bytes of values; 1 as long as it is not known."""
        return max(1, most // self._bytes) if self._bytes else 1

    def served(self, programs: int) -> None:
        """Notes that so many programs were replayed from the record."""
        self._hits += programs

    def opened(self) -> None:
        """Is called before the first launch of another trace: new ways may be gone there, and perhaps only once."""
        self._launches = 0

    def begin(self, count: int) -> bool:
        """Is called before a launch of so many programs; says whether `run` is to be used in it."""
        self._launches += 1
        self._extends = count >= MIN_PROGRAMS_TO_RECORD or self._launches > 1
        return not self._given_up and (self._root is not None or self._extends)

    def run(self, function: Function, given: Mapping[str, Any], handles: Sequence[Any]) -> None:
        """One program. handles: of the arguments, in an order that is always the same. Raises what the kernel
        raises.
        """
        if self._given_up:
            function(**given)
        elif self._root is None:
            self._root = Node()
            self._interpret(Recorder(self._root, handles), function, given)
        elif not self._root.complete:
            function(**given)
        else:
            self._replay(self._root, function, given, handles)

    def _interpret(self, recorder: Recorder, function: Function, given: Mapping[str, Any]) -> None:
        done = False
        try:
            with recorder.watching():
                function(**given)
            done = not recorder.failed
            self._bytes = max(self._bytes, recorder.bytes_at_once, 1)
        except OtherSteps:
            raise Failed(Failure(fault=Fault.RUNTIME, message=CHANGING_KERNEL_MESSAGE)) from None
        except NeedsInterleaving:  # the program is fine, and runs again
            if recorder.recording and not recorder.take_back():
                self._root = None
            raise
        finally:
            if not done and recorder.recording:
                self._given_up, self._root = True, None

    def _replay(
        self, root: Node, function: Function, given: Mapping[str, Any], handles: Sequence[Any]
    ) -> None:
        node, path = root, [root]
        values = [h.data for h in handles]
        take = values.__getitem__
        while True:
            values += node.fresh
            error = self._steps(node, values, take)
            if error is not None:
                recorder = Recorder(root, handles, path, values)
                recorder.stop_at(error)
                self._interpret(recorder, function, given)
                return
            if node.decision < 0:
                self._hits += 1
                return
            child = node.children.get(values[node.decision].tobytes())
            if child is None or not child.complete:
                break
            node = child
            path.append(node)
        recorder = Recorder(root, handles, path, values)
        if (
            child is not None or not self._extends
        ):  # another program records it, which waits for its turn
            recorder.stop_at(len(node.steps))
        else:
            self._missed(recorder, node)
        self._interpret(recorder, function, given)

    def _missed(self, recorder: Recorder, node: Node) -> None:
        """Notes that a program went a new way behind a node. Where there are too many ways, this is the end of the
        record.
        """
        self._misses += 1
        self._nodes += 1
        if self._nodes > MAX_NODES or (self._misses > MAX_MISSES and self._misses > self._hits):
            recorder.stop_at(len(node.steps))
            self._given_up, self._root = True, None

    @staticmethod
    def _steps(node: Node, values: list[Any], take: Callable[[int], Any]) -> int | None:
        """The number of the step that raised; None where all were done."""
        number = 0
        try:
            for number, (_, run, operands, _, slot, *_) in enumerate(node.steps):  # noqa: B007
                values[slot] = run(values) if operands is None else run(*map(take, operands))
        except (Exception, OutOfBounds):
            return number
        return None


def form_of(given: Mapping[str, Any]) -> tuple[Any, list[Any]] | None:
    """What the arguments of a launch have to have in common with those of another for one record of both, and the
    handles of their tensors; None where they are of a kind that is not recorded.
    """
    handles: list[Any] = []
    parts = tuple((name, _form_of(value, handles)) for name, value in given.items())
    if any(_NO_FORM in _flat(part) for _, part in parts):
        return None
    return parts, handles


_NO_FORM = object()


def _flat(part: Any) -> list[Any]:
    return [one for inner in part for one in _flat(inner)] if isinstance(part, tuple) else [part]


def _form_of(value: Any, handles: list[Any]) -> Any:
    lang = language()
    if isinstance(value, lang.tensor):
        if type(value.handle) is not lang.handle:
            return _NO_FORM
        handles.append(value.handle)
        return "tensor", str(value.type), value.handle.data.dtype.str, value.handle.data.shape
    if type(value) is tuple:
        return ("tuple", *(_form_of(one, handles) for one in value))
    if isinstance(value, bool | int | float | str | lang.dtype) or value is None:
        return type(value).__name__, repr(value)
    if isinstance(value, lang.constexpr):
        return "constexpr", _form_of(value.value, handles)
    return ("function", id(value)) if isinstance(value, lang.function) else _NO_FORM
