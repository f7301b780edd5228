"""What the recorder works with: Triton's interpreter as it stands in this process, and the values of a record: steps,
forms of results, nodes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from kernelwright.tools.replaying.interpreter.recording.operations import Quick
from kernelwright.tools.replaying.interpreter.recording.whole_batches import BatchedOperation


class RecordedOperation(NamedTuple):
    """One operation of a replay. `run` takes the values of `operands`, or all values where there are none."""

    name: str
    run: Callable[..., Any]
    operands: tuple[int, ...] | None
    makes: Any
    """What the operation gave: the forms of its handles and tensors, to be made again around other arrays."""
    slot: int
    """The place of its result among the values."""
    batched: BatchedOperation | None = None
    """What does it for many programs at once."""
    asks: Any = None
    """The first argument, where that is a plain number."""
    uses: tuple[int, ...] = ()
    """The values that it needs."""
    bytes: int = 0
    """Of its result."""


class HandleSlot(NamedTuple):
    """A handle, or a tensor around one, whose array is value number `slot`."""

    slot: int
    dtype: Any
    type: Any = None
    """The type of a tensor; None for a bare handle."""
    origin: int = 0
    """Whether its values depend on data (comparisons/data_dependence.py)."""
    result: Any = None
    """What is noted of its values (comparisons/constant_results.py)."""


class Node:
    """Steps without a decision among them, and the decision that ends them."""

    def __init__(self) -> None:
        self.steps: list[RecordedOperation] = []
        self.fresh: list[Any] = []
        """The values that this node adds: constants, and places for results, one after the other."""
        self.decision = -1
        """The value that decides how it goes on; -1 where the program ends."""
        self.children: dict[Any, Node] = {}
        self.unused_after: list[tuple[int, ...]] = []
        """For each step of a node that ends the program, the values that no later step needs."""
        self.bytes_before = self.bytes = 0
        """Of all values of the nodes before it, and of its own: where it ends the program, at most at one time."""
        self.complete = False
        """Whether all of its steps are there: another program that runs in turns may be recording them."""

    def decides_by(self, slot: int) -> None:
        """Ends the node with a decision: the value is what decides."""
        self.decision, self.complete = slot, True
        self.bytes = sum(step.bytes for step in self.steps)

    def ends(self) -> None:
        """Ends the node, and with it the program."""
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
        held = most = 0
        for step, unused in zip(self.steps, self.unused_after, strict=True):
            sizes[step.slot] = step.bytes
            held += step.bytes
            most = max(most, held)
            held -= sum(sizes.pop(slot, 0) for slot in unused)
        return most


class Language(NamedTuple):
    """What of Triton's interpreter the recorder works with."""

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
    """The type of blocks."""


_language: list[Language] = []


def language() -> Language:
    """Found out once, after the interpreter has been changed."""
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


def taking_arrays(run: Callable[..., Any], made: Any, lang: Language) -> Callable[..., Any]:
    """The same, giving the arrays of what it gives."""
    if isinstance(made, lang.tensor):
        return lambda values: run(values).handle.data
    if isinstance(made, lang.handle):
        return lambda values: run(values).data
    if type(made) in (list, tuple):
        return lambda values: [
            one.handle.data if isinstance(one, lang.tensor) else one.data for one in run(values)
        ]
    return run


def part(number: int) -> Callable[[Any], Any]:
    """Returns a function that takes one part of a tuple."""
    return lambda parts: parts[number]
