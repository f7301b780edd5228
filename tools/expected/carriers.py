"""Redraws inputs that are equal in every draw of `get_inputs` (zeros, masks, positions, lengths).

A kernel that recomputes or ignores them is then wrong. Floats become normal numbers; booleans, and
inputs of two values, random choices; integers are drawn from the observed range, sorted if they
never decrease, and permuted if each occurs once. The reference decides about the domain: if it
raises, or is not finite, on the new values, values nearer to the problem's own are tried. An input
that the reference does not use is unchanged: nothing shows which other values are legal.

Example: `torch.full((4,), 128)` (every sequence is full) becomes `[17, 128, 3, 90]`; a causal mask
is randomised, at first everywhere, then at an eighth of its positions, so that no row is without
any True.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.numerics.bits import same_bits
from kernelwright.tools.problem import ProblemError
from kernelwright.tools.references.magnitudes import says_things_twice
from kernelwright.tools.references.redrawing.domains import holds_two_values

if TYPE_CHECKING:
    import torch

    from kernelwright.tools.expected.prepared_problem import PreparedProblem

EQUAL_DRAWS = 3
"""Number of draws in which a constant input must be equal."""
SHARES = (1.0, 0.25, 0.05)
"""Shares of the elements that are drawn anew, tried in this order."""
TRIES_PER_SHARE = 2

Accepts = Callable[[list[Any]], bool]
"""Whether the reference answers these inputs with finite numbers, and otherwise than the problem's own."""


def constant_inputs(draws: Sequence[Sequence[Any]]) -> tuple[int, ...]:
    """Returns the indices of the tensors that are equal in all of several draws."""
    import torch

    first, *further_draws = draws
    return tuple(
        index
        for index, value in enumerate(first)
        if isinstance(value, torch.Tensor)
        and value.numel()
        and all(same_bits(value, draw[index]) for draw in further_draws)
    )


def redraw_constant_inputs(
    prepared: PreparedProblem, model: Any, inputs: list[Any], seed: int
) -> tuple[int, ...]:
    """Redraws the constant inputs of a prepared problem, modifying the list. Returns their indices.

    On a GPU integers are unchanged: an index out of range ends the process there.
    """
    import torch

    reference = prepared.reference
    draws = [reference.inputs(seed + number) for number in range(1, EQUAL_DRAWS)]
    indices = constant_inputs([inputs, *draws])
    if reference.device != "cpu":
        indices = tuple(
            p for p in indices if inputs[p].is_floating_point() or inputs[p].dtype == torch.bool
        )

    def answer(drawn: list[Any]) -> list[Any]:
        copies = [v.clone() if isinstance(v, torch.Tensor) else v for v in drawn]
        outputs = reference.run(model, copies, seed & 0x7FFFFFFF)
        return [o for o in outputs if isinstance(o, torch.Tensor)]

    before = answer(inputs) if indices else []

    def accepts(drawn: list[Any]) -> bool:
        try:
            outputs = answer(drawn)
        except ProblemError:
            return False
        floating = [o for o in outputs if not is_whole(o) and o.itemsize > 1]
        finite = all(bool(o.isfinite().all()) for o in floating)
        return finite and any(not same_bits(o, b) for o, b in zip(outputs, before, strict=False))

    return redraw(inputs, indices, seed, accepts)


def is_whole(tensor: torch.Tensor) -> bool:
    """Returns True for a tensor of integers or booleans."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def redraw(
    inputs: list[Any], indices: Sequence[int], seed: int, accepts: Accepts
) -> tuple[int, ...]:
    """Redraws the inputs at these indices, as far from the problem's own as the reference accepts.

    Returns the indices of the changed inputs; modifies `inputs`.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    changed: list[int] = []
    for index in indices:
        for drawn in _nearer_and_nearer(inputs[index], generator):
            if same_bits(drawn, inputs[index]):
                continue
            if accepts([*inputs[:index], drawn, *inputs[index + 1 :]]):
                inputs[index] = drawn
                changed.append(index)
                break
    return tuple(changed)


