"""Chooses which numbers of a problem are sizes, and at which of its sizes the problem is traced.

Several attempts are made at a draft; the attempt with the fewest fixed sizes wins.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.decisions.deciding import (
    ActivePlan,
    active_plan,
    deciding,
)
from kernelwright.policies.inductor.decisions.plan import Plan
from kernelwright.policies.inductor.refusing import DraftRefused

if TYPE_CHECKING:
    from kernelwright.policies.inductor.lowering.generating import GeneratedCode
    from kernelwright.policies.inductor.tracing.graph import TracedModel

_LAST_INDEX = re.compile(r"\[\d+\]$")

MAX_OTHER_SIZES = 2
"""Other sizes at which a problem is traced once more."""

MIN_DRAWN_SIZE = 2
"""Smallest value of a size if a problem is judged at several sizes."""

IsFreeNumber = Callable[[int, str], bool]
"""Whether a number of the problem, by its value and path, is a size."""


@dataclass(frozen=True)
class Attempts:
    """A problem's texts, and the guesses at its sizes."""

    base: str
    """The traced text."""
    guesses: Sequence[IsFreeNumber]
    """Predicates that guess which numbers are sizes, the one with the most sizes first."""
    numbers: dict[str, int]
    """The numbers of the problem itself, by their paths."""
    varied: Sequence[tuple[str, dict[str, int]]] = ()
    """The same problem at other sizes, with the numbers of each by their paths."""
    varying: frozenset[str] = frozenset()
    """Paths of constructor arguments that differ between the sizes and that some guess takes for
    sizes.
    """


