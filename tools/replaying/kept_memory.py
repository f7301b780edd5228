"""What a candidate keeps on the device between calls, changed by the judge: moved on, or mixed of two states.

A kernel may keep its inputs and its answer, compare the next inputs with those, and give the kept answer back: nothing
is computed then, and the answer is right. So the memory that follows the inputs is put together of what two calls on
different inputs left. Whoever only works there, or writes before it reads, is right all the same.

Example: after a call on `a` there are `[a, f(a)]`, after one on `b` `[b, f(b)]`. Over `[a, f(b)]` the next call on `a`
gives `f(b)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from kernelwright.tools.numerics.bits import same_bits

if TYPE_CHECKING:
    import torch

MAX_TENSORS_BY_THEMSELVES = 4
"""Tensors of which each is once of the other state alone."""
FEW_ELEMENTS = 16
"""Elements of the other state among those that keys and answers may lie between."""


def as_if_called_again(
    before: Sequence[torch.Tensor], now: Sequence[torch.Tensor], times: int
) -> dict[int, torch.Tensor]:
    """Returns, by position, the changed tensors, each advanced by `times` repetitions of the last change.

    Example: before [3], now [5], times 10 gives {0: [25]}.
    """
    import torch

    moved: dict[int, torch.Tensor] = {}
    for place, (old, new) in enumerate(zip(before, now, strict=False)):
        if old.shape != new.shape or new.dtype == torch.bool or new.is_complex():
            continue
        wide = torch.float64 if new.is_floating_point() else torch.int64
        step = new.to(wide) - old.to(wide)
        if bool(torch.isfinite(step).all()) and bool((step != 0).any()):
            moved[place] = (new.to(wide) + times * step).to(new.dtype)
    return moved


def mixtures(states: Sequence[Sequence[torch.Tensor]], seed: int) -> Iterator[list[torch.Tensor]]:
    """Yields mixtures of two states, each the tensors of the first one with a part of the second one.

    The part is one tensor that differs, or of all of them one half, the last quarter, every second element by chance, a
    few elements, or a single one. Nothing where the states are equal.
    """
    import torch

    first, second = states
    differing = [n for n, (a, b) in enumerate(zip(first, second, strict=True)) if _differ(a, b)]
    for place in differing[:MAX_TENSORS_BY_THEMSELVES] if len(differing) > 1 else ():
        yield [second[n] if n == place else tensor for n, tensor in enumerate(first)]
    generator = torch.Generator().manual_seed(seed)
    for part in ("first half", "last half", "last quarter", "by chance", "few", "one", "one"):
        mixed = list(first)
        for place in differing:
            mask = _mask(first[place].numel(), part, generator).view(first[place].shape)
            mixed[place] = torch.where(mask.to(first[place].device), second[place], first[place])
        if differing:
            yield mixed


def _differ(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.shape == other.shape and not same_bits(one, other)


def _mask(count: int, part: str, generator: torch.Generator) -> torch.Tensor:
    """Returns a boolean for each element, true where the second state's is taken."""
    import torch

    place = torch.arange(count)
    if part == "by chance":
        return torch.rand(count, generator=generator) < 1 / 2
    if part in ("few", "one"):
        number = FEW_ELEMENTS if part == "few" else 1
        return torch.isin(place, torch.randint(count, (number,), generator=generator))
    bounds = {"first half": (0, 2), "last half": (2, 4), "last quarter": (3, 4)}
    begin, end = bounds[part]
    return (place >= begin * count // 4) & (place < end * count // 4)
