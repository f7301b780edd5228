"""Norm layers of images in references: names, order and number of their arguments."""

from __future__ import annotations

from kernelwright.rl.data.synth.engine.sketch import Sketch


def group_layer(sketch: Sketch, channels: str) -> tuple[str, bool]:
    """Returns the text of the layer, and whether it has weights."""
    _even(sketch, channels)
    groups = sketch.free(sketch.pick(("num_groups", "groups")))
    value = (
        sketch.size(groups, (2, 4, 8), (2,)) if sketch.chance(0.5) else sketch.pick(("2", "2", "1"))
    )
    # Order of the model's arguments: groups before or after the channels.
    before = sketch.chance(0.4)
    if not before:
        _channels(sketch, channels)
    sketch.argument(groups, value, keep=False)
    _channels(sketch, channels)
    bare = sketch.chance(0.1)
    named = sketch.chance(0.3)
    arguments = (
        f"num_groups={groups}, num_channels={channels}" if named else f"{groups}, {channels}"
    )
    return (
        f"nn.GroupNorm({arguments}{_eps(sketch, ())}{', affine=False' if bare else ''})",
        not bare,
    )


def batch_layer(sketch: Sketch, axes: int, channels: str) -> str:
    """Draws a batch norm without running statistics, which a kernel would have to update as well."""
    _channels(sketch, channels)
    return (
        f"nn.BatchNorm{axes}d({channels}{_eps(sketch, ('momentum',))}, track_running_stats=False)"
    )


def instance_layer(sketch: Sketch, axes: int, channels: str) -> tuple[str, bool]:
    """Returns the text of the layer, and whether it has weights."""
    _channels(sketch, channels)
    affine = sketch.chance(0.4)
    return (
        f"nn.InstanceNorm{axes}d({channels}{_eps(sketch, ('momentum',))}{', affine=True' if affine else ''})",
        affine,
    )


def _channels(sketch: Sketch, channels: str) -> None:
    if not sketch.takes(channels):
        sketch.argument(channels, channels, keep=False)


def _even(sketch: Sketch, channels: str) -> None:
    """Makes the channels even, so two groups divide the small size too."""
    full, cpu = sketch.sizes[channels]
    sketch.sizes[channels] = (full, cpu if cpu % 2 == 0 else 4)


def _eps(sketch: Sketch, arguments: tuple[str, ...]) -> str:
    """Returns eps, and momentum if there is one: mostly omitted, else as numbers, or as arguments
    of the model.
    """
    form = sketch.rng.choices(("", "number", "argument"), (3, 1, 2))[0]
    if form != "argument":
        return f", eps={sketch.pick(('1e-5', '1e-6', '1e-3'))}" if form else ""
    usual = {"eps": "1e-5", "momentum": "0.1"}
    shown = ""
    for name in ("eps", *(arguments if sketch.chance(0.5) else ())):
        argument = sketch.argument(sketch.free(name), usual[name], keep=False)
        sketch.defaults[argument] = usual[name]
        shown += f", {name}={argument}"
    return shown
