"""Determines the domain of each input, which every draw preserves: impossible values show nothing
about a kernel.

An interval is derived from the torch functions that made the input: results of a sigmoid, a
softmax, an exponential or an absolute value, and negations of these or of `torch.rand`, have a
known range, which is followed through views, copies, conversions, and sums and products with plain
numbers. Two values (a mask of 0 and 1, targets of -1 and 1) are read from the tensor itself.

Example: `0.5 * torch.sigmoid(torch.randn(4))` has the interval (0, 0.5); `torch.rand(4)` has none,
and `-torch.rand(4)` has (-inf, 0).
"""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import torch

    from kernelwright.torch_calls import Args, Kwargs, Types

MIN_ELEMENTS_OF_TWO_VALUES = 8
"""Fewer elements are two values by chance."""
SAMPLED_ELEMENTS = 64
"""Elements among which more than two values are looked for before all of them are."""
RANGES = {
    "sigmoid": (0.0, 1.0), "expit": (0.0, 1.0), "softmax": (0.0, 1.0), "exp": (0.0, math.inf), "exp2": (0.0, math.inf),
    "abs": (0.0, math.inf), "absolute": (0.0, math.inf), "softplus": (0.0, math.inf),
    "logsigmoid": (-math.inf, 0.0), "log_sigmoid": (-math.inf, 0.0), "log_softmax": (-math.inf, 0.0),
}  # fmt: skip
"""Functions by the range of their results."""
MOVING_FUNCTIONS = frozenset({
    "view", "reshape", "permute", "transpose", "t", "mT", "T", "contiguous", "to", "type", "float", "double", "half",
    "bfloat16", "detach", "clone", "expand", "unsqueeze", "squeeze", "flatten", "unflatten", "repeat",
    "requires_grad_", "movedim", "swapaxes", "cpu", "cuda", "__getitem__", "view_as", "expand_as", "tril", "triu",
})  # fmt: skip
"""Functions whose results consist of values of their first argument (or zeros)."""
ARITHMETIC_NAMES = {
    "mul": "mul", "multiply": "mul", "__mul__": "mul", "__rmul__": "mul", "__imul__": "mul",
    "div": "div", "true_divide": "div", "__truediv__": "div", "__div__": "div", "__itruediv__": "div",
    "add": "add", "__add__": "add", "__radd__": "add", "__iadd__": "add",
    "sub": "sub", "subtract": "sub", "__sub__": "sub", "__isub__": "sub", "rsub": "rsub", "__rsub__": "rsub",
    "neg": "neg", "negative": "neg", "__neg__": "neg",
}  # fmt: skip


class Interval(NamedTuple):
    """The values from `low` to `high`, both included."""

    low: float
    high: float

    def shifted(self, number: float) -> Interval:
        """Adds a number to every value."""
        return Interval(self.low + number, self.high + number)

    def scaled(self, factor: float) -> Interval:
        """Multiplies every value by a number other than zero."""
        ends = self.low * factor, self.high * factor
        return Interval(min(ends), max(ends))

    def keep(self, values: torch.Tensor) -> None:
        """Moves values into the interval, in place; reverses a sign that is not in the interval."""
        if self.low >= 0.0:
            values.abs_()
        elif self.high <= 0.0:
            values.abs_().neg_()
        values.clamp_(self.low, self.high)


TWO_VALUES = "two values"
Domain = Interval | str | None
"""An interval, TWO_VALUES, or None for arbitrary numbers."""


class _Provenance(NamedTuple):
    interval: Interval
    is_meant: bool
    """False for `torch.rand`, used by problems for arbitrary numbers; only a negation shows an
    intended sign."""


