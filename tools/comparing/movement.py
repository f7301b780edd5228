"""Whether a problem only moves values: each element of its output is one of its inputs' elements, always the same one
whatever they hold (a transposition, an upsampling, a window, a roll), perhaps rounded.

There a kernel's work is the move, and operators of torch that lay values out anew do that work. Found by experiment:
the places that the values of one draw tell must hold on another draw.
"""

from __future__ import annotations

from typing import Any

from kernelwright.tools.references.prepared_problem import Expected

MOST_ELEMENTS = 1 << 22
"""Of inputs and outputs together, over which nothing is found out."""
ROUNDED = ("float32", "bfloat16", "float16")
"""Types that a value may have been rounded to on its way."""


def only_moves(first: Expected, second: Expected) -> bool:
    """Two draws of one problem at one size, of the problem's own inputs."""
    import torch

    pairs = [[_floats(values) for values in (e.inputs, e.eager)] for e in (first, second)]
    (given, made), (other_given, other_made) = pairs
    same_forms = [t.shape for t in (*given, *made)] == [t.shape for t in (*other_given, *other_made)]
    count = sum(t.numel() for t in (*given, *made))
    if not given or not made or not same_forms or count > MOST_ELEMENTS or len(made) != len(first.eager):
        return False
    sources, others = _joined(given), _joined(other_given)
    return any(
        _moved(_through(sources, kind), _joined(made), _through(others, kind), _joined(other_made))
        for kind in (getattr(torch, name) for name in ROUNDED)
    )


def gives_back_an_input(expected: Expected) -> bool:
    """Whether some expected output holds just what an input holds, perhaps in another type: a kernel that copies
    is right then.
    """
    import torch

    given = [v.reshape(-1) for v in expected.inputs if isinstance(v, torch.Tensor)]
    wanted = [o.reshape(-1) for o in expected.eager if isinstance(o, torch.Tensor)]
    return any(w.shape == g.shape and torch.equal(w, g.to(w.dtype)) for w in wanted for g in given)


def _floats(values: list[Any]) -> list[Any]:
    import torch

    return [v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()]


def _joined(tensors: list[Any]) -> Any:
    import torch

    return torch.cat([t.detach().double().reshape(-1) for t in tensors])


def _through(values: Any, kind: Any) -> Any:
    import torch

    return values if kind is torch.float32 else values.to(kind).double()


def _moved(source: Any, made: Any, other_source: Any, other_made: Any) -> bool:
    """Constants (padding) may stand among what is made, where they are the same in both draws."""
    import torch

    ordered, order = torch.sort(source)
    place = torch.searchsorted(ordered, made).clamp_(max=ordered.numel() - 1)
    found = ordered[place] == made
    if not bool(found.any()) or not bool((found | (made == other_made)).all()):
        return False
    alike = other_source[order[place]] == other_made
    rounded_alike = torch.unique(source).numel() < source.numel()  # equal values do not tell their places apart
    held = alike[found]
    return bool(held.all()) if not rounded_alike else bool(held.double().mean() > 0.5)
