"""An index among near equals: which of them is smallest is decided by a rounding, so an index is right where its value
is as good as the best.

Where two values of a row differ by less than honest arithmetic is off by (tools/numerics/tolerance.py), an argmin in
another order may name either. The index itself says nothing of that. So the reference is run once more, and what its
last argmin, argmax, min, max, topk, cummax or cummin was taken of is kept: in float64, and as eager has it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from kernelwright.tools.numerics.seeds import is_order_open
from kernelwright.tools.numerics.tolerance import Tensor, allowance

CHOOSING_OPERATORS = frozenset(
    {"argmin", "argmax", "min", "max", "topk", "cummax", "cummin", "sort", "argsort"}
)
RUNNING_OPERATORS = frozenset({"cummax", "cummin"})
SORTING_OPERATORS = frozenset({"sort", "argsort"})
SEVERAL_OPERATORS = SORTING_OPERATORS | {"topk"}


@dataclass
class IndexCall:
    """One call of the reference that gave indices."""

    values: Tensor
    """What they were taken of."""
    dim: int | None
    """None: of all elements in a row."""
    indices: Tensor
    several: bool = False
    """Whether each slice has several indices, as `topk` and `sort` give them.

    Which of exact equals comes first, torch leaves open, except where a sort is asked to be stable.
    """
    running: bool = False
    """Whether each element has an index, of the best of the elements up to it (`cummax`)."""
    stable: bool = False
    """Whether of exact equals the one that comes first in the slice has to come first."""

    def at(self, index: Tensor) -> Tensor:
        """The values at other indices of the same number, one for each slice. Indices must be in the range."""
        if self.dim is None:
            return self.values.reshape(-1)[index.reshape(-1)]
        return self.values.gather(self.dim, index.reshape(self._kept())).reshape(-1)

    def most(self, of: Tensor) -> Tensor:
        """The largest of each slice of something of the values' shape."""
        return of.max().reshape(1) if self.dim is None else of.amax(self.dim).reshape(-1)

    @property
    def length(self) -> int:
        """How many elements each index was chosen from: those of one slice, or all where `dim` is None."""
        return int(self.values.numel() if self.dim is None else self.values.shape[self.dim])

    def _kept(self) -> list[int]:
        shape = list(self.values.shape)
        shape[self.dim or 0] = 1
        return shape


@dataclass
class IndexRecorder:
    """Notes every call that gives indices, of whatever reference runs inside `noting()`."""

    operators: Collection[str] = CHOOSING_OPERATORS
    """Names of the functions that are looked at."""
    calls: list[IndexCall] = field(default_factory=list)

    def noting(self) -> Any:
        """A torch function mode; while it is entered, `calls` grows by one entry for each call that gives indices."""
        from torch.overrides import TorchFunctionMode

        calls, operators = self.calls, self.operators

        class Noting(TorchFunctionMode):
            def __torch_function__(
                self, func: Any, types: Any, args: Any = (), kwargs: Any = None
            ) -> Any:
                out = func(*args, **(kwargs or {}))
                calls.extend(index_calls(func, out, args, kwargs or {}, operators))
                return out

        return Noting()


def index_calls(
    func: Any, out: Any, args: Any, named: dict[str, Any], operators: Collection[str]
) -> list[IndexCall]:
    """The call of a function among `operators`, where it gave indices of floating values; else an empty list."""
    import torch

    name = getattr(func, "__name__", "")
    if name not in operators:
        return []
    indices: Any = out if isinstance(out, torch.Tensor) else getattr(out, "indices", None)
    values: Any = args[0] if args else named.get("input")
    several = name in SEVERAL_OPERATORS
    before = 1 + (name == "topk")
    dim = args[before] if len(args) > before else named.get("dim", -1 if several else None)
    if not isinstance(indices, torch.Tensor) or indices.is_floating_point():
        return []
    if (
        not isinstance(values, torch.Tensor)
        or not values.is_floating_point()
        or not isinstance(dim, int | None)
    ):
        return []
    dim = dim if values.dim() else None
    along = dim is not None
    stable = name in SORTING_OPERATORS and bool(named.get("stable")) and not is_order_open()
    return [
        IndexCall(
            values, dim, indices, several and along, name in RUNNING_OPERATORS and along, stable
        )
    ]


