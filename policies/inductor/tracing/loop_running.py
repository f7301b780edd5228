"""Runtime functions called by rewritten loops (`loop_syntax`): the loop itself, and the
lists loops fill.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

from kernelwright.policies.inductor.tracing.loops import (
    in_a_step,
    keeps_loops,
    over_steps,
)
from kernelwright.policies.inductor.tracing.step_inputs import Unsuited

if TYPE_CHECKING:
    import torch


class Stacked(list[Any]):
    """A list of as many tensors as a loop has steps: `torch.stack` and `torch.cat` take it."""

    def __init__(self, before: list[Any], steps: torch.Tensor) -> None:
        """Creates the list. before: earlier elements. steps: elements appended by the loop,
        stacked along the first dimension.
        """
        super().__init__(before)
        self.steps = steps

    @property
    def before(self) -> list[Any]:
        """Elements of the list from before the loop."""
        return list(list.__iter__(self))

    def stack(self, dim: int = 0) -> Any:
        """Computes `torch.stack` of the list: the elements from before the loop, then an entry
        per step.
        """
        import torch

        entries = self.steps.movedim(0, dim)
        return torch.cat([torch.stack(self.before, dim), entries], dim) if len(self) else entries

    def cat(self, dim: int = 0) -> Any:
        """`torch.cat` of the list along `dim` of its entries."""
        import torch

        dim = dim % (self.steps.dim() - 1)
        entries = self.steps.movedim(0, dim).flatten(dim, dim + 1)
        return torch.cat([*self.before, entries], dim) if len(self) else entries

    def __getitem__(self, index: object) -> Any:
        if index == -1:
            return self.steps[-1]
        if isinstance(index, slice) and index == slice(None, None, -1) and not len(self):
            return Stacked([], self.steps.flip(0))
        raise Unsuited("an element in the middle of a list that a loop over a size fills")

    def __iter__(self) -> Any:
        raise Unsuited("a second loop over a list that a loop over a size fills")

    def insert(self, index: object, value: object) -> None:
        """Raises Unsuited: no element can be put between those collected by a loop."""
        raise Unsuited("an element is put into a list that a loop over a size fills")

    def reverse(self) -> None:
        """Turns the order of the steps round, as `list.reverse` does."""
        self.steps = self.steps.flip(0)


def own_copy(changed: object) -> Any:
    """Returns a copy a step may modify. Raises Unsuited for a view, whose base would not be
    updated.
    """
    import torch

    if not in_a_step():
        return changed
    if isinstance(changed, list | dict):
        return changed.copy()
    if isinstance(changed, torch.Tensor) and changed._is_view():
        raise Unsuited("a loop over a size writes into a part of a tensor")
    return changed.clone() if isinstance(changed, torch.Tensor) else changed


def last_element(listed: list[Any]) -> Any:
    """Returns the last element of a list; None for an empty list."""
    return listed[-1] if isinstance(listed, Stacked) or listed else None


def run_loop(step: Callable[..., Any], ranged: tuple[Any, ...], state: dict[str, Any], lists: dict[str, list[Any]],
    rows: dict[str, tuple[Any, int]]) -> dict[str, Any]:  # fmt: skip
    """Runs a `for` loop, by `over_steps` if the count is symbolic; returns the values of all
    names afterwards.
    """
    import torch
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    start, stop, stride = _bounds(ranged)
    count = (stop - start) if stride == 1 else (start - stop) if stride == -1 else None
    if (
        not isinstance(count, torch.SymInt)
        or not keeps_loops()
        or any(isinstance(v, Stacked) for v in lists.values())
    ):
        return _as_it_is(step, range(start, stop, stride), state, lists, rows)

    # Tensors that the steps fill row by row, with the axis of the rows.
    rows = {n: (t, d % t.dim()) for n, (t, d) in rows.items()}
    wide = {n: [*t.shape[:d], *t.shape[d + 1 :]] for n, (t, d) in rows.items()}

    def body(at: int, carried: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        gives: dict[str, list[Any]] = {}
        after, last = step(start + at * stride, carried, gives)
        if any(len(v) != 1 or not isinstance(v[0], torch.Tensor) for v in gives.values()):
            raise Unsuited("a loop over a size appends several values in one step, or no tensor")
        for name, shape in wide.items():
            gives[name] = [torch.broadcast_to(gives[name][0], shape)]
        tensors = {n: v for n, v in last.items() if isinstance(v, torch.Tensor)}
        return after, {n: v[0] for n, v in gives.items()} | {
            f"last_{n}": v for n, v in tensors.items()
        }

    after, stacked = over_steps(body, count, state)
    values = dict(after)
    values |= {n: Stacked(v, stacked[n]) for n, v in lists.items()}
    for name, (tensor, dim) in rows.items():
        # A loop that counts down has stacked the rows in reverse.
        order = stacked[name].flip(0) if stride == -1 else stacked[name]
        first = start if stride > 0 else start + (count - 1) * stride
        whole = order.movedim(0, dim).to(tensor.dtype)
        complete = statically_known_true(first == 0) and statically_known_true(
            tensor.shape[dim] == count
        )
        values[name] = whole if complete else tensor.slice_scatter(whole, dim, first, first + count)
    values |= {n.removeprefix("last_"): v[-1] for n, v in stacked.items() if n.startswith("last_")}
    return _Values(values)


class _Values(dict[str, Any]):
    """Values of names after a loop; None for names without a tensor."""

    def __missing__(self, name: str) -> None:
        return None


def _bounds(ranged: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    if len(ranged) == 1:
        return 0, ranged[0], 1
    return ranged[0], ranged[1], ranged[2] if len(ranged) == 3 else 1


def _as_it_is(step: Callable[..., Any], steps: range, state: dict[str, Any], lists: dict[str, list[Any]],
    rows: dict[str, tuple[Any, int]]) -> dict[str, Any]:  # fmt: skip
    last: dict[str, Any] = {}
    for at in steps:
        gives: dict[str, list[Any]] = {}
        state, last = step(at, state, gives)
        for name, (tensor, dim) in rows.items():
            if name in gives:
                _write(tensor, dim, at, gives[name][0])
        for name, held in lists.items():
            held.extend(gives.get(name, []))
    return _Values(state | last | lists | {n: t for n, (t, _) in rows.items()})


def _write(written: object, dim: int, at: int, value: object) -> None:
    """Writes a row of a tensor, or an element of a list."""
    import torch

    if not isinstance(written, torch.Tensor):
        cast("list[Any]", written)[at] = value
    elif isinstance(value, torch.Tensor):
        written.select(dim, at).copy_(value)
    else:
        written.select(dim, at).fill_(cast(float, value))


def stack(tensors: Sequence[torch.Tensor], dim: int = 0) -> Any:
    """Stacks a list filled by a loop, or calls `torch.stack` on ordinary tensors."""
    import torch

    if isinstance(tensors, Stacked):
        return tensors.stack(dim)
    return torch._C._VariableFunctions.stack(list(tensors), dim)


def cat(tensors: Sequence[torch.Tensor], dim: int = 0, **options: Any) -> Any:
    """Joins a list filled by a loop, or calls `torch.cat` on ordinary tensors."""
    import torch

    if isinstance(tensors, Stacked):
        return tensors.cat(dim)
    return torch._C._VariableFunctions.cat(list(tensors), dim, **options)
