"""Sizes at which a CPU can interpret a problem, and other sizes at which a candidate must be right too.

Trusted process only.

What it does not do: change numbers written inside Model. A network whose layers are written out stays as wide as it is,
and the note says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from functools import lru_cache

from kernelwright.tools.comparing.tolerance import widened
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.dry_run import DryRunFailed, Weight, count_held_elements, run_once, weigh
from kernelwright.tools.report import Value
from kernelwright.tools.sizing.size_search import MOST_ELEMENTS, MOST_OPERATIONS, Search, fits, goal_of, places

MAX_RUN_FOR_REAL = (1 << 25, 2_000_000_000)
"""Elements and operations up to which a reference that stays too large is run for real."""
MAX_INTERPRETED_WEIGHTS = 1 << 22
"""Elements of weights up to which a reference is interpreted whose inputs and operations are few."""
GOAL_FACTORS = (1, 2, 4)
"""Larger goals where the outputs come out flat: a norm over one element, a softmax over one column."""
HIDDEN_BUDGET = 6_000
"""aten calls of all dry runs that look for other sizes of one problem."""


class SizesOrigin(StrEnum):
    """How the small sizes of a problem were found."""

    OWN = "own"
    """The reference names its CPU_SIZES."""
    SEARCHED = "searched"
    UNCHANGED = "unchanged"
    """Small already, or nothing can be made smaller: the note says which."""


class SmallSizes(Value):
    """The small sizes of a problem, at which the interpreter can run it."""

    sizes: dict[str, int]
    """What `Problem.with_sizes` takes."""
    how: SizesOrigin
    note: str = ""
    fits: bool = True
    """False where it stays too large for the interpreter, or does not run."""
    flat: bool = False
    """Every output is constant at these sizes, so that they tell little."""


def shrink(problem: Problem) -> SmallSizes:
    """Small sizes of a problem: the same on every call and machine.

    The reference ran with them once for real, unless the note says otherwise.
    """
    return _shrink(problem.source)


@lru_cache(maxsize=512)
def _shrink(source: str) -> SmallSizes:
    problem = Problem(name="reference", source=source)
    if own := problem.cpu_sizes:
        return SmallSizes(sizes=own, how=SizesOrigin.OWN)
    found = _attempt(problem, GOAL_FACTORS[0])
    for factor in GOAL_FACTORS[1:] if found.flat else ():
        other = _attempt(problem, factor)
        if other.fits and not other.flat:
            return other
    return found


def _attempt(problem: Problem, factor: int) -> SmallSizes:
    search = Search(problem, factor)
    search.run()
    if search.weight is None:
        if found := _as_it_is(problem):
            return found
        why = search.trouble or "it takes too many operations to try"
        return SmallSizes(sizes={}, how=SizesOrigin.UNCHANGED, note=f"cannot be shrunk: {why}", fits=False)
    if not _runnable(search.weight):
        return _described(problem, search.sizes, search.weight, "not run for real: too large")
    return _confirmed(problem, search)


def _confirmed(problem: Problem, search: Search) -> SmallSizes:
    """With the sizes at which a real run succeeds: where it fails, equal numbers follow (the bound of an index its
    table), else one change is undone.
    """
    trouble = ""
    followed = {**_followers(search), **search.sizes}
    undone = ({n: v for n, v in search.sizes.items() if n != out} for out in reversed(search.sizes))
    for sizes in (search.sizes, followed, *undone):
        try:
            weight = weigh(problem.with_sizes(sizes))
            if _runnable(weight):
                finite, flat = _look(run_once(problem.with_sizes(sizes)))
                note = "" if finite else "the outputs are not finite at these sizes"
                return _described(problem, sizes, weight, note).with_(flat=flat)
        except Exception as error:
            trouble = trouble or first_line(error)
    return SmallSizes(sizes={}, how=SizesOrigin.UNCHANGED, note=f"cannot be shrunk: {trouble}", fits=False)


def _followers(search: Search) -> dict[str, int]:
    """Places whose own value is that of one that was made smaller."""
    new = {search.original[name]: smaller for name, smaller in search.sizes.items()}
    return {name: new[value] for name, value in search.original.items() if value in new}


def _described(problem: Problem, sizes: dict[str, int], weight: Weight, note: str) -> SmallSizes:
    notes = [note] if note else []
    if not fits(weight):
        notes.append(_why_too_large(problem, sizes, weight))
    elif not sizes:
        notes.append("small already")
    how = SizesOrigin.SEARCHED if sizes else SizesOrigin.UNCHANGED
    return SmallSizes(sizes=sizes, how=how, note="; ".join(notes), fits=fits(weight) or _heavy_by_weights(weight))


def _heavy_by_weights(weight: Weight) -> bool:
    """Whether only weights are too large: an interpreter has no more to do than elsewhere, and reads them once."""
    held = sum(_numel(shape) for shape in weight.weights)
    rest = weight.elements - held
    return held <= MAX_INTERPRETED_WEIGHTS and rest <= MOST_ELEMENTS and weight.operations <= MOST_OPERATIONS


def _why_too_large(problem: Problem, sizes: dict[str, int], weight: Weight) -> str:
    """Why it is still too large."""
    heavy = f"{weight.elements:,} elements" if weight.elements > MOST_ELEMENTS else f"{weight.operations:,} operations"
    held = sum(_numel(shape) for shape in weight.weights)
    if not places(problem):
        return f"{heavy}: no size is written where it could be changed"
    if held > MOST_ELEMENTS:
        return f"{heavy}: {held:,} of them weights of layers whose widths are written inside Model"
    return f"{heavy}: nothing more can be made smaller"


def _as_it_is(problem: Problem) -> SmallSizes | None:
    """A reference that does not run without data (it reads values), where its own sizes are small."""
    try:
        if count_held_elements(problem) > MOST_ELEMENTS:
            return None
        finite, flat = _look(run_once(problem))
    except Exception:
        return None
    note = "small already" if finite else "small already; the outputs are not finite at these sizes"
    return SmallSizes(sizes={}, how=SizesOrigin.UNCHANGED, note=note, flat=flat)


def _runnable(weight: Weight) -> bool:
    return weight.elements <= MAX_RUN_FOR_REAL[0] and weight.operations <= MAX_RUN_FOR_REAL[1]


def _look(outputs: list[object]) -> tuple[bool, bool]:
    """Whether all outputs are finite, and whether all are constant."""
    import torch

    floats = [widened(o) for o in outputs if isinstance(o, torch.Tensor) and o.is_floating_point()]
    wide = [o for o in floats if o.numel() > 1]
    finite = all(bool(torch.isfinite(o).all()) for o in floats)
    return finite, bool(wide) and all(bool((o == o.flatten()[0]).all()) for o in wide)


def _numel(shape: tuple[int, ...]) -> int:
    import math

    return math.prod(shape)


def hidden_sizes(problem: Problem, base_sizes: dict[str, int]) -> list[dict[str, int]]:
    """Other sizes, best first: the batch one more, every free size odd, the batch one less, every free size small.

    Each holds the base's too.

    With each the reference runs, on other input shapes, and get_init_inputs() and all weights keep theirs, so a built
    candidate can be called again.
    """
    return [dict(sizes) for sizes in _hidden(problem.source, tuple(sorted(base_sizes.items())))]


@lru_cache(maxsize=512)
def _hidden(source: str, base_items: tuple[tuple[str, int], ...]) -> tuple[dict[str, int], ...]:
    look = _Look(Problem(name="reference", source=source), dict(base_items))
    free = look.free()
    if not free:
        return ()
    batch = _batch_first(free)[0]
    wished: list[dict[str, int]] = [
        {batch: free[batch] + 1},
        {name: value + 2 if value % 2 else value - 1 for name, value in free.items()},
        {batch: free[batch] - 1},
        {name: goal_of(value) for name, value in free.items() if goal_of(value) < value},
    ]
    found = {tuple(sorted(changed.items())): changed for changed in wished if changed}
    return tuple({**look.base, **changed} for changed in found.values() if look.runs(changed))


class _Look:
    """Dry runs of one problem at other sizes, as many as the budget allows."""

    def __init__(self, problem: Problem, base: dict[str, int]) -> None:
        self.problem, self.base = problem, base
        self._left = HIDDEN_BUDGET
        self._seen: dict[tuple[tuple[str, int], ...], Weight | None] = {}
        self.own = self._weigh({})

    def free(self) -> dict[str, int]:
        """Sizes that may differ while the model stays the same."""
        values = {n: self.base.get(n, v) for n, v in places(self.problem).items()}
        tried = {n: values[n] for n in _batch_first(values) if values[n] > 2}
        free = {n for n, value in tried.items() if self.runs({n: value + 1})}
        return {n: value for n, value in values.items() if n in free}

    def runs(self, changed: dict[str, int]) -> bool:
        """Returns whether the reference runs with these numbers changed, and computes something else then."""
        weight = self._weigh(changed) if self.own else None
        return self.own is not None and _is_other(weight, self.own)

    def _weigh(self, changed: dict[str, int]) -> Weight | None:
        asked = tuple(sorted(changed.items()))
        if asked not in self._seen:
            self._seen[asked] = self._tried(changed)
        return self._seen[asked]

    def _tried(self, changed: dict[str, int]) -> Weight | None:
        if self._left <= 0:
            return None
        try:
            weight = weigh(self.problem.with_sizes({**self.base, **changed}))
        except DryRunFailed as failed:
            self._left -= failed.ops
            return None
        self._left -= weight.ops
        return weight


def _batch_first(names: Iterable[str]) -> list[str]:
    return sorted(names, key=lambda n: "batch" not in n.lower())


def _is_other(weight: Weight | None, own: Weight) -> bool:
    """Other inputs for the same model."""
    if weight is None or any(0 in shape for shape in weight.inputs + weight.outputs):
        return False
    return weight.inputs != own.inputs and (weight.init, weight.weights) == (own.init, own.weights)


def first_line(error: BaseException) -> str:
    """Returns the kind of an error and the first line of its message, at most 200 characters."""
    return f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:200]}"