def is_as_good(
    index: Tensor, expected: Tensor, exact: list[IndexCall], eager: list[IndexCall]
) -> bool:
    """Whether each of the candidate's indices names a value as good as the best, up to what honest arithmetic is off
    by.

    expected: the float64 reference's own output; the call that gave it is looked for among `exact`. False where there
    is none.
    """
    import torch

    found = [
        (r, e)
        for r, e in zip(exact, eager, strict=False)
        if r.indices.numel() == expected.numel()
        and torch.equal(r.indices.reshape(-1), expected.reshape(-1))
    ]
    if not found or index.shape != expected.shape:
        return False
    taken, own = found[-1]
    if own.values.shape != taken.values.shape or bool(
        ((index < 0) | (index >= taken.length)).any()
    ):
        return False
    if taken.several or taken.running:
        return _several_are_as_good(index, taken, own)
    allow = allowance(own.values.dtype)
    noise = taken.most((own.values.double() - taken.values).abs())
    allowed = allow.factor * noise + allowed_ulps(taken, own) * taken.most(taken.values.abs())
    short = (taken.at(index) - taken.at(expected)).abs()
    later = (index.reshape(-1) != expected.reshape(-1)) & (
        short == 0
    )  # of exact equals torch names the first
    return bool(((short <= allowed) & ~later).all())


def allowed_ulps(exact: IndexCall, eager: IndexCall) -> float:
    """Returns the units in the last place, as a share, that values may differ by and be as good: none where nothing
    rounded them.
    """
    import torch

    is_exact = torch.equal(
        _with_nan_largest(eager.values).double(), _with_nan_largest(exact.values).double()
    )
    return 0.0 if is_exact else allowance(eager.values.dtype).ulps


def _several_are_as_good(index: Tensor, exact: IndexCall, eager: IndexCall) -> bool:
    """Returns whether the indices of each slice are distinct and name values as good, place by place, as those
    expected; running ones, whether each names such a value up to its own place.
    """
    import torch

    assert exact.dim is not None
    dim, chosen = exact.dim, index.reshape(exact.indices.shape).long()
    values, own = (_with_nan_largest(one.values) for one in (exact, eager))
    allow = allowance(eager.values.dtype)
    noise = (own.double() - values).abs().amax(dim, keepdim=True)
    allowed = allow.factor * noise + allowed_ulps(exact, eager) * values.abs().amax(
        dim, keepdim=True
    )
    short = (values.gather(dim, chosen) - values.gather(dim, exact.indices)).abs()
    if exact.running:
        places = torch.arange(exact.length, device=chosen.device).unsqueeze(-1)
        before = (
            chosen.movedim(dim, 0).flatten(1) <= places
            if chosen.dim() > 1
            else chosen <= places.squeeze(-1)
        )
        named = (
            (chosen == exact.indices) | (short > 0) | (noise > 0)
        )  # of equals that nothing rounded, the last
        return bool((short <= allowed).all()) and bool(before.all()) and bool(named.all())
    distinct = chosen.sort(dim).values.diff(dim=dim) != 0
    in_order = (chosen == exact.indices) | (short > 0) if exact.stable else short <= allowed
    return bool((short <= allowed).all()) and bool(distinct.all()) and bool(in_order.all())


def _with_nan_largest(values: Tensor) -> Tensor:
    """NaN as the largest number of single precision: of several in a slice torch names any first."""
    import torch

    return torch.where(values.isnan(), torch.finfo(torch.float32).max, values)


def naming_equals(last: bool) -> Any:
    """A mode in which `topk` names, of equal values, the first or the last: which ones it names, torch leaves open, and
    what a reference makes of the indices (a router's load) follows them. Its `seen` counts the calls.
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class Naming(TorchFunctionMode):
        seen = 0

        def __torch_function__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            named = kwargs or {}
            out = func(*args, **named)
            if "out" in named:
                return out
            (taken,) = index_calls(func, out, args, named, ("topk",)) or (None,)
            if taken is None or taken.dim is None:
                return out
            self.seen += 1
            largest = args[3] if len(args) > 3 else named.get("largest", True)
            return _named(taken.values, taken.dim, taken.indices.shape[taken.dim], largest, last)

    def _named(values: Tensor, dim: int, count: int, largest: bool, last: bool) -> Any:
        turned = values.flip(dim) if last else values
        found = torch.sort(turned, dim=dim, descending=largest, stable=True)
        best, at = found.values.narrow(dim, 0, count), found.indices.narrow(dim, 0, count)
        return torch.return_types.topk((best, values.shape[dim] - 1 - at if last else at))

    return Naming()