class _Provenances:
    """Provenances of tensors, without references to these."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[Any], _Provenance]] = {}

    def of(self, value: object) -> _Provenance | None:
        """Returns the provenance of a value; None if unknown, or if another object had its id."""
        reference, provenance = self._entries.get(id(value), (None, None))
        return provenance if reference is not None and reference() is value else None

    def note(self, tensor: torch.Tensor, provenance: _Provenance | None) -> None:
        """Replaces the provenance of a tensor."""
        if provenance is not None:
            self._entries[id(tensor)] = weakref.ref(tensor), provenance
        else:
            self._entries.pop(id(tensor), None)


Intervals = Callable[[Any], Interval | None]
"""Returns the interval of a tensor; None for arbitrary numbers."""


@contextlib.contextmanager
def watch_intervals() -> Iterator[Intervals]:
    """Context manager with a function that returns the interval of a tensor made inside the block."""
    import torch
    from torch.overrides import TorchFunctionMode

    provenances = _Provenances()

    class DomainWatch(TorchFunctionMode):
        def __torch_function__(
            self, func: Callable[..., Any], types: Types, args: Args = (), kwargs: Kwargs = None
        ) -> Any:
            provenance = _provenance(str(getattr(func, "__name__", "")), args, provenances)
            result = func(*args, **(kwargs or {}))
            in_place = bool(args) and result is args[0]
            if isinstance(result, torch.Tensor) and (provenance is not None or in_place):
                provenances.note(result, provenance)
            return result

    def interval(tensor: torch.Tensor) -> Interval | None:
        provenance = provenances.of(tensor)
        return provenance.interval if provenance is not None and provenance.is_meant else None

    with DomainWatch():
        yield interval


def _provenance(name: str, args: Sequence[Any], provenances: _Provenances) -> _Provenance | None:
    bare = name if name.startswith("__") else name.rstrip("_")
    if bare in RANGES:
        return _Provenance(Interval(*RANGES[bare]), True)
    if bare == "rand":
        return _Provenance(Interval(0.0, 1.0), False)
    first = provenances.of(args[0]) if args else None
    if bare in MOVING_FUNCTIONS or name in MOVING_FUNCTIONS:
        return first
    if (operation := ARITHMETIC_NAMES.get(bare)) is None:
        return None
    operand = args[1] if len(args) > 1 else None
    if first is None and len(args) > 1 and isinstance(args[0], int | float):
        first, operand = provenances.of(args[1]), args[0]
        operation = "rsub" if operation == "sub" else operation
    return _computed(first, operation, operand)


def _computed(first: _Provenance | None, operation: str, operand: object) -> _Provenance | None:
    """Returns the interval after arithmetic with a plain number; None if unknown."""
    if first is None:
        return None
    if operation == "neg":
        return _negated(first, 1.0)
    if not isinstance(operand, int | float) or isinstance(operand, bool):
        return None
    if operation in ("mul", "div") and operand:
        factor = float(operand) if operation == "mul" else 1.0 / operand
        return (
            _negated(first, -factor)
            if factor < 0
            else first._replace(interval=first.interval.scaled(factor))
        )
    if operation in ("add", "sub"):
        return first._replace(
            interval=first.interval.shifted(operand if operation == "add" else -operand)
        )
    if operation == "rsub" and first.is_meant:
        return _Provenance(first.interval.scaled(-1.0).shifted(operand), True)
    return None


def _negated(provenance: _Provenance, factor: float) -> _Provenance | None:
    """Returns the negated range; a negated `torch.rand` has an intended sign."""
    if provenance.is_meant:
        return _Provenance(provenance.interval.scaled(-factor), True)
    return _Provenance(Interval(-math.inf, 0.0), True) if provenance.interval.low >= 0.0 else None


def domains_of(inputs: Sequence[Any], intervals: Intervals) -> tuple[Domain, ...]:
    """Returns the domain of each input, None for values that are no floating-point tensor."""
    import torch

    return tuple(
        (intervals(v) or (TWO_VALUES if holds_two_values(v) else None))
        if isinstance(v, torch.Tensor) and v.is_floating_point()
        else None
        for v in inputs
    )


def holds_two_values(tensor: torch.Tensor) -> bool:
    """Returns True if the elements have exactly two different values."""
    if tensor.numel() < MIN_ELEMENTS_OF_TWO_VALUES or tensor.itemsize == 1:
        return False
    if tensor.flatten()[:SAMPLED_ELEMENTS].unique().numel() > 2:
        return False
    low, high = tensor.amin(), tensor.amax()
    return bool(low < high) and bool(((tensor == low) | (tensor == high)).all())


class DomainsKept:
    """Copies of the inputs whose domain a draw must not leave."""

    def __init__(self, inputs: Sequence[Any], domains: Sequence[Domain]) -> None:
        """Copies the inputs of two values; intervals need none."""
        self._inputs = inputs
        self._domains = domains
        self._copies = {
            n: inputs[n].clone() for n, domain in enumerate(domains) if domain == TWO_VALUES
        }

    def restore(self) -> None:
        """Brings the inputs, changed in place meanwhile, back into their domains."""
        for number, domain in enumerate(self._domains):
            if isinstance(domain, Interval):
                domain.keep(self._inputs[number])
            elif number in self._copies:
                self._inputs[number].copy_(self._copies[number])
