"""A convolution with a chain in the same kernel, then up to two further kernels."""

from __future__ import annotations

from kernelwright.rl.data.synth.blocks.conv_layers import draw_layer
from kernelwright.rl.data.synth.blocks.convolution import conv_kernel
from kernelwright.rl.data.synth.engine.following import append_parts, draw_parts
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program
from kernelwright.rl.data.synth.engine.sketch import Sketch


def convolution(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws convolution -> chain -> (pooling, softmax, norm or reduction -> chain), twice at
    most.
    """
    sketch.family = "convolution"
    sketch.reserved |= {"bias", "stride", "padding", "weight"}
    first, *later = draw_parts(sketch, depth)
    layer = draw_layer(sketch)
    conv_kernel(sketch, layer, first)
    append_parts(sketch, layer.axes, later)
    return finish_program(sketch)