def _nearer_and_nearer(
    original: torch.Tensor, generator: torch.Generator
) -> Iterator[torch.Tensor]:
    """Yields other values for a tensor, the farthest from its own first."""
    import torch

    if original.is_complex():
        parts = torch.view_as_real(original.resolve_conj().contiguous())
        yield from (torch.view_as_complex(drawn) for drawn in _nearer_and_nearer(parts, generator))
    elif original.dtype == torch.bool or original.is_floating_point():
        drawing = (
            _coins
            if original.dtype == torch.bool or holds_two_values(original)
            else _normal_numbers
        )
        for share in SHARES:
            for _ in range(TRIES_PER_SHARE):
                mask = torch.rand(original.shape, generator=generator).to(original.device) < share
                yield torch.where(mask, drawing(original, generator), original)
    else:
        yield from _whole_numbers(original, generator)


def _coins(original: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns a random choice of the tensor's two values for each element; True and False for
    booleans.

    Of four rows two are random, the third starts with the first value and ends with the other, and
    the fourth has a single element of the first.
    """
    import torch

    heads = torch.rand(original.shape, generator=generator) < 0.5
    if original.dim() and original.shape[-1] > 1:
        columns, columns_range = original.shape[-1], torch.arange(original.shape[-1])
        lengths, singles, turns = (
            torch.randint(1 << 30, (*original.shape[:-1], 1), generator=generator) for _ in range(3)
        )
        heads = torch.where(turns % 4 == 2, columns_range <= lengths % columns, heads)
        heads = torch.where(turns % 4 == 3, columns_range == singles % columns, heads)
    heads = heads.to(original.device)
    return (
        heads
        if original.dtype == torch.bool
        else torch.where(heads, original.amax(), original.amin())
    )


def _normal_numbers(original: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Returns normal numbers of the tensor's magnitude, sorted or repeated if its own numbers are."""
    import torch

    size = float(original.double().abs().mean()) or 1.0
    drawn = (torch.randn(original.shape, generator=generator) * size).to(
        original.device, original.dtype
    )
    if (
        original.dim()
        and original.shape[-1] > 1
        and original.itemsize > 1
        and bool((original != original.flatten()[0]).any())
    ):
        if bool((original.diff(dim=-1) >= 0).all()):
            return drawn.sort(dim=-1).values
        if original.dim() > 1 and says_things_twice(original):
            return original
    return drawn


def _whole_numbers(original: torch.Tensor, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Yields integers from the observed range; for a constant the range starts at 0, then at 1."""
    import torch

    flat, low, high = original.flatten().cpu(), int(original.min()), int(original.max())

    def uniform(first: int, last: int) -> torch.Tensor:
        return torch.randint(first, last + 1, flat.shape, generator=generator, dtype=torch.int64)

    drawn: list[torch.Tensor] = []
    if low == high:
        drawn += [uniform(start, high) for start in (0, 1) if 0 <= start < high]
    elif bool((flat.diff() >= 0).all()):
        distinct = bool((flat.diff() > 0).all())
        drawn += [_rising(low, high, flat.numel(), distinct, generator)]
    else:
        drawn += [uniform(low, high)] if flat.unique().numel() < flat.numel() else []
    if flat.unique().numel() == flat.numel() > 1:
        drawn += [flat[torch.randperm(flat.numel(), generator=generator)]]
    for values in drawn:
        yield values.to(original.device, original.dtype).view(original.shape)


def _rising(
    low: int, high: int, count: int, distinct: bool, generator: torch.Generator
) -> torch.Tensor:
    """Returns nondecreasing numbers from `low` to `high`, inclusive; strictly increasing if
    `distinct`."""
    import torch

    if distinct and high - low < 1 << 20:
        inner = torch.randperm(high - low - 1, generator=generator)[: count - 2] + low + 1
    else:
        inner = torch.randint(low, high + 1, (count - 2,), generator=generator)
    return torch.cat([torch.tensor([low]), inner.sort().values, torch.tensor([high])])
