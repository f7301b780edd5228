"""A convolution and what follows it: a chain in the same kernel, then perhaps pooling, a reduction, a softmax or a norm."""

from __future__ import annotations

from rl.data.synth.conv_layers import draw_layer
from rl.data.synth.convolution import conv_kernel
from rl.data.synth.image_norms import image_norm
from rl.data.synth.normalising import NORMS, SOFTMAXES, normalise_current
from rl.data.synth.program import Program, finished
from rl.data.synth.reductions import reduce_current
from rl.data.synth.sketch import Sketch
from rl.data.synth.windows import pool_current


def convolution(sketch: Sketch, depth: int) -> Program:
    """Convolution -> chain -> (pooling, reduction, softmax or norm -> chain)."""
    sketch.family = "convolution"
    sketch.reserved |= {"bias", "stride", "padding", "weight"}
    second = depth > 1 and sketch.chance(0.35)
    sketch.stages = 2 if second else 1
    layer = draw_layer(sketch)
    first = sketch.rng.randint(1, depth - 1) if second else depth
    conv_kernel(sketch, layer, first)
    if second:
        _second(sketch, layer.axes, depth - first)
    return finished(sketch)


def _second(sketch: Sketch, axes: int, depth: int) -> None:
    kind = sketch.rng.choices(("pool", "reduce", "softmax", "norm", "image norm"), (2, 2, 1.5, 0.7, 3))[0]
    if kind == "pool":
        pool_current(sketch, axes, depth)
    elif kind == "reduce":
        reduce_current(sketch, depth, before=0)
    elif kind == "softmax":
        normalise_current(sketch, SOFTMAXES, depth, before=0)
    elif kind == "norm":
        normalise_current(sketch, NORMS, depth, before=0)
    else:
        image_norm(sketch, axes, depth)
