"""Values of a record (steps, nodes, forms of results), and the parts of Triton's interpreter in use
by the recorder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kernelwright.tools.replaying.interpreter.recording.operations import Quick
from kernelwright.tools.replaying.interpreter.recording.whole_batches import BatchedOperation


class RecordedOperation(NamedTuple):
    """A recorded operation. `run` takes the values of `operands`, or the list of all values if
    `operands` is None."""

    name: str
    run: Callable[..., Any]
    operands: tuple[int, ...] | None
    result_form: Any
    """Form of the result: its handles and tensors, rebuilt around other arrays in a replay."""
    slot: int
    """Index of the result among the values."""
    batched: BatchedOperation | None = None
    """Form of the operation for many programs at once."""
    first_integer: Any = None
    """First argument, if it is an int: the axis of a program id."""
    uses: tuple[int, ...] = ()
    """Slots of all values that the operation depends on."""
    bytes: int = 0
    """Size of the result in bytes."""


class HandleSlot(NamedTuple):
    """A handle, or a tensor around a handle, whose array is value number `slot`."""

    slot: int
    dtype: Any
    type: Any = None
    """Type of the tensor; None for a bare handle."""
    origin: int = 0
    """Origin of the values: constant, program index or data (comparisons/data_dependence.py)."""
    result: Any = None
    """Outcome statistics of the values (comparisons/constant_results.py)."""


class Node:
    """A run of steps without a decision, and the decision that ends the run."""

    def __init__(self) -> None:
        self.steps: list[RecordedOperation] = []
        self.fresh: list[Any] = []
        """Values appended by the node: constants, and None for each result."""
        self.decision = -1
        """Slot of the deciding value; -1 if the program ends here."""
        self.children: dict[Any, Node] = {}
        self.unused_after: list[tuple[int, ...]] = []
        """For each step of a final node, the slots that no later step uses."""
        self.bytes_before = self.bytes = 0
        """Bytes of all values of earlier nodes, and of this node (in a final node the peak)."""
        self.complete = False
        """All steps are recorded; False while a suspended program is recording them."""

    def decides_by(self, slot: int) -> None:
        """Ends the node with a decision on the value of `slot`."""
        self.decision = slot
        self.complete = True
        self.bytes = sum(step.bytes for step in self.steps)

    def ends(self) -> None:
        """Ends the node together with the program."""
        needed: set[int] = set()
        unused = []
        for step in reversed(self.steps):
            unused.append(tuple({slot for slot in (step.slot, *step.uses) if slot not in needed}))
            needed.update(step.uses)
        self.unused_after = unused[::-1]
        self.bytes = self._most_at_once()
        self.complete = True

    def _most_at_once(self) -> int:
        sizes: dict[int, int] = {}
        held = peak = 0
        for step, unused in zip(self.steps, self.unused_after, strict=True):
            sizes[step.slot] = step.bytes
            held += step.bytes
            peak = max(peak, held)
            held -= sum(sizes.pop(slot, 0) for slot in unused)
        return peak


class Language(NamedTuple):
    """The parts of Triton's interpreter in use by the recorder."""

    handle: Any
    tensor: Any
    builder: Any
    semantic: Any
    np_dtype: Callable[[Any], Any]
    quick: Quick
    dtype: Any
    constexpr: Any
    function: Any
    block: Any
    """Class of block types."""


_language: list[Language] = []


def language() -> Language:
    """Returns the interpreter's parts, looked up once, after the interpreter is patched."""
    if not _language:
        import triton.language as tl
        from triton.runtime import interpreter

        builder = interpreter.interpreter_builder
        _language.append(Language(
            interpreter.TensorHandle, tl.core.tensor, builder, interpreter.interpreter_semantic,
            interpreter._get_np_dtype, Quick(type(builder)), tl.core.dtype, tl.core.constexpr,
            interpreter.InterpretedFunction, tl.core.block_type,
        ))  # fmt: skip
    return _language[0]


def array(handle: Any) -> Any:
    """Returns the NumPy array inside the interpreter's handle of a tensor."""
    return vars(handle)["data"]


def taking_arrays(run: Callable[..., Any], result: object, lang: Language) -> Callable[..., Any]:
    """Wraps `run` so that handles and tensors in its result become NumPy arrays."""
    if isinstance(result, lang.tensor):
        return lambda values: run(values).handle.data
    if isinstance(result, lang.handle):
        return lambda values: run(values).data
    if type(result) in (list, tuple):
        return lambda values: [
            value.handle.data if isinstance(value, lang.tensor) else value.data
            for value in run(values)
        ]
    return run


def part(number: int) -> Callable[[Any], Any]:
    """Returns a function that takes one part of a tuple."""
    return lambda parts: parts[number]
