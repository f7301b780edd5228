"""Draws the layouts in which a candidate is given the inputs of its cheapest size, from the verdict's seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.problem import ProblemError
from kernelwright.tools.references.input_spec import InputSpec, input_spec
from kernelwright.tools.sizing.input_layouts import (
    InputLayout,
    Trait,
    draw_layout,
    is_contiguous,
)

if TYPE_CHECKING:
    from kernelwright.tools.sizing.at_size import AtSize
    from kernelwright.tools.sizing.selection import Selection

FLOATING = frozenset({"float64", "float32", "float16", "bfloat16"})
"""Types of inputs that may be equal along a dimension; integers are often indices, whose order
matters."""
Traits = tuple[Trait, ...]
LAYOUT_CLASSES: tuple[Traits, ...] = (
    (Trait.AWAY,),
    (Trait.STEPPED,),
    (Trait.FAR_APART,),
    (Trait.PERMUTED,),
    (Trait.GAPPED,),
    (Trait.EXPANDED,),
    (Trait.OVERLAPPING,),
)
"""Traits common to all inputs of a variant; the first two determine the meaning of a wrong answer
in another."""
Layouts = tuple[InputLayout | None, ...]
"""The layout of each tensor among the inputs, in order; None for the problem's own layout."""


def with_layouts(selection: Selection, seed: int) -> Selection:
    """Adds variants of the cheapest size, in which all inputs that are contiguous in the problem
    have other strides.

    None on a GPU without other sizes: the problem's own size may be large.
    """
    size = cheapest_size(selection)
    if size is None:
        return selection
    rng = random.Random(seed)
    tensors = list(tensors_of_spec(_spec_of(size).inputs))
    variants = [_variant(tensors, [traits] * len(tensors), rng) for traits in LAYOUT_CLASSES]
    if (
        len(tensors) > 1
    ):  # a kernel that reads an input by the strides of another is right where they lie alike
        first = rng.randrange(len(LAYOUT_CLASSES))
        in_turns = [
            LAYOUT_CLASSES[(first + index) % len(LAYOUT_CLASSES)] for index in range(len(tensors))
        ]
        variants.append(_variant(tensors, in_turns, rng))
    variants.append(_variant(tensors, [_random_traits(rng) for _ in tensors], rng))
    return with_variants(
        selection, size, [v for v in dict.fromkeys(variants) if any(v)], like=size.index
    )


def _random_traits(rng: random.Random) -> Traits:
    drawn = [trait for trait in Trait if rng.random() < 0.5]
    if Trait.EXPANDED in drawn and Trait.OVERLAPPING in drawn:
        drawn.remove(rng.choice((Trait.EXPANDED, Trait.OVERLAPPING)))
    return tuple(drawn) or (Trait.STEPPED,)


def _variant(
    tensors: Sequence[dict[str, Any]], traits: Sequence[Traits], rng: random.Random
) -> Layouts:
    """Returns a layout of each tensor, with as many of its traits as shape and type permit."""
    return tuple(
        _drawn(tensor, tensor_traits, rng)
        for tensor, tensor_traits in zip(tensors, traits, strict=True)
    )


def _drawn(tensor: dict[str, Any], traits: Traits, rng: random.Random) -> InputLayout | None:
    """Returns a layout of a tensor; None if the problem gives it a layout of its own."""
    shape = tensor["shape"]
    if not is_contiguous(shape, tensor["stride"]):
        return None
    if tensor["dtype"] not in FLOATING:
        traits = tuple(t for t in traits if t not in (Trait.EXPANDED, Trait.OVERLAPPING))
    layout = draw_layout(shape, traits, rng) if traits else None
    return layout or draw_layout(shape, (Trait.GAPPED,), rng)


def with_variants(
    selection: Selection, size: AtSize, variants: Sequence[Layouts], like: int | None
) -> Selection:
    """Adds variants of a size, which are traced after all sizes.

    like: the index of the trace at this size with the problem's own layouts; None if that was not traced.
    """
    first = len(selection.every) + 1
    added = [
        size.with_(index=first + i, like=like, layouts=layouts)
        for i, layouts in enumerate(variants)
    ]
    extended: Selection = selection.with_(layouts=tuple(added))
    return extended


def single_layouts(layouts: Layouts) -> list[Layouts]:
    """Returns a variant for each input with a changed layout, in which the other inputs have the
    problem's."""
    singles = []
    for index, layout in enumerate(layouts):
        if layout is not None:
            singles.append(tuple(layout if i == index else None for i in range(len(layouts))))
    return singles


def laid_out(spec: InputSpec, layouts: Layouts) -> InputSpec:
    """Returns a description of inputs with other layouts."""
    if not layouts:
        return spec
    waiting = iter(layouts)
    changed: InputSpec = spec.with_(inputs=_laid_out(spec.inputs, waiting))
    return changed


def _laid_out(tree: Any, waiting: Iterator[InputLayout | None]) -> Any:
    if isinstance(tree, list):
        return [_laid_out(item, waiting) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if "tensor" in tree:
        layout = next(waiting)
        if layout is None:
            return tree
        return {
            "tensor": tree["tensor"] | {"stride": list(layout.strides), "offset": layout.offset}
        }
    return {tag: _laid_out_body(tag, body, waiting) for tag, body in tree.items()}


def _laid_out_body(tag: str, body: Any, waiting: Iterator[InputLayout | None]) -> Any:
    if tag == "dict":
        return {key: _laid_out(item, waiting) for key, item in body.items()}
    return _laid_out(body, waiting) if tag == "tuple" else body


def tensors_of_spec(tree: Any) -> Iterator[dict[str, Any]]:
    """Yields the description of each tensor among described inputs, in order."""
    if isinstance(tree, list):
        for item in tree:
            yield from tensors_of_spec(item)
    elif isinstance(tree, dict) and "tensor" in tree:
        yield tree["tensor"]
    elif isinstance(tree, dict):
        for tag, body in tree.items():
            if tag in ("tuple", "dict"):
                yield from tensors_of_spec(list(body.values()) if tag == "dict" else body)


def cheapest_size(selection: Selection) -> AtSize | None:
    """Returns the base size on a CPU, which is small; on a GPU the smallest other size.

    Sizes without extents of 1 or 2 are preferred: along these, most strides are irrelevant.
    """
    if selection.base.index:
        return selection.base
    costs: list[tuple[bool, int, int]] = []
    for index, size in enumerate(selection.others):
        try:
            costs.append((min(size.sizes.values(), default=3) < 3, _spec_of(size).bytes, index))
        except ProblemError:
            continue
    return selection.others[min(costs)[2]] if costs else None


def _spec_of(size: AtSize) -> InputSpec:
    return input_spec(size.problem, as_it_is=bool(size.sizes))
