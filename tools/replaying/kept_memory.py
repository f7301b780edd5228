"""Changes the tensors that a candidate keeps on the device between calls: advances them, or mixes two states of them.

A kernel may store its inputs and its output, compare the next inputs with the stored ones, and return the stored output
without computing anything. Its output is right until the judge mixes the states after two calls on different inputs. A
candidate which uses this memory as scratch, written before it is read, stays right over any mixture.

Example: a call on `a` leaves `[a, f(a)]`, a call on `b` leaves `[b, f(b)]`. Over the mixture `[a, f(b)]` the next call
on `a` returns `f(b)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelwright.tools.numerics.bits import same_bits

if TYPE_CHECKING:
    import torch

MAX_TENSORS_BY_THEMSELVES = 4
"""Maximum number of mixtures that take a single tensor from the second state."""
FEW_ELEMENTS = 16
"""Elements that the mixture "few" takes from the second state, in each tensor."""
MIXED_SHARES = ("first half", "last half", "last quarter", "by chance", "few", "one", "one")
"""Shares of all tensors that mixtures take from the second state."""


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


def mixture(states: Sequence[Sequence[torch.Tensor]], number: int) -> list[torch.Tensor] | None:
    """Returns a mixture of two states: the tensors of the first, with a part from the second; None beyond the last.

    The part is a single tensor, or the same share of every tensor: a half, the last quarter, a random half of the
    elements, FEW_ELEMENTS of them, or a single element. Equal states have no mixture. number: of the part, from 0, and
    the seed of what is random in it.
    """
    import torch

    first, second = states
    differing = [n for n, (a, b) in enumerate(zip(first, second, strict=True)) if _differ(a, b)]
    alone = differing[:MAX_TENSORS_BY_THEMSELVES] if len(differing) > 1 else []
    if not differing or number >= len(alone) + len(MIXED_SHARES):
        return None
    mixed = list(first)
    if number < len(alone):
        mixed[alone[number]] = second[alone[number]]
        return mixed
    for position in differing:
        tensor = first[position]
        generator = torch.Generator(tensor.device).manual_seed(number)
        mask = _mask(tensor.numel(), MIXED_SHARES[number - len(alone)], generator)
        mixed[position] = torch.where(mask.view(tensor.shape), second[position], tensor)
    return mixed


def restore(tensors: Sequence[torch.Tensor], state: Sequence[torch.Tensor]) -> None:
    """Copies a state into tensors, in place; what holds it already is not written.

    An expanded tensor has no memory of its own: what it is expanded from is restored.
    """
    for tensor, value in zip(tensors, state, strict=False):
        is_expanded = any(
            s == 0 and n > 1 for s, n in zip(tensor.stride(), tensor.shape, strict=True)
        )
        if not is_expanded and not same_bits(tensor, value):
            tensor.copy_(value)


def _differ(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and not same_bits(a, b)


def _mask(count: int, share: str, generator: torch.Generator) -> torch.Tensor:
    """Returns a boolean per element, on the generator's device, true for elements from the second state."""
    import torch

    device = generator.device
    if share == "by chance":
        return torch.rand(count, generator=generator, device=device) < 1 / 2
    mask = torch.zeros(count, dtype=torch.bool, device=device)
    if share in ("few", "one"):
        number = FEW_ELEMENTS if share == "few" else 1
        mask[torch.randint(count, (number,), generator=generator, device=device)] = True
    else:
        begin, end = {"first half": (0, 2), "last half": (2, 4), "last quarter": (3, 4)}[share]
        mask[begin * count // 4 : end * count // 4] = True
    return mask
