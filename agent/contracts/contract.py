"""A contract as a value: what a kernel was judged on, and so what its guard lets in."""

from __future__ import annotations

from enum import StrEnum

from kernelwright.tools.report import Value

INT32_ELEMENTS = 2**31 - 1
"""Elements that 32-bit offsets reach."""
FREE_SIZE_VALUES = 3
"""Distinct values of a size from which on it counts as one that may vary freely."""


class Mode(StrEnum):
    """The mode of a module in which a kernel was judged."""

    ANY = "any"
    """The reference gives the same in both."""
    TRAINING = "training"
    EVAL = "eval"
    MIXED = "mixed"
    """Some layers of the reference are in training mode and others are not: neither `.train()` nor `.eval()` fits."""


class TensorContract(Value):
    """A dense tensor."""

    dtype: str
    """torch's name without "torch."."""
    shape: tuple[int | str, ...]
    """An extent that never varied, or the name of a size that did."""
    order: tuple[int, ...]
    """Dimensions from the slowest to the fastest in memory."""
    layouts: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    """Shapes and strides that were judged, of an input with gaps or overlaps; empty for every other."""
    written: bool = False
    """Whether forward writes to it."""

    @property
    def is_contiguous(self) -> bool:
        """Whether the judged layout is torch's usual one."""
        return not self.layouts and self.order == tuple(range(len(self.shape)))


class SizeContract(Value):
    """A whole number that varied: the value of a size."""

    size: str


class FixedContract(Value):
    """A plain value that never varied, as Python writes it: `1e-05`, `'mean'`."""

    literal: str


class OpenContract(Value):
    """A value that is not checked: a device, or a number that was drawn anew for every size."""

    shown: str


class ItemsContract(Value):
    """A list, tuple or dictionary with values that have contracts of their own."""

    kind: str
    """list, tuple or dict."""
    keys: tuple[str, ...] = ()
    """Of a dictionary."""
    items: tuple[AnyContract, ...] = ()


AnyContract = TensorContract | SizeContract | FixedContract | OpenContract | ItemsContract


class Argument(Value):
    """One argument of forward or of the constructor."""

    name: str
    contract: AnyContract
    default: str | None = None
    """As Python writes it; None where there is none."""
    passed: bool = True
    """False for an argument that the kernel does not have: it was judged with the reference's default alone."""


class Relation(Value):
    """What held between sizes at every size that was judged."""

    text: str
    """`width == 2 * hidden`: Python, too."""


class Output(Value):
    """One output of the reference."""

    dtype: str
    shape: tuple[int | str, ...]
    contiguous: bool = True
    depends_on_weights: bool = True
    """Whether torch sees that its gradient reaches a weight."""


class Weight(Value):
    """One parameter or buffer of the reference."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


class Contract(Value):
    """What a kernel was judged on."""

    inputs: tuple[Argument, ...]
    constructor: tuple[Argument, ...] = ()
    outputs: tuple[Output, ...] = ()
    weights: tuple[Weight, ...] = ()
    run_sizes: dict[str, tuple[int, ...]] = {}
    """Sizes that varied, with the values at which the kernel was run, in order."""
    own_sizes: dict[str, int] = {}
    """The values of these sizes in the problem itself, for which it was compiled at least."""
    relations: tuple[Relation, ...] = ()
    mode: Mode = Mode.ANY
    max_elements: int = INT32_ELEMENTS
    """Elements of the largest tensor that is let in."""

    @property
    def few_values(self) -> dict[str, tuple[int, ...]]:
        """Sizes of which only one or two values were run: no reason to think that another one is right.

        The problem's own is among them.
        """
        few = {
            name: values
            for name, values in self.run_sizes.items()
            if len(values) < FREE_SIZE_VALUES
        }
        return {
            name: tuple(sorted({*values, self.own_sizes[name]})) for name, values in few.items()
        }
