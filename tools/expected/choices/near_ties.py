"""Accepts an index among nearly equal values: a rounding decides which is smallest, so the index of
an equally good value is correct.

If two values of a row differ by less than honest arithmetic errs (tools/numerics/tolerance.py), an
argmin in another order may return either index. So the reference is run again, and the operands of
its last argmin, argmax, min, max, topk, cummax or cummin are recorded, in float64 and in eager's
precision.

Example: a row [0.3, 0.1, 0.10000001] in float64, whose eager values err by 1e-8: argmin 1 and 2 are
both accepted, 0 is not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelwright.tools.numerics.seeds import is_order_open
from kernelwright.tools.numerics.tolerance import Tensor, allowance
from kernelwright.torch_calls import Args, Kwargs, Types

CHOOSING_OPERATORS = frozenset(
    {"argmin", "argmax", "min", "max", "topk", "cummax", "cummin", "sort", "argsort"}
)
RUNNING_OPERATORS = frozenset({"cummax", "cummin"})
SORTING_OPERATORS = frozenset({"sort", "argsort"})
SEVERAL_OPERATORS = SORTING_OPERATORS | {"topk"}


@dataclass
class IndexCall:
    """A call of the reference that returned indices."""

    values: Tensor
    """Operand of the call."""
    dim: int | None
    """None: of all elements in a row."""
    indices: Tensor
    several: bool = False
    """Each slice has several indices, as from `topk` and `sort`.

    torch does not specify the order of exact equals, except for stable sorts.
    """
    running: bool = False
    """Each element has an index, of the best element up to that position (`cummax`)."""
    stable: bool = False
    """Of exact equals the first in the slice must come first."""

    def at(self, index: Tensor) -> Tensor:
        """Returns the values at other indices, one per slice. Indices must be in range."""
        if self.dim is None:
            return self.values.reshape(-1)[index.reshape(-1)]
        return self.values.gather(self.dim, index.reshape(self._reduced_shape())).reshape(-1)

    def most(self, of: Tensor) -> Tensor:
        """Returns the maximum of each slice of a tensor in the values' shape."""
        return of.max().reshape(1) if self.dim is None else of.amax(self.dim).reshape(-1)

    @property
    def length(self) -> int:
        """Number of elements to choose from: those of a slice, or all if `dim` is None."""
        return int(self.values.numel() if self.dim is None else self.values.shape[self.dim])

    def _reduced_shape(self) -> list[int]:
        shape = list(self.values.shape)
        shape[self.dim or 0] = 1
        return shape


@dataclass
class IndexRecorder:
    """Records every call that returns indices, of any reference that runs inside `noting()`."""

    operators: Collection[str] = CHOOSING_OPERATORS
    """Names of the functions that are looked at."""
    calls: list[IndexCall] = field(default_factory=list)

    def noting(self) -> Any:
        """Returns a torch function mode that appends each call with indices to `calls`."""
        from torch.overrides import TorchFunctionMode

        calls = self.calls
        operators = self.operators

        class Noting(TorchFunctionMode):
            def __torch_function__(
                self, func: Callable[..., Any], types: Types, args: Args = (), kwargs: Kwargs = None
            ) -> Any:
                out = func(*args, **(kwargs or {}))
                calls.extend(index_calls(func, out, args, kwargs or {}, operators))
                return out

        return Noting()


def index_calls(
    func: Callable[..., Any],
    out: Any,
    args: Sequence[Any],
    named: dict[str, Any],
    operators: Collection[str],
) -> list[IndexCall]:
    """Returns the call of a function in `operators`, if it returned indices of floating values;
    else an empty list."""
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
    """Returns True if each of the candidate's indices selects a value as good as the best, within
    honest errors.

    expected: the float64 reference's output, whose call is searched in `exact`. False if not found.
    """
    import torch

    matching_calls = [
        (r, e)
        for r, e in zip(exact, eager, strict=False)
        if r.indices.numel() == expected.numel()
        and torch.equal(r.indices.reshape(-1), expected.reshape(-1))
    ]
    if not matching_calls or index.shape != expected.shape:
        return False
    exact_call, eager_call = matching_calls[-1]
    if eager_call.values.shape != exact_call.values.shape or bool(
        ((index < 0) | (index >= exact_call.length)).any()
    ):
        return False
    if exact_call.several or exact_call.running:
        return _several_are_as_good(index, exact_call, eager_call)
    allow = allowance(eager_call.values.dtype)
    noise = exact_call.most((eager_call.values.double() - exact_call.values).abs())
    allowed = allow.factor * noise + allowed_ulps(exact_call, eager_call) * exact_call.most(
        exact_call.values.abs()
    )
    short = (exact_call.at(index) - exact_call.at(expected)).abs()
    later = (index.reshape(-1) != expected.reshape(-1)) & (
        short == 0
    )  # of exact equals torch names the first
    return bool(((short <= allowed) & ~later).all())


