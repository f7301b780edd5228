"""Element-wise chains over whole tensors, in a single flat kernel."""

from __future__ import annotations

from kernelwright.rl.data.synth.blocks.chain import ChainNeeds, ChainSite, draw_steps, kernel_lines
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program, kernel
from kernelwright.rl.data.synth.engine.sketch import Sketch
from kernelwright.rl.data.synth.engine.tensors import draw_dtype, start

ELEMENTWISE_BLOCKS = (1024, 1024, 1024, 2048)


def elementwise(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws x -> chain, over any number of axes."""
    sketch.family = "elementwise"
    draw_dtype(sketch)
    start(sketch)
    channels = (
        "" if sketch.narrow else sketch.shape[1] if len(sketch.shape) > 2 else sketch.shape[-1]
    )
    steps = draw_steps(sketch, depth, channels=channels, binary=0.3 if depth > 1 else 0.15)
    flat_kernel(sketch, steps)
    return finish_program(sketch)


def flat_kernel(sketch: Sketch, steps: list) -> None:
    """Appends the kernel over the current tensor, and its launch."""
    extra = ChainNeeds()
    channel, steps_after = _channel(sketch, steps)
    site = ChainSite("x", "offs", "mask", channel)
    lines = kernel_lines(sketch, steps, site, extra)
    source, target = sketch.current, sketch.target()
    body = [
        "    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "    mask = offs < n",
        f"    x = tl.load(x_ptr + offs, mask=mask){sketch.cast}",
        *lines,
        "    tl.store(out_ptr + offs, x, mask=mask)",
    ]
    sizes = ["n", *steps_after]
    sketch.kernels.append(
        kernel("elementwise_kernel", ["x_ptr", *extra.parameters, "out_ptr", *sizes, "BLOCK"], body)
    )
    block = sketch.pick(ELEMENTWISE_BLOCKS)
    values = [source, *extra.values, target, "n", *steps_after.values()]
    sketch.host += [
        f"{target} = torch.empty_like({source})",
        f"n = {source}.numel()",
        f"elementwise_kernel[(triton.cdiv(n, {block}),)]({', '.join(values)}, BLOCK={block})",
    ]
    sketch.current = target


def _channel(sketch: Sketch, steps: list) -> tuple[str, dict[str, str]]:
    """Returns the channel's index in a flat tensor, and the sizes it needs: of the last axis, or
    of the second for more than two axes.
    """
    if not any(step.along == "weight" for step in steps):
        return "", {}
    source = sketch.current
    if len(sketch.shape) <= 2:
        return "offs % columns", {"columns": f"{source}.shape[-1]"}
    inner = f"{source}.stride(1)"
    return "offs // inner % channels", {"channels": f"{source}.shape[1]", "inner": inner}