def attempts_at(source: str, varied: list[str]) -> Attempts:
    """Reads the numbers of the problem at every size. Raises the problem's own exceptions."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kernelwright.policies.inductor.tracing.graph import numbers_of
    from kernelwright.policies.inductor.tracing.sizes import is_extent, sizes_among, sizes_over

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    guesses = [sizes_over(3), sizes_over(8), sizes_over(1 << 62)]
    base_numbers = numbers_of(source, mode)
    varied_numbers = [numbers_of(text, mode) for text in varied]
    varying = _varying_paths(base_numbers, varied_numbers)
    base, numbers = source, base_numbers
    # A size of 1 would be traced as a broadcast: the first other text without such a size is traced.
    if any(base_numbers[path] == 1 for path in varying):
        for other_text, other_numbers in zip(varied, varied_numbers, strict=True):
            if all(other_numbers.get(path) != 1 for path in varying):
                base, numbers = other_text, other_numbers
                break
    if varied:
        guesses = [sizes_among(varying, 1 << 62), sizes_among(varying, 3), *guesses]
    free_paths = {
        p
        for p in varying
        if not is_extent(p) and any(free(base_numbers.get(p, 0), p) for free in guesses)
    }
    return Attempts(
        base,
        distinct_guesses(guesses, numbers),
        base_numbers,
        list(zip(varied, varied_numbers, strict=True)),
        frozenset(free_paths),
    )


def distinct_guesses(guesses: list[IsFreeNumber], numbers: dict[str, int]) -> list[IsFreeNumber]:
    """Returns the guesses without those that select the same constructor numbers as an earlier
    guess.
    """
    from kernelwright.policies.inductor.tracing.sizes import is_extent

    guess_of_paths: dict[frozenset[str], IsFreeNumber] = {}
    for free in guesses:
        built = frozenset(p for p, n in numbers.items() if not is_extent(p) and free(n, p))
        guess_of_paths.setdefault(built, free)
    return list(guess_of_paths.values())


def _varying_paths(base_numbers: dict[str, int], varied_numbers: list[dict[str, int]]) -> set[str]:
    """Returns the paths of numbers that differ between the sizes.

    A list may be shorter at a small size (a network with fewer layers): its missing elements vary
    as the others do.
    """
    varying: set[str] = set()
    lacking: set[str] = set()
    for path, number in base_numbers.items():
        if any(numbers.get(path, number) != number for numbers in varied_numbers):
            varying.add(path)
        if any(path not in numbers for numbers in varied_numbers):
            lacking.add(path)
    lists: set[str] = set()
    for path in varying:
        if _LAST_INDEX.search(path) and ".shape[" not in path:
            lists.add(_LAST_INDEX.sub("", path))
    return varying | {path for path in lacking if _LAST_INDEX.sub("", path) in lists}


@dataclass(frozen=True)
class TracedAttempt:
    """A problem traced with a guess at its sizes. It can be lowered any number of times."""

    traced: TracedModel
    wanting: int
    """Sizes that vary and are numbers in the graph, and sizes merged by coincidence."""
    strict: bool
    """Whether every operator needs a kernel of the draft."""
    tf32: bool

    def lower(self, plan: Plan | None = None) -> dict[str, Any]:
        """Returns the fields of a Draft, and those of a LoweredPlan if a plan is lowered.

        Raises DraftRefused, PlanRefused, and the exceptions of Inductor.
        """
        if plan is None:
            return self._draft_fields(generated_code(self.traced))
        with deciding(plan) as active:
            generated = generated_code(self.traced)
            active.require_legal()
            fields = self._draft_fields(generated)
        return {**fields, **_decided_fields(active, generated)}

    def count(self, plan: Plan) -> dict[str, Any]:
        """Returns the fields of a LoweredPlan without a draft: the graph is scheduled, and no code is generated."""
        with deciding(plan) as active:
            generated = generated_code(self.traced, code=False)
        return _decided_fields(active, generated)

    def _draft_fields(self, generated: GeneratedCode) -> dict[str, Any]:
        from kernelwright.policies.inductor.writing.candidate import write_candidate

        traced = self.traced
        draft = write_candidate(traced, generated, self.tf32)
        if self.strict and draft.library_calls:
            library_operators = dict.fromkeys(draft.library_calls)
            raise DraftRefused(
                f"no kernel of its own for {', '.join(library_operators)}",
                operator=next(iter(library_operators)),
            )
        return {
            "wanting": self.wanting,
            "source": draft.source, "kernels": draft.kernels, "library_calls": list(draft.library_calls),
            "fixed_sizes": [*traced.fixed, *(f"{a} = {b}" for a, b in traced.equalities)],
            "symbols": len(traced.sizes.by_path), "half_precision": _is_half(traced),
        }  # fmt: skip


def _decided_fields(active: ActivePlan, generated: GeneratedCode) -> dict[str, Any]:
    return {
        "facts": generated.facts.model_dump(mode="json"),
        "opened": [decision.model_dump(mode="json") for decision in active.opened],
    }


def trace_attempt(
    attempts: Attempts, free: IsFreeNumber, strict: bool, tf32: bool
) -> TracedAttempt:
    """Traces the problem. Raises DraftRefused, and the exceptions of the problem or torch."""
    from kernelwright.policies.inductor.tracing.graph import trace

    traced, least = trace(attempts.base, free, partial=not strict), None
    # A slice may leave its axis at another size: trace again, with clipped slices.
    if _slices_end_outside(traced, attempts):
        least = _least(attempts)
        traced = trace(attempts.base, free, partial=not strict, least=least)
    # Sizes that are equal only at the problem's own sizes are traced at other sizes.
    traced = _without_chance(traced, attempts, free, strict, least)
    numbers = [p for p in sorted(attempts.varying) if p not in traced.sizes.by_path]
    traced.numbers = tuple(map(traced.constructor_name, numbers))
    varying_fixed = [p for p in traced.sizes.fixed() if _size_varies(p, attempts)]
    traced.for_gpu = tf32  # which a draft for a CPU does not use
    traced.required = _required([*traced.sizes.fixed(), *numbers], traced, attempts)
    wanting = len(varying_fixed) + len(traced.numbers) + len(traced.equalities)
    return TracedAttempt(traced, wanting, strict, tf32)


def _is_half(traced: TracedModel) -> bool:
    """Whether a tensor that goes into forward is of half precision."""
    types = {str(getattr(value, "dtype", "")) for value in traced.flat}
    return bool(types & {"torch.float16", "torch.bfloat16"})


def generated_code(traced: TracedModel, code: bool = True) -> GeneratedCode:
    """Generates the code of a traced module; after a failure of Inductor again without kernel
    fusion.

    Most of Inductor's failures come from fused kernels. code: False counts the launches alone.
    """
    from torch._inductor import config

    from kernelwright.policies.inductor.lowering.generating import generate

    try:
        return generate(traced, code)
    except DraftRefused:
        raise
    except Exception as error:  # whatever Inductor raises; its own reason is told where the second attempt fails, too
        active = active_plan()
        if active is not None:
            active.restart()
        try:
            with config.patch(max_fusion_size=1):
                return generate(traced, code)
        except Exception:
            raise error from None


def _slices_end_outside(traced: TracedModel, attempts: Attempts) -> bool:
    """Whether slices that are active to lie in their axes do not, at some size of the problem, or may not."""
    from kernelwright.policies.inductor.tracing.sizes import is_extent

    traced.slices.simplify(traced.sizes.env.replace)
    symbols = {path: value.node.expr for path, value in traced.sizes.by_path.items()}
    windows = [(symbol, size) for size, symbol in traced.mode.windows.symbols.items()]
    for _, numbers in attempts.varied:
        values = {symbols[path]: number for path, number in numbers.items() if path in symbols}
        for symbol, size in windows:
            values[symbol] = size.subs(values)
        if traced.slices.broken_at(values):
            return True
    varying = {
        symbols[path] for path in symbols if is_extent(path) and _size_varies(path, attempts)
    }
    return bool(attempts.varied) and traced.slices.longer_than(MIN_DRAWN_SIZE, varying)


def _least(attempts: Attempts) -> dict[str, int]:
    """Returns the smallest value of each size."""
    return {
        path: MIN_DRAWN_SIZE if _size_varies(path, attempts) else number
        for path, number in attempts.numbers.items()
    }


def _required(paths: list[str], traced: TracedModel, attempts: Attempts) -> list[tuple[str, str]]:
    """Returns the conditions on the sizes of a call: numbers in the draft, and sizes assumed to
    be equal.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kernelwright.policies.inductor.tracing.graph import numbers_of

    pairs = [(b, a) for a, b in _sizes_merged_by_chance(traced, attempts)]
    if paths:
        traced_at = numbers_of(traced.text.source, FakeTensorMode(allow_non_fake_inputs=True))
        pairs += [(p, str(traced_at[p])) for p in paths if p in traced_at]
    return pairs