def allowed_ulps(exact: IndexCall, eager: IndexCall) -> float:
    """Returns the ulps, as a relative share, within which values are equally good: 0 if no operator
    rounded them."""
    import torch

    is_exact = torch.equal(
        _with_nan_largest(eager.values).double(), _with_nan_largest(exact.values).double()
    )
    return 0.0 if is_exact else allowance(eager.values.dtype).ulps


def _several_are_as_good(index: Tensor, exact: IndexCall, eager: IndexCall) -> bool:
    """Returns True if the indices of each slice are distinct and select values as good, by
    position, as expected.

    For running indices, each must select such a value up to its own position.
    """
    import torch

    assert exact.dim is not None
    dim, chosen = exact.dim, index.reshape(exact.indices.shape).long()
    values, eager_values = (_with_nan_largest(call.values) for call in (exact, eager))
    allow = allowance(eager.values.dtype)
    noise = (eager_values.double() - values).abs().amax(dim, keepdim=True)
    allowed = allow.factor * noise + allowed_ulps(exact, eager) * values.abs().amax(
        dim, keepdim=True
    )
    short = (values.gather(dim, chosen) - values.gather(dim, exact.indices)).abs()
    if exact.running:
        positions = torch.arange(exact.length, device=chosen.device).unsqueeze(-1)
        before = (
            chosen.movedim(dim, 0).flatten(1) <= positions
            if chosen.dim() > 1
            else chosen <= positions.squeeze(-1)
        )
        named = (
            (chosen == exact.indices) | (short > 0) | (noise > 0)
        )  # of equals that nothing rounded, the last
        return bool((short <= allowed).all()) and bool(before.all()) and bool(named.all())
    distinct = chosen.sort(dim).values.diff(dim=dim) != 0
    in_order = (chosen == exact.indices) | (short > 0) if exact.stable else short <= allowed
    return bool((short <= allowed).all()) and bool(distinct.all()) and bool(in_order.all())


def _with_nan_largest(values: Tensor) -> Tensor:
    """Replaces NaN by the largest float32 number: among several NaN torch selects any first."""
    import torch

    return torch.where(values.isnan(), torch.finfo(torch.float32).max, values)


def naming_equals(last: bool) -> Any:
    """Returns a mode in which `topk` selects the first or last of equal values, and whose `seen`
    counts the calls.

    torch does not specify the selection, which affects results computed from the indices (a
    router's load).
    """
    import torch
    from torch.overrides import TorchFunctionMode

    class Naming(TorchFunctionMode):
        seen = 0

        def __torch_function__(
            self, func: Callable[..., Any], types: Types, args: Args = (), kwargs: Kwargs = None
        ) -> Any:
            named = kwargs or {}
            out = func(*args, **named)
            if "out" in named:
                return out
            (call,) = index_calls(func, out, args, named, ("topk",)) or (None,)
            if call is None or call.dim is None:
                return out
            self.seen += 1
            largest = args[3] if len(args) > 3 else named.get("largest", True)
            return _named(call.values, call.dim, call.indices.shape[call.dim], largest, last)

    def _named(values: Tensor, dim: int, count: int, largest: bool, last: bool) -> Any:
        turned = values.flip(dim) if last else values
        ordered = torch.sort(turned, dim=dim, descending=largest, stable=True)
        best, at = ordered.values.narrow(dim, 0, count), ordered.indices.narrow(dim, 0, count)
        return torch.return_types.topk((best, values.shape[dim] - 1 - at if last else at))

    return Naming()
