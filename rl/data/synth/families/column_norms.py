"""Batch norm of a matrix: statistics, weight and bias of each column."""

from __future__ import annotations

from kernelwright.rl.data.synth.blocks.axes import INNER_AXIS, AxisKernel
from kernelwright.rl.data.synth.blocks.chain import draw_steps
from kernelwright.rl.data.synth.blocks.norm_layers import batch_layer
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program
from kernelwright.rl.data.synth.engine.sketch import Sketch
from kernelwright.rl.data.synth.engine.tensors import start
from kernelwright.rl.data.synth.families.reductions import squared_deviation_passes


def column_norm_program(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws x -> batch norm of columns -> chain."""
    sketch.family = "norms"
    start(sketch, 2)
    column_norm(sketch, depth)
    return finish_program(sketch)


def column_norm(sketch: Sketch, depth: int) -> None:
    """Appends nn.BatchNorm1d with the batch's own statistics over the current matrix, then depth
    - 1 element-wise steps.
    """
    name = sketch.free(sketch.pick(("bn", "norm", "batch_norm")))
    sketch.module(name, batch_layer(sketch, 1, sketch.shape[-1]))
    sketch.reference.append(f"x = self.{name}(x)")
    sketch.ops.append("batch_norm")
    steps = draw_steps(sketch, depth - 1, tensors=False, binary=0)
    walk = AxisKernel(sketch, INNER_AXIS, [], leading=True)
    walk.extra.parameters += ["gamma_ptr", "beta_ptr", "eps"]
    walk.extra.values += [f"self.{name}.weight", f"self.{name}.bias", f"self.{name}.eps"]
    squared_deviation_passes(walk)
    walk.at(
        "factor = tl.rsqrt(tl.sum(acc, axis=0) / length + eps)",
        "gamma = tl.load(gamma_ptr + cols, mask=cols < inner)",
        "beta = tl.load(beta_ptr + cols, mask=cols < inner)",
    )
    element = "x = (x - mean[None, :]) * (factor * gamma)[None, :] + beta[None, :]"
    walk.each(element, *walk.chain(steps, "x", ""), walk.store_elements("x"))
    walk.launch("column_norm_kernel", sketch.target(), "")
