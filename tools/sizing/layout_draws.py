"""Draws the layouts in which a candidate is given the inputs of its cheapest size, from the verdict's seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.problem import ProblemError
from kernelwright.tools.references.input_spec import InputSpec, input_spec
from kernelwright.tools.sizing.input_layouts import (
    InputLayout,
    channels_last,
    expanded,
    heads_transposed,
    is_contiguous,
    sliced,
    stepped,
    transposed,
)

if TYPE_CHECKING:
    from kernelwright.tools.sizing.at_size import AtSize
    from kernelwright.tools.sizing.selection import Selection

FLOATING = frozenset({"float64", "float32", "float16", "bfloat16"})
"""Types of inputs that may be equal along a dimension; whole numbers are often indices, whose order means something."""
Kind = Callable[[Sequence[int], random.Random], InputLayout | None]
KINDS: tuple[Kind, ...] = (transposed, stepped, sliced, expanded)
"""Each input that can lie so does in some variant."""
KINDS_OF_FOUR_DIMENSIONS: tuple[Kind, ...] = (stepped, expanded, heads_transposed, channels_last)
"""From four dimensions on, in place of KINDS: every variant costs a trace and a call."""
Layouts = tuple[InputLayout | None, ...]
"""The layout of each tensor among the inputs, in order; None for the problem's own layout."""


def with_layouts(selection: Selection, seed: int) -> Selection:
    """Adds variants of the cheapest size, in which all inputs that the problem gives contiguous lie otherwise.

    On a GPU there are none without other sizes: the problem's own size may be large.
    """
    size = _cheapest(selection)
    if size is None:
        return selection
    rng = random.Random(seed)
    tensors = list(tensors_of_spec(_spec_of(size).inputs))
    kinds = [_kinds_for(tensor) for tensor in tensors]
    variants: list[Layouts] = []
    for number in range(max(map(len, kinds), default=0)):
        layouts: list[InputLayout | None] = []
        for place, (tensor, possible) in enumerate(zip(tensors, kinds, strict=True)):
            # Neighbours lie differently, so that a kernel which reads an input by the strides of another is wrong.
            kind = possible[(number + place) % len(possible)] if possible else None
            layouts.append(kind(tensor["shape"], rng) if kind is not None else None)
        variants.append(tuple(layouts))
    return with_variants(selection, size, variants, like=size.index)


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
    """Returns a variant for each input that lies otherwise, in which the other inputs lie as the problem gives them."""
    singles = []
    for place, layout in enumerate(layouts):
        if layout is not None:
            singles.append(tuple(layout if i == place else None for i in range(len(layouts))))
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


def _kinds_for(tensor: dict[str, Any]) -> list[Kind]:
    """Returns the layouts that an input may have; none for an input that the problem gives in a layout of its own."""
    shape = tensor["shape"]
    if not is_contiguous(shape, tensor["stride"]):
        return []
    kinds = list(KINDS if len(shape) < 4 else KINDS_OF_FOUR_DIMENSIONS)
    if tensor["dtype"] not in FLOATING:
        kinds = list(dict.fromkeys(sliced if kind is expanded else kind for kind in kinds))
    rng = random.Random(0)
    return [kind for kind in kinds if kind(shape, rng) is not None]


def _cheapest(selection: Selection) -> AtSize | None:
    """Returns the base size on a CPU, which is small; on a GPU the smallest of the others, if possible one without
    extents of 1 or 2, along which most strides say nothing.
    """
    if selection.base.index:
        return selection.base
    costs: list[tuple[bool, int, int]] = []
    for place, size in enumerate(selection.others):
        try:
            costs.append((min(size.sizes.values(), default=3) < 3, _spec_of(size).bytes, place))
        except ProblemError:
            continue
    return selection.others[min(costs)[2]] if costs else None


def _spec_of(size: AtSize) -> InputSpec:
    return input_spec(size.problem, as_it_is=bool(size.sizes))
