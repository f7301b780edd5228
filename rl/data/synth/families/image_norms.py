"""Group, instance and batch norm: statistics over runs of memory, then weight and bias by
channel.

Batch norm uses the batch's own statistics, as a model in training mode does: mean and squares of
each plane first, joined by channel in the second kernel.
"""

from __future__ import annotations

from kernelwright.rl.data.synth.blocks.chain import ChainNeeds, ChainSite, draw_steps, kernel_lines
from kernelwright.rl.data.synth.blocks.norm_layers import batch_layer, group_layer, instance_layer
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program, kernel
from kernelwright.rl.data.synth.engine.sketch import Sketch
from kernelwright.rl.data.synth.engine.tensors import start


def image_norm_program(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws x -> group, instance or batch norm -> chain."""
    sketch.family = "norms"
    sketch.reserved |= {"bias", "weight"}
    axes = sketch.rng.choices((1, 2, 3), (1, 4, 1))[0]
    start(sketch, axes + 2)
    sketch.sizes[sketch.shape[1]] = (sketch.sizes[sketch.shape[1]][0], 4)
    image_norm(sketch, axes, depth)
    return finish_program(sketch)


def image_norm(sketch: Sketch, axes: int, depth: int) -> None:
    """Appends one of the three norms over the current tensor, then depth - 1 element-wise steps.

    axes: number of axes after the channels; a matrix has none and gets group norm.
    """
    channels = sketch.shape[1]
    kinds = (
        ["group", "group", "instance", "batch", *(["layer"] if all(sketch.shape) else [])]
        if axes
        else ["group"]
    )
    kind = sketch.pick(kinds)
    usual = {"group": "group_norm", "instance": "instance_norm", "batch": "bn", "layer": "ln"}[kind]
    name = sketch.free(sketch.pick(("norm", usual)))
    affine = True
    if kind == "group":
        layer, affine = group_layer(sketch, channels)
    elif kind == "layer":
        shape = sketch.argument("normalized_shape", f"({', '.join(sketch.shape[1:])})", keep=False)
        layer = f"nn.LayerNorm({shape})"
    elif kind == "instance":
        layer, affine = instance_layer(sketch, axes, channels)
    else:
        layer = batch_layer(sketch, axes, channels)
    sketch.module(name, layer)
    sketch.reference.append(f"x = self.{name}(x)")
    sketch.ops.append(f"{kind}_norm" if kind != "layer" else "block_layer_norm")
    steps = draw_steps(sketch, depth - 1, tensors=False, binary=0)
    extra = ChainNeeds()
    tail = kernel_lines(sketch, steps, ChainSite("x", "", "mask", indent="        "), extra)
    if kind == "batch":
        _batch(sketch, name, extra, tail)
    else:
        _grouped(sketch, name, kind, affine, extra, tail)


LOOP_LINES = (
    "for start in range(0, size, BLOCK):",
    "    cols = start + tl.arange(0, BLOCK)",
    "    mask = cols < size",
)


def _load(sketch: Sketch) -> str:
    return f"    x = tl.load(x_ptr + row * size + cols, mask=mask, other=0.0){sketch.cast}"


def _statistics(sketch: Sketch) -> list[str]:
    """Returns two passes: `mean`, and `acc` with the squared deviations."""
    return [
        "row = tl.program_id(0).to(tl.int64)",
        "acc = tl.zeros((BLOCK,), tl.float32)",
        *LOOP_LINES,
        f"    acc += tl.load(x_ptr + row * size + cols, mask=mask, other=0.0){sketch.cast}",
        "mean = tl.sum(acc, axis=0) / size",
        "acc = tl.zeros((BLOCK,), tl.float32)",
        *LOOP_LINES,
        _load(sketch),
        "    diff = tl.where(mask, x - mean, 0.0)",
        "    acc += diff * diff",
    ]


def _grouped(
    sketch: Sketch, name: str, kind: str, affine: bool, extra: ChainNeeds, tail: list[str]
) -> None:
    lines = [
        *_statistics(sketch),
        "factor = tl.rsqrt(tl.sum(acc, axis=0) / size + eps)",
        *LOOP_LINES,
        _load(sketch),
        "    x = (x - mean) * factor",
    ]
    if affine:
        # Index of the channel: from the row (instance), from row and column (group), or the
        # column (layer).
        channel = {
            "group": "row % groups * (size // pixels) + cols // pixels",
            "layer": "cols",
        }.get(kind, "row % groups")
        mask = "" if kind == "instance" else ", mask=mask"
        lines += [
            f"    channel = {channel}",
            f"    x = x * tl.load(weight_ptr + channel{mask}) + tl.load(bias_ptr + channel{mask})",
        ]
    body = [
        *("    " + line for line in lines),
        *tail,
        "        tl.store(out_ptr + row * size + cols, x, mask=mask)",
    ]
    weights = ["weight_ptr", "bias_ptr"] if affine else []
    sizes = [
        "size",
        *(["groups"] if affine and kind != "layer" else []),
        *(["pixels"] if affine and kind == "group" else []),
        "eps",
    ]
    sketch.kernels.append(
        kernel(
            f"{kind}_norm_kernel",
            ["x_ptr", *weights, *extra.parameters, "out_ptr", *sizes, "BLOCK"],
            body,
        )
    )
    source, target = sketch.current, sketch.target()
    groups = f"self.{name}.num_groups" if kind == "group" else f"{source}.shape[1]"
    values = [f"self.{name}.weight", f"self.{name}.bias"] if affine else []
    if kind == "layer":
        sketch.host.append(f"rows = {source}.shape[0]")
    else:
        sketch.host += [f"groups = {groups}", f"rows = {source}.shape[0] * groups"]
    sketch.host.append(f"size = {source}.numel() // rows")
    if "pixels" in sizes:
        sketch.host.append(f"pixels = {source}.stride(1)")
    arguments = ", ".join([source, *values, *extra.values, target, *sizes[:-1], f"self.{name}.eps"])
    sketch.host += [
        f"{target} = torch.empty_like({source})",
        f"{kind}_norm_kernel[(rows,)]({arguments}, BLOCK=1024)",
    ]
    sketch.current = target


JOINED_LINES = (
    "row = tl.program_id(0).to(tl.int64)",
    "channel = row % channels",
    "plane = tl.arange(0, BLOCK_B)",
    "there = plane < batch",
    "means = tl.load(mean_ptr + plane * channels + channel, mask=there, other=0.0)",
    "squares = tl.load(square_ptr + plane * channels + channel, mask=there, other=0.0)",
    "mean = tl.sum(means, axis=0) / batch",
    "diff = tl.where(there, means - mean, 0.0)",
    "total = tl.sum(squares, axis=0) + size * tl.sum(diff * diff, axis=0)",
    "factor = tl.load(weight_ptr + channel) * tl.rsqrt(total / (batch * size) + eps)",
    "bias = tl.load(bias_ptr + channel)",
)
"""Mean and squares of all planes of a channel from those of each (Chan et al. 1979), then a scale
and a bias.
"""


def _batch(sketch: Sketch, name: str, extra: ChainNeeds, tail: list[str]) -> None:
    first = [
        *_statistics(sketch),
        "tl.store(mean_ptr + row, mean)",
        "tl.store(square_ptr + row, tl.sum(acc, axis=0))",
    ]
    second = [*JOINED_LINES, *LOOP_LINES, _load(sketch), "    x = (x - mean) * factor + bias"]
    body = [
        *("    " + line for line in second),
        *tail,
        "        tl.store(out_ptr + row * size + cols, x, mask=mask)",
    ]
    # First kernel: statistics of each plane. Second kernel: joined statistics, then the elements.
    planes = ["x_ptr", "mean_ptr", "square_ptr", "size", "BLOCK"]
    sketch.kernels.append(kernel("plane_kernel", planes, ["    " + line for line in first]))
    weights = ["weight_ptr", "bias_ptr", *extra.parameters]
    sizes = ["batch", "channels", "size", "eps", "BLOCK_B", "BLOCK"]
    sketch.kernels.append(
        kernel("batch_norm_kernel", [*planes[:3], *weights, "out_ptr", *sizes], body)
    )
    source, target, layer = sketch.current, sketch.target(), f"self.{name}"
    values = [source, "mean", "square", f"{layer}.weight", f"{layer}.bias", *extra.values, target]
    arguments = ", ".join([*values, "batch", "channels", "size", f"{layer}.eps"])
    sketch.host += [
        f"batch, channels, size = {source}.shape[0], {source}.shape[1], {source}.stride(1)",
        f"mean = torch.empty((batch, channels), device={source}.device)",
        "square = torch.empty_like(mean)",
        f"{target} = torch.empty_like({source})",
        f"plane_kernel[(batch * channels,)]({source}, mean, square, size, BLOCK=1024)",
        f"batch_norm_kernel[(batch * channels,)]({arguments}, BLOCK_B=triton.next_power_of_2(batch), BLOCK=1024)",
    ]
    sketch.current = target
