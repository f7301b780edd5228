"""Convolution layers of references: standard, grouped, depthwise, pointwise, transposed, over one
to three axes.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kernelwright.rl.data.synth.engine.sketch import Sketch

AXES_OF_RANK = {1: ("W",), 2: ("H", "W"), 3: ("D", "H", "W")}
TORCH_DEFAULTS = {
    "stride": "1",
    "padding": "0",
    "output_padding": "0",
    "dilation": "1",
    "groups": "1",
    "bias": "False",
}
"""Default values of torch, except for the bias."""
ARGUMENTS_OVER_AXES = ("kernel_size", "stride", "padding", "output_padding", "dilation")
SPELT_OUT_SHARE = 0.6
"""Share of training layers with every argument from the model. Held-out problems stay unchanged."""
ARGUMENT_FORM_WEIGHTS = (4, 4, 2)
"""Weights of the forms of such arguments: numbers, tuples, or an argument for each axis."""


@dataclass(frozen=True)
class DrawnConvolution:
    """A convolution of the reference."""

    axes: int
    name: str
    transposed: bool = False
    groups: bool = False
    depthwise: bool = False
    bias: bool = True

    @property
    def letters(self) -> tuple[str, ...]:
        """The names of the convolved axes: W, H W or D H W."""
        return AXES_OF_RANK[self.axes]


def draw_layer(sketch: Sketch) -> DrawnConvolution:
    """Draws inputs, arguments and the layer of the reference; the sketch's shape becomes the
    output's.
    """
    axes = sketch.rng.choices((1, 2, 3), (2, 5, 2))[0]
    form = sketch.rng.choices(
        ("standard", "pointwise", "depthwise", "transposed", "grouped"), (5, 1.5, 2, 3, 1)
    )[0]
    names = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}[axes]
    full = {1: (8192, 32768), 2: (64, 128, 256), 3: (16, 32)}[axes]
    small = {1: (19, 33), 2: (8, 10), 3: (6, 7)}[axes]
    batch = sketch.size("batch_size", (8, 16, 32), (2,))
    channels = sketch.size("in_channels", (16, 32, 64), (4,))
    sides = [sketch.size(name, full, small) for name in names]
    sketch.input("x", (batch, channels, *sides))
    sketch.argument("in_channels", "in_channels", keep=False)
    depthwise = form == "depthwise"
    if not depthwise:
        sketch.size("out_channels", (32, 64, 128), (6,))
        sketch.argument("out_channels", "out_channels", keep=False)
    out = "in_channels" if depthwise else "out_channels"
    sketch.shape = (batch, out, *("" for _ in sides))
    return _written(sketch, axes, form, out)


def _written(sketch: Sketch, axes: int, form: str, out: str) -> DrawnConvolution:
    transposed, depthwise, grouped = form == "transposed", form == "depthwise", form == "grouped"
    if sketch.chance(SPELT_OUT_SHARE if sketch.wild else 0.4):
        return _spelt_out(sketch, axes, form, out)
    bias = sketch.chance(0.75)
    arguments = ["kernel_size=1"]
    if form != "pointwise":
        arguments = _window(sketch, axes, transposed)
    # A depthwise layer has as many groups as channels.
    if depthwise:
        arguments.append("groups=in_channels")
    if grouped:
        sketch.argument("groups", "2", keep=False)
        arguments.append("groups=groups")
    if not bias:
        arguments.append("bias=False")
    name = sketch.pick(("conv", "conv", *_names(sketch, axes, transposed)))
    kind = f"nn.Conv{'Transpose' if transposed else ''}{axes}d"
    sketch.module(name, f"{kind}(in_channels, {out}, {', '.join(arguments)})")
    sketch.reference.append(f"x = self.{name}(x)")
    sketch.ops.append(f"{form}_conv{axes}d")
    return DrawnConvolution(axes, name, transposed, grouped, depthwise, bias)


def _spelt_out(sketch: Sketch, axes: int, form: str, out: str) -> DrawnConvolution:
    """Draws a layer with all arguments from the model, with torch's defaults, as in benchmarks of
    single layers.
    """
    transposed, depthwise, grouped = form == "transposed", form == "depthwise", form == "grouped"
    dilation = sketch.pick(("1", "1", "1", "2")) if form != "pointwise" else "1"
    values = {
        "kernel_size": "1" if form == "pointwise" else sketch.pick(("3", "3", "2")),
        "stride": sketch.pick(("1", "1", "2")),
        "padding": "0"
        if form == "pointwise"
        else "2"
        if dilation == "2"
        else sketch.pick(("0", "1")),
        **({"output_padding": "0"} if transposed else {}),
        "dilation": dilation,
        "groups": "in_channels" if depthwise else "2" if grouped else "1",
        "bias": sketch.pick(("False", "False", "True")),
    }
    if depthwise:
        values.pop("groups")
    if axes > 1 and form != "pointwise" and sketch.chance(0.3):
        values["stride"] = f"({', '.join(sketch.pick(('1', '2')) for _ in range(axes))})"
        values["kernel_size"] = f"({', '.join(sketch.pick(('2', '3')) for _ in range(axes))})"
    texts = _layer_arguments(sketch, axes, values)
    size = texts.pop("kernel_size")
    order = [f"{name}={text}" for name, text in texts.items()]
    if depthwise:
        # The groups stand last or before the bias.
        order.insert(len(order) - (sketch.wild and sketch.chance(0.5)), "groups=in_channels")
    layer = sketch.pick(("conv", f"conv{axes}d", *_names(sketch, axes, transposed)))
    kind = f"nn.Conv{'Transpose' if transposed else ''}{axes}d"
    sketch.module(layer, f"{kind}(in_channels, {out}, {size}, {', '.join(order)})")
    sketch.reference.append(f"x = self.{layer}(x)")
    sketch.ops.append(f"{form}_conv{axes}d")
    return DrawnConvolution(axes, layer, transposed, grouped, depthwise, values["bias"] == "True")


def _names(sketch: Sketch, axes: int, transposed: bool) -> tuple[str, ...]:
    """Returns possible names of a layer, after its operation."""
    if not transposed:
        return (f"conv{axes}d",)
    return ("conv_transpose", f"conv_transpose{axes}d") if sketch.wild else ("conv_transpose",)


def _layer_arguments(sketch: Sketch, axes: int, values: dict[str, str]) -> dict[str, str]:
    """Adds the model's arguments for a layer, with torch's defaults, and returns the layer's
    argument texts.
    """
    form = "numbers"
    if sketch.wild and axes > 1:
        form = sketch.style.choices(("numbers", "tuples", "axes"), ARGUMENT_FORM_WEIGHTS)[0]
    texts: dict[str, str] = {}
    for name, value in values.items():
        arguments, default = {name: value}, TORCH_DEFAULTS.get(name, "")
        if name in ARGUMENTS_OVER_AXES and form != "numbers":
            each = value.strip("()").split(", ") if value.startswith("(") else [value] * axes
            if form == "tuples":
                arguments = {name: _tuple(each)}
                default = _tuple([default] * axes) if default else default
            else:
                arguments = dict(zip(_per_axis(name, axes), each, strict=True))
        for argument, number in arguments.items():
            sketch.argument(argument, number, keep=False)
            if default:
                sketch.defaults[argument] = default
        texts[name] = name if name in arguments else _tuple(arguments)
    return texts


def _tuple(parts: Iterable[str]) -> str:
    return f"({', '.join(parts)})"


def _per_axis(name: str, axes: int) -> list[str]:
    return [f"{name}_{letter.lower()}" for letter in AXES_OF_RANK[axes]]


def _window(sketch: Sketch, axes: int, transposed: bool) -> list[str]:
    """Draws kernel_size, stride, padding and dilation, written as arguments, numbers or pairs."""
    chosen: list[tuple[str, str]] = []
    # Kernels with different sizes along the axes.
    uneven = axes > 1 and sketch.chance(0.25)
    size = sketch.pick((3, 3, 2, 5 if axes < 3 else 3))
    sizes = [sketch.pick((1, 2, 3)) if uneven else size for _ in range(axes)]
    chosen.append(("kernel_size", f"({', '.join(map(str, sizes))})" if uneven else str(size)))
    if sketch.chance(0.5):
        chosen.append(("stride", str(sketch.pick((1, 2, 2, 3)))))
    if sketch.chance(0.6) or (size == 5 and axes == 3):
        chosen.append(("padding", str(sketch.pick((1, 1, 2)) if not transposed else 1)))
    if sketch.chance(0.25) and max(sizes) <= 3:
        chosen.append(("dilation", "2"))
        chosen = [(n, v) for n, v in chosen if n != "padding"] + [("padding", "2")]
    # torch requires an output padding smaller than the stride.
    if transposed and sketch.chance(0.3) and ("stride", "2") in chosen:
        chosen.append(("output_padding", "1"))
    shown_values = []
    for name, value in chosen:
        if name == "kernel_size" or sketch.chance(0.6):
            sketch.argument(name, value, keep=False)
            shown_values.append(f"{name}={name}")
        else:
            shown_values.append(f"{name}={value}")
    return shown_values