def _size_varies(path: str, attempts: Attempts) -> bool:
    """Returns whether a size differs at some size of the problem; True if no other size is known."""
    base_number = attempts.numbers.get(path)
    return not attempts.varied or any(
        numbers.get(path) != base_number for _, numbers in attempts.varied
    )


def size_freedom(draft: dict[str, Any]) -> tuple[int, int]:
    """Returns a sort key for drafts: few fixed sizes first, then many symbols."""
    return -len(draft["fixed_sizes"]), draft["symbols"]


def _without_chance(
    traced: TracedModel,
    attempts: Attempts,
    free: IsFreeNumber,
    strict: bool,
    least: dict[str, int] | None,
) -> Any:
    """Traces the problem at other sizes if sizes are equal by coincidence, and returns the best
    graph.

    If a size equals a window or another size only at the problem's own sizes, tracing merges the
    two. The problem is
    traced at other sizes; such a graph is valid everywhere if its operators are the same, since
    then no decision depended
    on the coincidence. Otherwise the graph at the problem's own sizes is returned, with its
    equalities recorded.
    """
    from kernelwright.policies.inductor.tracing.graph import trace

    def bound(model: TracedModel) -> int:
        return sum(_size_varies(p, attempts) for p in model.sizes.fixed()) + len(
            _sizes_merged_by_chance(model, attempts)
        )

    best = traced
    for text, numbers in list(attempts.varied)[:MAX_OTHER_SIZES] if bound(traced) else ():
        # A size of 1 would be traced as a broadcast.
        if 1 in numbers.values():
            continue
        try:
            other = trace(text, free, partial=not strict, least=least)
        except Exception:  # there is a graph, whatever the problem or torch says of this one
            continue
        if bound(other) < bound(best) and operators(other) == operators(traced):
            best = other
        if not bound(best):
            break
    best.equalities = tuple(
        (best.constructor_name(b), best.constructor_name(a))
        for a, b in _sizes_merged_by_chance(best, attempts)
    )
    return best


def _sizes_merged_by_chance(traced: TracedModel, attempts: Attempts) -> list[tuple[str, str]]:
    """Returns pairs of sizes merged by tracing although they differ at some size of the problem."""
    pairs = traced.sizes.merged()
    return [(a, b) for a, b in pairs if any(n.get(a) != n.get(b) for _, n in attempts.varied)]


def operators(traced: TracedModel) -> list[str]:
    """Returns the operators of a graph and of its loops in order, with real numbers, flags and
    words, without sizes.
    """
    import torch

    descriptions = []
    assert traced.loops is not None
    for graph in [traced.graph, *(body.graph for body in traced.loops.bodies)]:
        for node in graph.graph.nodes:
            if node.op != "call_function" or isinstance(
                node.meta.get("val"), torch.SymInt | torch.SymFloat | torch.SymBool
            ):
                continue
            arguments = torch.utils._pytree.tree_leaves((node.args, node.kwargs))
            words = [str(v) for v in arguments if isinstance(v, float | bool | str | torch.dtype)]
            descriptions.append(" ".join([str(node.target), *words]))
    return descriptions
