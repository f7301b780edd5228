"""Inputs that are equal in every draw of `get_inputs` (zeros, masks, positions, lengths), drawn anew from their
carrier: a kernel that works them out, or leaves them out, is then wrong.

Floats are normal numbers, booleans fall by a coin, and so do inputs of two values; whole numbers come from the range
that they show, in their order where they never fall, and as a permutation where each is there once. The reference is
the oracle of its domain: where it raises, or is not finite, on what was drawn, values nearer to the problem's own are
tried. An input whose values it does not use stays as it is: nothing says which other values are legal.

Example: `torch.full((4,), 128)` (every sequence is full) becomes `[17, 128, 3, 90]`; a causal mask of True and False
gets random places, at first everywhere, then in one place of eight, so that no row is without any True.
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
"""Draws in which an input must be equal to count as one that never varies."""
SHARES = (1.0, 0.25, 0.05)
"""Shares of the elements that are drawn anew, tried in this order."""
TRIES_PER_SHARE = 2

Accepts = Callable[[list[Any]], bool]
"""Whether the reference answers these inputs with finite numbers, and otherwise than the problem's own."""


def constant_inputs(draws: Sequence[Sequence[Any]]) -> tuple[int, ...]:
    """Returns the places of the tensors that are equal in all of several draws."""
    import torch

    first, *others = draws
    return tuple(
        place
        for place, value in enumerate(first)
        if isinstance(value, torch.Tensor)
        and value.numel()
        and all(same_bits(value, draw[place]) for draw in others)
    )


def redraw_constant_inputs(
    prepared: PreparedProblem, model: Any, inputs: list[Any], seed: int
) -> tuple[int, ...]:
    """Draws the inputs of a prepared problem that never vary anew, in place of the list. Returns their places.

    On a GPU whole numbers are left alone: an index out of range ends the process there.
    """
    import torch

    reference = prepared.reference
    draws = [reference.inputs(seed + number) for number in range(1, EQUAL_DRAWS)]
    places = constant_inputs([inputs, *draws])
    if reference.device != "cpu":
        places = tuple(
            p for p in places if inputs[p].is_floating_point() or inputs[p].dtype == torch.bool
        )

    def answer(drawn: list[Any]) -> list[Any]:
        copies = [v.clone() if isinstance(v, torch.Tensor) else v for v in drawn]
        outputs = reference.run(model, copies, seed & 0x7FFFFFFF)
        return [o for o in outputs if isinstance(o, torch.Tensor)]

    before = answer(inputs) if places else []

    def accepts(drawn: list[Any]) -> bool:
        try:
            outputs = answer(drawn)
        except ProblemError:
            return False
        floating = [o for o in outputs if not is_whole(o) and o.itemsize > 1]
        finite = all(bool(o.isfinite().all()) for o in floating)
        return finite and any(not same_bits(o, b) for o, b in zip(outputs, before, strict=False))

    return redraw(inputs, places, seed, accepts)


def is_whole(tensor: torch.Tensor) -> bool:
    """Whether a tensor holds whole numbers or booleans."""
    return not (tensor.is_floating_point() or tensor.is_complex())


def redraw(
    inputs: list[Any], places: Sequence[int], seed: int, accepts: Accepts
) -> tuple[int, ...]:
    """Draws the inputs at these places anew, as far from the problem's own as the reference accepts. Returns the places
    that were changed; `inputs` is changed in place of the list.
    """
    import torch

    generator = torch.Generator().manual_seed(seed)
    changed: list[int] = []
    for place in places:
        for drawn in _nearer_and_nearer(inputs[place], generator):
            if same_bits(drawn, inputs[place]):
                continue
            if accepts([*inputs[:place], drawn, *inputs[place + 1 :]]):
                inputs[place] = drawn
                changed.append(place)
                break
    return tuple(changed)


def _nearer_and_nearer(own: torch.Tensor, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Yields other values for a tensor, the farthest from its own ones first."""
    import torch

    if own.is_complex():
        parts = torch.view_as_real(own.resolve_conj().contiguous())
        yield from (torch.view_as_complex(drawn) for drawn in _nearer_and_nearer(parts, generator))
    elif own.dtype == torch.bool or own.is_floating_point():
        drawing = _coins if own.dtype == torch.bool or holds_two_values(own) else _normal_numbers
        for share in SHARES:
            for _ in range(TRIES_PER_SHARE):
                where = torch.rand(own.shape, generator=generator).to(own.device) < share
                yield torch.where(where, drawing(own, generator), own)
    else:
        yield from _whole_numbers(own, generator)


def _coins(own: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """One of the two values of a tensor for each element; True and False for booleans. Of four rows two fall by a coin,
    one begins with the first value and ends with the other, and one holds a single element of the first.
    """
    import torch

    heads = torch.rand(own.shape, generator=generator) < 0.5
    if own.dim() and own.shape[-1] > 1:
        columns, places = own.shape[-1], torch.arange(own.shape[-1])
        lengths, singles, turns = (
            torch.randint(1 << 30, (*own.shape[:-1], 1), generator=generator) for _ in range(3)
        )
        heads = torch.where(turns % 4 == 2, places <= lengths % columns, heads)
        heads = torch.where(turns % 4 == 3, places == singles % columns, heads)
    heads = heads.to(own.device)
    return heads if own.dtype == torch.bool else torch.where(heads, own.amax(), own.amin())


def _normal_numbers(own: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Normal numbers of the tensor's own size, which rise or repeat where its own numbers do."""
    import torch

    size = float(own.double().abs().mean()) or 1.0
    drawn = (torch.randn(own.shape, generator=generator) * size).to(own.device, own.dtype)
    if (
        own.dim()
        and own.shape[-1] > 1
        and own.itemsize > 1
        and bool((own != own.flatten()[0]).any())
    ):
        if bool((own.diff(dim=-1) >= 0).all()):
            return drawn.sort(dim=-1).values
        if own.dim() > 1 and says_things_twice(own):
            return own
    return drawn


def _whole_numbers(own: torch.Tensor, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Whole numbers from the range that the tensor shows; of one number that is everywhere the range begins at 0, then
    at 1.
    """
    import torch

    flat, low, high = own.flatten().cpu(), int(own.min()), int(own.max())

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
        yield values.to(own.device, own.dtype).view(own.shape)


def _rising(
    low: int, high: int, count: int, distinct: bool, generator: torch.Generator
) -> torch.Tensor:
    """Numbers that never fall, from `low` to `high`, both included; each once where the problem's are `distinct`."""
    import torch

    if distinct and high - low < 1 << 20:
        inner = torch.randperm(high - low - 1, generator=generator)[: count - 2] + low + 1
    else:
        inner = torch.randint(low, high + 1, (count - 2,), generator=generator)
    return torch.cat([torch.tensor([low]), inner.sort().values, torch.tensor([high])])
