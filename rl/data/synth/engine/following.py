"""Draws kernels after a product or a convolution: pooling, softmax and norms, each kind at most
once, and a reduction at the end.
"""

from __future__ import annotations

from kernelwright.rl.data.synth.engine.sketch import Sketch
from kernelwright.rl.data.synth.families.column_norms import column_norm
from kernelwright.rl.data.synth.families.image_norms import image_norm
from kernelwright.rl.data.synth.families.normalising import (
    LAYERS,
    NORMS,
    SOFTMAXES,
    normalise_current,
)
from kernelwright.rl.data.synth.families.reductions import reduce_current
from kernelwright.rl.data.synth.families.windows import pool_current

IMAGE_PART_WEIGHTS = {"pool": 2.0, "reduce": 2.0, "softmax": 1.5, "norm": 0.7, "image norm": 3.0}
ROW_PART_WEIGHTS = {
    "reduce": 2.0,
    "softmax": 1.5,
    "norm": 1.5,
    "image norm": 1.2,
    "column norm": 1.2,
}
LAST_KINDS = {"pool": 1, "reduce": 2}
"""Order of kinds: a norm of an image needs more than a single pixel, and a reduced tensor has no
axes for further kernels.
"""
SECOND_PART_SHARE = 0.45
"""Probability of a second kernel after the first, if the depth allows."""
THIRD_PART_SHARE = 0.35
"""Probability of a third kernel after the second, if the depth allows."""


def draw_parts(sketch: Sketch, depth: int) -> list[int]:
    """Draws the number of operations of each kernel, `depth` in total and at least one each, and
    sets the sketch's stages.
    """
    count = 1
    if depth > 1 and sketch.chance(SECOND_PART_SHARE):
        count = 3 if depth > 2 and sketch.chance(THIRD_PART_SHARE) else 2
    # Each kernel gets one operation; the others are distributed at random.
    parts = [1] * count
    for _ in range(depth - count):
        parts[sketch.rng.randrange(count)] += 1
    sketch.stages = count
    return parts


def append_parts(sketch: Sketch, axes: int, parts: list[int]) -> None:
    """Appends a kernel for each of `parts`. axes: of the current tensor after its channels; 0:
    rows of a matrix.
    """
    weights = dict(IMAGE_PART_WEIGHTS if axes else ROW_PART_WEIGHTS)
    # Each kind at most once.
    kinds: list[str] = []
    for _ in parts:
        kind = sketch.rng.choices(list(weights), list(weights.values()))[0]
        kinds.append(kind)
        weights.pop(kind)
    for kind, depth in zip(
        sorted(kinds, key=lambda kind: LAST_KINDS.get(kind, 0)), parts, strict=True
    ):
        _append_part(sketch, kind, axes, depth)


def _append_part(sketch: Sketch, kind: str, axes: int, depth: int) -> None:
    match kind:
        case "pool":
            pool_current(sketch, axes, depth)
        case "reduce":
            reduce_current(sketch, depth, before=0)
        case "softmax":
            normalise_current(sketch, SOFTMAXES, depth, before=0)
        case "norm":
            normalise_current(sketch, NORMS if axes else (*NORMS, *LAYERS), depth, before=0)
        case "column norm":
            column_norm(sketch, depth)
        case _:
            image_norm(sketch, axes, depth)
