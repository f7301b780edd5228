"""Replays single programs of a kernel's launches from a record of the first.

A program is replayed as long as its decisions equal recorded ones. At the first new decision the
program is interpreted, and the new branch is recorded.

A replay performs the same operations in the same order on the same operands as the interpreter:
every load, store and atomic operation passes the launch's guard and race detection. An operation
that raises is repeated under the interpreter, so that the error names the line of the kernel's
source.

Example: 16 programs of a kernel with `if pid < 4:`. Program 0 is interpreted; the record is a root
node up to the decision and a child for the outcome True. Programs 1 to 3 are replayed. Program 4
runs the root's steps, finds no child for False, is interpreted with the root's results reused, and
adds that child. Programs 5 to 15 are replayed.
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
# Recording pays off if the record serves further programs: a matrix product took 5.6 s with a record of the first call,
# and 4.3 s without one (bench/results/cpu_rungs.md).
MIN_PROGRAMS_TO_RECORD = 3
"""Minimum number of programs for which a kernel's first launch is recorded."""
MAX_NODES = 2_000
MAX_MISSES = 8
"""Programs with unrecorded branches after which the record must have served a majority, or is
discarded."""
CHANGING_KERNEL_MESSAGE = (
    "the kernel does something else in equal programs: what it does must follow from its arguments"
)


class Programs:
    """Records of a kernel, for arguments of equal types and equal constants."""

    def __init__(self) -> None:
        self._root: Node | None = None
        self._given_up = False
        self._extends = True
        """New branches are recorded in this launch."""
        self._launches = self._hits = self._misses = self._nodes = 0
        self._bytes = 0
        self.apart = False
        """Programs share memory: launches must run them sequentially."""
        self.follows_elements = False
        """Launches read storages that they write: the batch guard tracks elements."""

    @property
    def root(self) -> Node | None:
        """First node of the record; None without a record."""
        return self._root

    def batch(self, most: int) -> int:
        """Returns the number of programs whose values fit into `most` bytes; 1 while their size is
        unknown."""
        return max(1, most // self._bytes) if self._bytes else 1

    def served(self, programs: int) -> None:
        """Adds to the number of programs that were replayed from the record."""
        self._hits += programs

    def opened(self) -> None:
        """Starts another trace, whose first launch may take branches that occur only once."""
        self._launches = 0

    def begin(self, count: int) -> bool:
        """Starts a launch of `count` programs; returns whether `run` can serve it."""
        self._launches += 1
        self._extends = count >= MIN_PROGRAMS_TO_RECORD or self._launches > 1
        return not self._given_up and (self._root is not None or self._extends)

    def run(self, function: Function, arguments: Mapping[str, Any], handles: Sequence[Any]) -> None:
        """Runs a program by replay or interpretation. Raises errors of the kernel.

        handles: those of the arguments, in a fixed order.
        """
        if self._given_up:
            function(**arguments)
        elif self._root is None:
            self._root = Node()
            self._interpret(Recorder(self._root, handles), function, arguments)
        elif not self._root.complete:
            function(**arguments)
        else:
            self._replay(self._root, function, arguments, handles)

    def _interpret(
        self, recorder: Recorder, function: Function, arguments: Mapping[str, Any]
    ) -> None:
        done = False
        try:
            with recorder.watching():
                function(**arguments)
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
                self._given_up = True
                self._root = None

    def _replay(
        self, root: Node, function: Function, arguments: Mapping[str, Any], handles: Sequence[Any]
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
                self._interpret(recorder, function, arguments)
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
        self._interpret(recorder, function, arguments)

    def _missed(self, recorder: Recorder, node: Node) -> None:
        """Counts a program with a new branch; discards the record once there are too many branches."""
        self._misses += 1
        self._nodes += 1
        if self._nodes > MAX_NODES or (self._misses > MAX_MISSES and self._misses > self._hits):
            recorder.stop_at(len(node.steps))
            self._given_up = True
            self._root = None

    @staticmethod
    def _steps(node: Node, values: list[Any], take: Callable[[int], Any]) -> int | None:
        """Runs the node's steps; returns the index of the step that raised, or None."""
        number = 0
        try:
            for number, (_, run, operands, _, slot, *_) in enumerate(node.steps):  # noqa: B007
                values[slot] = run(values) if operands is None else run(*map(take, operands))
        except (Exception, OutOfBounds):
            return number
        return None


def form_of(arguments: Mapping[str, Any]) -> tuple[Any, list[Any]] | None:
    """Returns a key, equal for launches that can share a record, and the handles of their tensors.

    None if an argument is of a kind that is not recorded.
    """
    handles: list[Any] = []
    parts = tuple((name, _form_of(value, handles)) for name, value in arguments.items())
    if any(_NO_FORM in _flat(part) for _, part in parts):
        return None
    return parts, handles


_NO_FORM = object()


def _flat(part: Any) -> list[Any]:
    return [leaf for inner in part for leaf in _flat(inner)] if isinstance(part, tuple) else [part]


def _form_of(value: object, handles: list[Any]) -> Any:
    lang = language()
    if isinstance(value, lang.tensor):
        if type(value.handle) is not lang.handle:
            return _NO_FORM
        handles.append(value.handle)
        return "tensor", str(value.type), value.handle.data.dtype.str, value.handle.data.shape
    if type(value) is tuple:
        return ("tuple", *(_form_of(item, handles) for item in value))
    if isinstance(value, bool | int | float | str | lang.dtype) or value is None:
        return type(value).__name__, repr(value)
    if isinstance(value, lang.constexpr):
        return "constexpr", _form_of(value.value, handles)
    return ("function", id(value)) if isinstance(value, lang.function) else _NO_FORM
