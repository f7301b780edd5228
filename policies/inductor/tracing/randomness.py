"""Random numbers drawn in forward: no kernel reproduces them, so such problems are refused."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kernelwright.policies.inductor.refusing import DraftRefused, line_text

RANDOMNESS_ADVICE = "give forward what it draws as an input, or put zeros in its place"
"""Advice on random operators."""
_OUTSIDE_TORCH = re.compile(r"\b((np|numpy)\.)?random\.\w+(?=\()")


def draws_random_numbers(operator: object) -> bool:
    """Whether an operator of torch draws random numbers."""
    import torch

    return torch.Tag.nondeterministic_seeded in getattr(operator, "tags", ())


@contextmanager
def without_draws_of_python(source: str) -> Iterator[None]:
    """Raises DraftRefused if the block draws from `random` or `numpy.random`: tracing would
    record a constant.
    """
    import numpy

    before = random.getstate(), str(numpy.random.get_state())
    yield
    if before == (random.getstate(), str(numpy.random.get_state())):
        return
    lines = source.splitlines()
    first_draw = next(
        ((n, m[0]) for n, line in enumerate(lines, 1) if (m := _OUTSIDE_TORCH.search(line))), None
    )
    name, at = (
        (first_draw[1], f" at {line_text(source, first_draw[0])}") if first_draw else ("Python", "")
    )
    raise DraftRefused(f"{name} draws random numbers{at}", advice=RANDOMNESS_ADVICE)


def factories_without_generator() -> list[tuple[str, Any]]:
    """Returns torch's random factories without the `generator` argument, whose operators reject
    symbolic sizes.

    Their results are refused later, by the operators' names.
    """
    import torch

    return [
        (n, _without_generator(getattr(torch, n)))
        for n in ("rand", "randn", "randint", "randperm", "normal")
    ]


def _without_generator(plain: Callable[..., Any]) -> Any:
    def drawn(*args: Any, generator: object = None, **options: Any) -> Any:
        return plain(*args, **options)

    return drawn
