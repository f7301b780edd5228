"""Sizes at which a CPU can interpret a problem. Trusted process only.

Numbers written inside Model are not changed: a network with its layers written out keeps its width,
and the note says so.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache

from kernelwright.tools.numerics.tolerance import widened
from kernelwright.tools.problem import Problem, module_integers
from kernelwright.tools.references.dry_run import (
    ReferenceCost,
    count_held_elements,
    measure_cost,
    run_once,
)
from kernelwright.tools.references.size_search import (
    MAX_SHRUNK_ELEMENTS,
    Search,
    changeable_integers,
    fits,
    held_elements,
    is_interpretable,
)
from kernelwright.tools.report import Value

MAX_RUN_FOR_REAL = (1 << 25, 2_000_000_000)
"""Maximum elements and operations for a real run of a reference above the targets."""
OWN_SIZES_ARE_SMALL = "at the problem's own sizes, which are small enough to be interpreted"
GOAL_FACTORS = (1, 2, 4)
"""Factors of larger goals, tried if the outputs are constant: a norm over a single element, a
softmax over a single column."""


class SizesOrigin(StrEnum):
    """How the small sizes of a problem were found."""

    OWN = "own"
    """The reference names its CPU_SIZES."""
    SEARCHED = "searched"
    UNCHANGED = "unchanged"
    """Small already, or nothing can be made smaller: the note says which."""


class SmallSizes(Value):
    """Small sizes of a problem for the interpreter."""

    sizes: dict[str, int]
    """Argument for `Problem.with_sizes`."""
    how: SizesOrigin
    note: str = ""
    fits: bool = True
    """False if still too large for the interpreter, or not running."""
    flat: bool = False
    """Every output is constant at these sizes, which then show little."""


def shrink(problem: Problem) -> SmallSizes:
    """Returns small sizes of a problem, equal on every call and machine.

    The reference ran with them on real data, unless the note says otherwise.
    """
    return _shrink(problem.source)


@lru_cache(maxsize=512)
def _shrink(source: str) -> SmallSizes:
    problem = Problem(name="reference", source=source)
    names = module_integers(source)
    if cpu_sizes := {name: value for name, value in problem.cpu_sizes.items() if name in names}:
        return SmallSizes(sizes=cpu_sizes, how=SizesOrigin.OWN)
    smallest = _attempt(problem, GOAL_FACTORS[0])
    for factor in GOAL_FACTORS[1:] if smallest.flat else ():
        larger = _attempt(problem, factor)
        if larger.fits and not larger.flat:
            return larger
    return smallest


def _attempt(problem: Problem, factor: int) -> SmallSizes:
    search = Search(problem, factor)
    search.run()
    if search.cost is None:
        if unchanged := _as_it_is(problem):
            return unchanged
        reason = search.error or "it takes too many operations to try"
        return SmallSizes(
            sizes={}, how=SizesOrigin.UNCHANGED, note=f"cannot be shrunk: {reason}", fits=False
        )
    if not _runnable(search.cost):
        return _described(problem, search.sizes, search.cost, "not run for real: too large")
    return _confirmed(problem, search)


def _confirmed(problem: Problem, search: Search) -> SmallSizes:
    """Returns sizes at which a real run succeeds.

    After a failure, equal numbers follow a change (the bound of an index its table), or else a
    change is undone.
    """
    trouble = ""
    followed = {**_followers(search), **search.sizes}
    undone = ({n: v for n, v in search.sizes.items() if n != out} for out in reversed(search.sizes))
    for sizes in (search.sizes, followed, *undone):
        try:
            cost = measure_cost(problem.with_sizes(sizes))
            if _runnable(cost):
                finite, flat = _look(run_once(problem.with_sizes(sizes)))
                note = "" if finite else "the outputs are not finite at these sizes"
                return _described(problem, sizes, cost, note).with_(flat=flat)
        except Exception as error:
            trouble = trouble or first_line(error)
    return SmallSizes(
        sizes={}, how=SizesOrigin.UNCHANGED, note=f"cannot be shrunk: {trouble}", fits=False
    )


def _followers(search: Search) -> dict[str, int]:
    """Returns unchanged sizes whose value equals that of a reduced size."""
    new = {search.original[name]: smaller for name, smaller in search.sizes.items()}
    return {name: new[value] for name, value in search.original.items() if value in new}


def _described(
    problem: Problem, sizes: dict[str, int], cost: ReferenceCost, note: str
) -> SmallSizes:
    notes = [note] if note else []
    if not fits(cost):
        notes.append(_why_too_large(problem, sizes, cost))
    elif not sizes:
        notes.append(OWN_SIZES_ARE_SMALL)
    how = SizesOrigin.SEARCHED if sizes else SizesOrigin.UNCHANGED
    return SmallSizes(sizes=sizes, how=how, note="; ".join(notes), fits=is_interpretable(cost))


def _why_too_large(problem: Problem, sizes: dict[str, int], cost: ReferenceCost) -> str:
    """Returns the reason why the problem is still too large."""
    heavy = (
        f"{cost.elements:,} elements"
        if cost.elements > MAX_SHRUNK_ELEMENTS
        else f"{cost.operations:,} operations"
    )
    held = held_elements(cost)
    if not changeable_integers(problem):
        return f"{heavy}: no size is written where it could be changed"
    if held > MAX_SHRUNK_ELEMENTS:
        return f"{heavy}: {held:,} of them weights of layers whose widths are written inside Model"
    return f"{heavy}: nothing more can be made smaller"


def _as_it_is(problem: Problem) -> SmallSizes | None:
    """Returns the own sizes of a reference that does not run without data (it reads values), if
    they are small."""
    try:
        if count_held_elements(problem) > MAX_SHRUNK_ELEMENTS:
            return None
        finite, flat = _look(run_once(problem))
    except Exception:
        return None
    note = (
        OWN_SIZES_ARE_SMALL
        if finite
        else f"{OWN_SIZES_ARE_SMALL}; the outputs are not finite at these sizes"
    )
    return SmallSizes(sizes={}, how=SizesOrigin.UNCHANGED, note=note, flat=flat)


def _runnable(cost: ReferenceCost) -> bool:
    return cost.elements <= MAX_RUN_FOR_REAL[0] and cost.operations <= MAX_RUN_FOR_REAL[1]


def _look(outputs: list[object]) -> tuple[bool, bool]:
    """Returns whether all outputs are finite, and whether all are constant."""
    import torch

    floats = [widened(o) for o in outputs if isinstance(o, torch.Tensor) and o.is_floating_point()]
    wide = [o for o in floats if o.numel() > 1]
    finite = all(bool(torch.isfinite(o).all()) for o in floats)
    return finite, bool(wide) and all(bool((o == o.flatten()[0]).all()) for o in wide)


def first_line(error: BaseException) -> str:
    """Returns the kind of an error and the first line of its message, at most 200 characters."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
