"""Changes the tensors that a candidate keeps on the device between calls: advances them, or mixes two states of them.

A kernel may store its inputs and its output, compare the next inputs with the stored ones, and return the stored output
without computing anything. Its output is right until the judge mixes the states after two calls on different inputs. A
candidate which uses this memory as scratch, written before it is read, stays right over any mixture.

Example: a call on `a` leaves `[a, f(a)]`, a call on `b` leaves `[b, f(b)]`. Over the mixture `[a, f(b)]` the next call
on `a` returns `f(b)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kernelwright.tools.numerics.bits import same_bits

if TYPE_CHECKING:
    import torch

MAX_TENSORS_BY_THEMSELVES = 4
"""Maximum number of mixtures that take a single tensor from the second state."""
FEW_ELEMENTS = 16
"""Elements that the mixture "few" takes from the second state, in each tensor."""


def as_if_called_again(
    before: Sequence[torch.Tensor], now: Sequence[torch.Tensor], times: int
) -> dict[int, torch.Tensor]:
    """Returns, by position, the changed tensors, each advanced by `times` repetitions of the last change.

    Example: before [3], now [5], times 10 gives {0: [25]}.
    """
    import torch

    moved: dict[int, torch.Tensor] = {}
    for position, (old, new) in enumerate(zip(before, now, strict=False)):
        if old.shape != new.shape or new.dtype == torch.bool or new.is_complex():
            continue
        wide = torch.float64 if new.is_floating_point() else torch.int64
        step = new.to(wide) - old.to(wide)
        if bool(torch.isfinite(step).all()) and bool((step != 0).any()):
            moved[position] = (new.to(wide) + times * step).to(new.dtype)
    return moved


def mixtures(states: Sequence[Sequence[torch.Tensor]], seed: int) -> Iterator[list[torch.Tensor]]:
    """Yields mixtures: the tensors of the first state, with a part from the second state.

    The part is a single tensor, or the same share of every tensor: a half, the last quarter, a random half of the
    elements, FEW_ELEMENTS of them, or a single element. Equal states yield nothing.
    """
    import torch

    first, second = states
    differing = [n for n, (a, b) in enumerate(zip(first, second, strict=True)) if _differ(a, b)]
    for position in differing[:MAX_TENSORS_BY_THEMSELVES] if len(differing) > 1 else ():
        yield [second[n] if n == position else tensor for n, tensor in enumerate(first)]
    generator = torch.Generator().manual_seed(seed)
    for part in ("first half", "last half", "last quarter", "by chance", "few", "one", "one"):
        mixed = list(first)
        for position in differing:
            mask = _mask(first[position].numel(), part, generator).view(first[position].shape)
            mixed[position] = torch.where(
                mask.to(first[position].device), second[position], first[position]
            )
        if differing:
            yield mixed


def _differ(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and not same_bits(a, b)


def _mask(count: int, part: str, generator: torch.Generator) -> torch.Tensor:
    """Returns a boolean per element, true for elements from the second state."""
    import torch

    index = torch.arange(count)
    if part == "by chance":
        return torch.rand(count, generator=generator) < 1 / 2
    if part in ("few", "one"):
        number = FEW_ELEMENTS if part == "few" else 1
        return torch.isin(index, torch.randint(count, (number,), generator=generator))
    bounds = {"first half": (0, 2), "last half": (2, 4), "last quarter": (3, 4)}
    begin, end = bounds[part]
    return (index >= begin * count // 4) & (index < end * count // 4)
