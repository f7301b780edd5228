"""Contract of a kernel as a value: the judged conditions, which its guard accepts.

For a kernel judged at x of shapes (5, 64) and (181, 64):

    Contract(
        inputs=(Argument(name="x", contract=TensorContract(
            dtype="float32", shape=("rows", 64), order=(0, 1))),),
        run_sizes={"rows": (5, 181)},
        own_sizes={"rows": 1024},
    )
"""

from __future__ import annotations

from enum import StrEnum

from kernelwright.tools.report import Value

INT32_ELEMENTS = 2**31 - 1
"""Number of elements addressable by 32-bit offsets."""
FREE_SIZE_VALUES = 3
"""Number of distinct tested values at which a size counts as freely variable."""


class Mode(StrEnum):
    """Module mode in which a kernel was judged."""

    ANY = "any"
    """The reference computes equal results in both modes."""
    TRAINING = "training"
    EVAL = "eval"
    MIXED = "mixed"
    """Layers of the reference are in different modes, so neither `.train()` nor `.eval()`
    matches.
    """


class TensorContract(Value):
    """Contract of a dense tensor."""

    dtype: str
    """Name of the torch dtype without "torch."."""
    shape: tuple[int | str, ...]
    """Extents: constant numbers, or names of sizes that varied."""
    order: tuple[int, ...]
    """Dimensions from slowest to fastest in memory."""
    layouts: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = ()
    """Judged pairs of shape and strides for inputs with gaps or overlaps; empty for dense inputs.
    """
    written: bool = False
    """Whether forward writes to the tensor."""

    @property
    def is_contiguous(self) -> bool:
        """Whether the judged layout is torch's default layout."""
        return not self.layouts and self.order == tuple(range(len(self.shape)))


class SizeContract(Value):
    """Integer argument whose value is a size that varied."""

    size: str


class FixedContract(Value):
    """Plain value that never varied, as a Python literal: `1e-05`, `'mean'`."""

    literal: str


class OpenContract(Value):
    """Unchecked value: a device, or a number drawn anew for every size."""

    shown: str


class ItemsContract(Value):
    """List, tuple or dictionary whose items have contracts."""

    kind: str
    """Type of the container: list, tuple or dict."""
    keys: tuple[str, ...] = ()
    """Keys of a dictionary; empty otherwise."""
    items: tuple[AnyContract, ...] = ()


AnyContract = TensorContract | SizeContract | FixedContract | OpenContract | ItemsContract


class Argument(Value):
    """Argument of forward or of the constructor."""

    name: str
    contract: AnyContract
    default: str | None = None
    """Default as a Python literal; None if there is none."""
    passed: bool = True
    """False for an argument missing in the kernel, which was judged with the reference's default
    only.
    """


class SizeRelation(Value):
    """Relation between sizes at all judged sizes."""

    text: str
    """Relation as a Python expression: `width == 2 * hidden`."""


class Output(Value):
    """Output of the reference."""

    dtype: str
    shape: tuple[int | str, ...]
    contiguous: bool = True
    depends_on_weights: bool = True
    """Whether a gradient of the output reaches a weight."""


class Weight(Value):
    """Parameter or buffer of the reference."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


class Contract(Value):
    """Conditions under which a kernel was judged."""

    inputs: tuple[Argument, ...]
    constructor: tuple[Argument, ...] = ()
    outputs: tuple[Output, ...] = ()
    weights: tuple[Weight, ...] = ()
    run_sizes: dict[str, tuple[int, ...]] = {}
    """Tested values of each varied size, in ascending order."""
    own_sizes: dict[str, int] = {}
    """Values of the varied sizes in the problem, at which the kernel was at least compiled."""
    shape_sizes: dict[str, tuple[int, ...]] = {}
    """Values of the varied sizes at each shape that the problem names, at which the kernel was at least compiled."""
    relations: tuple[SizeRelation, ...] = ()
    mode: Mode = Mode.ANY
    max_elements: int = INT32_ELEMENTS
    """Maximum number of elements of an accepted tensor."""
    cast: str = ""
    """Dtype to which the module was cast after its constructor; empty for no cast."""
    empty_sizes: tuple[str, ...] = ()
    """Varied sizes that may be 0."""
    others: tuple[Contract, ...] = ()
    """Contracts of calls of other forms (ranks, dtypes), if the kernel was judged at several shapes."""

    @property
    def few_values(self) -> dict[str, tuple[int, ...]]:
        """Sizes with only one or two tested values; other values are not assumed to be correct.

        The problem's value is included.
        """
        few: dict[str, tuple[int, ...]] = {}
        for name, values in self.run_sizes.items():
            if len(values) < FREE_SIZE_VALUES:
                compiled = self.shape_sizes.get(name, ())
                few[name] = tuple(sorted({*values, *compiled, self.own_sizes[name]}))
        return few
