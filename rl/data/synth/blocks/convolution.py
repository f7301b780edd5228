"""Convolutions of one to three axes: as matrix products with a gathered left side, also
transposed; depthwise ones tap by tap.

Names combine a kind and an axis letter: K, S, P, L are kernel, stride, padding and dilation, O an
output size. The 2D gathered index of output pixel m and depth k:

    oh = m // OW % OH,  ow = m % OW;   c, kh, kw = k // (KH * KW), k // KW % KH, k % KW
    h = oh * SH - PH + kh * LH;        w = ow * SW - PW + kw * LW
    x_ptr + ((n * C + c) * H + h) * W + w
"""

from __future__ import annotations

from kernelwright.rl.data.synth.blocks.chain import ChainNeeds, ChainSite, draw_steps, kernel_lines
from kernelwright.rl.data.synth.blocks.conv_layers import DrawnConvolution
from kernelwright.rl.data.synth.engine.program import kernel
from kernelwright.rl.data.synth.engine.sketch import Sketch

WINDOW = ("K", "S", "P", "L")
"""Kernel, stride, padding and dilation, each before the axis's letter."""


def conv_kernel(sketch: Sketch, layer: DrawnConvolution, depth: int) -> None:
    """Writes the layer's kernel with depth - 1 element-wise steps on its output."""
    steps = draw_steps(sketch, depth - 1, channels=sketch.shape[1], tensors=False, binary=0.25)
    # The loops compute `acc`; the chain and the store follow.
    extra = ChainNeeds()
    body = _depthwise(layer) if layer.depthwise else _gathered(layer)
    value = "acc"
    if layer.depthwise:
        site = ChainSite(value, "", "mask", "channel", "")
    else:
        channel = "g * O + oc[None, :]" if layer.groups else "oc[None, :]"
        site = ChainSite(value, "", "mask", channel, "oc[None, :] < O")
    tail = kernel_lines(sketch, steps, site, extra)
    sides, outs = list(layer.letters), [f"O{a}" for a in layer.letters]
    # Sizes are integers; kernel, stride, padding and dilation are constexprs, so the loop over
    # taps unrolls.
    window = [f"{kind}{a}" for kind in WINDOW for a in layer.letters]
    bias = ["bias_ptr"] if layer.bias else []
    blocks = ["BLOCK"] if layer.depthwise else ["BLOCK_M", "BLOCK_N", "BLOCK_K"]
    channels = ["C"] if layer.depthwise else ["C", "O"]
    sizes = [*channels, *(["G"] if layer.groups else []), *sides, *outs]
    count = [] if layer.depthwise else ["M"]
    parameters = ["x_ptr", "w_ptr", *bias, *extra.parameters, "out_ptr", *sizes, *count]
    constants = [f"{w}: tl.constexpr" for w in window]
    name = (
        "conv_transpose_kernel"
        if layer.transposed
        else "depthwise_kernel"
        if layer.depthwise
        else "conv_kernel"
    )
    body += _bias(layer) + tail + [_store(layer)]
    sketch.kernels.append(kernel(name, [*parameters, *constants, *blocks], body))
    _host(sketch, layer, name, extra, [*sizes, *count], window)


def _flat(letters: tuple[str, ...], index: str) -> list[str]:
    """Returns lines for the coordinates of an output from its flat index."""
    match letters:
        case ("W",):
            return [f"ow = {index} % OW"]
        case ("H", "W"):
            return [f"oh = {index} // OW % OH", f"ow = {index} % OW"]
    return [f"od = {index} // (OH * OW) % OD", f"oh = {index} // OW % OH", f"ow = {index} % OW"]


def _taps(letters: tuple[str, ...]) -> tuple[list[str], str]:
    """Returns lines that split k into channel and tap, and the number of taps."""
    match letters:
        case ("W",):
            return ["c, kw = k // KW, k % KW"], "KW"
        case ("H", "W"):
            return ["c, kh, kw = k // (KH * KW), k // KW % KH, k % KW"], "KH * KW"
    return [
        "c, kd = k // (KD * KH * KW), k // (KH * KW) % KD",
        "kh, kw = k // KW % KH, k % KW",
    ], "KD * KH * KW"


def _gathered(layer: DrawnConvolution) -> list[str]:
    letters = layer.letters
    pixels = " * ".join(f"O{a}" for a in letters)
    parting, taps = _taps(letters)
    depth = f"C * {taps}"
    group = ["g = tl.program_id(2)"] if layer.groups else []
    head = [
        "m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)",
        "oc = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)",
        *group,
        f"n = (m // ({pixels})).to(tl.int64)" if len(letters) > 1 else "n = (m // OW).to(tl.int64)",
        *_flat(letters, "m"),
        "acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)",
        f"for start in range(0, {depth}, BLOCK_K):",
    ]
    # Each k is a channel and a tap; its input coordinate follows from the output's.
    inner = ["k = start + tl.arange(0, BLOCK_K)", *parting]
    for a in letters:
        x = a.lower()
        if layer.transposed:
            # Transposed: the input times the stride reaches the output; divisibility is checked
            # in the mask.
            inner.append(f"{x} = o{x}[:, None] + P{a} - k{x}[None, :] * L{a}")
        else:
            inner.append(f"{x} = o{x}[:, None] * S{a} - P{a} + k{x}[None, :] * L{a}")
    inner += _inside(layer, depth)
    channel = (
        "n[:, None] * C + c[None, :]"
        if not layer.groups
        else "(n[:, None] * G + g) * C + c[None, :]"
    )
    # Row-major offset: ((n * C + c) * H + h) * W + w.
    offset = channel
    for a in letters:
        offset = f"({offset}) * {a} + {a.lower()}"
    inner.append(f"x = tl.load(x_ptr + {offset}, mask=inside, other=0.0)")
    if layer.transposed:
        # Weights of transposed layers are (C, O, taps), of others (O, C, taps).
        weight = f"(c[:, None] * O + oc[None, :]) * ({taps}) + k[:, None] % ({taps})"
    else:
        row = "(g * O + oc[None, :])" if layer.groups else "oc[None, :]"
        weight = f"{row} * ({depth}) + k[:, None]"
    inner.append(
        f"w_tile = tl.load(w_ptr + {weight}, mask=(k[:, None] < {depth}) & (oc[None, :] < O), other=0.0)"
    )
    inner.append('acc = tl.dot(x, w_tile, acc, input_precision="tf32x3")')
    return [
        "    " + line
        for line in (
            *head,
            *("    " + i for i in inner),
            "mask = (m[:, None] < M) & (oc[None, :] < O)",
        )
    ]


def _inside(layer: DrawnConvolution, depth: str) -> list[str]:
    lines = [f"inside = (m[:, None] < M) & (k[None, :] < {depth})"]
    for a in layer.letters:
        x = a.lower()
        if layer.transposed:
            # Only multiples of the stride come from an input element.
            lines.append(f"inside &= ({x} >= 0) & ({x} % S{a} == 0) & ({x} < {a} * S{a})")
            lines.append(f"{x} = {x} // S{a}")
        else:
            lines.append(f"inside &= ({x} >= 0) & ({x} < {a})")
    return lines


def _depthwise(layer: DrawnConvolution) -> list[str]:
    letters = layer.letters
    pixels = " * ".join(f"O{a}" for a in letters)
    taps = " * ".join(f"K{a}" for a in letters)
    lines = [
        "plane = tl.program_id(0).to(tl.int64)",
        "channel = plane % C",
        "m = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        f"mask = m < {pixels}",
        *_flat(letters, "m"),
        "acc = tl.zeros((BLOCK,), tl.float32)",
        f"for k in tl.static_range({taps}):",
    ]
    match letters:
        case ("W",):
            parts = {"W": "k"}
        case ("H", "W"):
            parts = {"H": "k // KW", "W": "k % KW"}
        case _:
            parts = {"D": "k // (KH * KW)", "H": "k // KW % KH", "W": "k % KW"}
    # Each program works on a single plane, that is a batch entry and a channel.
    offset, inside = "plane", "mask"
    for a in letters:
        x = a.lower()
        tap = parts[a] if " " not in parts[a] else f"({parts[a]})"
        lines.append(f"    {x} = o{x} * S{a} - P{a} + {tap} * L{a}")
        inside += f" & ({x} >= 0) & ({x} < {a})"
        offset = f"({offset}) * {a} + {x}" if " " in offset else f"{offset} * {a} + {x}"
    lines.append(f"    x = tl.load(x_ptr + {offset}, mask={inside}, other=0.0)")
    lines.append(f"    acc += x * tl.load(w_ptr + channel * ({taps}) + k)")
    return ["    " + line for line in lines]


def _bias(layer: DrawnConvolution) -> list[str]:
    if not layer.bias:
        return []
    if layer.depthwise:
        return ["    acc += tl.load(bias_ptr + channel)"]
    offset = "g * O + oc" if layer.groups else "oc"
    return [f"    acc += tl.load(bias_ptr + {offset}, mask=oc < O, other=0.0)[None, :]"]


def _store(layer: DrawnConvolution) -> str:
    pixels = " * ".join(f"O{a}" for a in layer.letters)
    if layer.depthwise:
        return f"    tl.store(out_ptr + plane * ({pixels}) + m, acc, mask=mask)"
    row = (
        "(n[:, None] * G + g) * O + oc[None, :]" if layer.groups else "n[:, None] * O + oc[None, :]"
    )
    return (
        f"    tl.store(out_ptr + ({row}) * ({pixels}) + (m % ({pixels}))[:, None], acc, mask=mask)"
    )


def _host(
    sketch: Sketch,
    layer: DrawnConvolution,
    name: str,
    extra: ChainNeeds,
    sizes: list[str],
    window: list[str],
) -> None:
    conv, letters, target = f"self.{layer.name}", layer.letters, sketch.target()
    tuples = [", ".join(f"{kind}{a}" for a in letters) for kind in WINDOW]
    shown = [f"({t})" if len(letters) > 1 else f"({t},)" for t in tuples]
    sketch.host.append(f"B, C, {', '.join(letters)} = x.shape")
    if not layer.depthwise:
        sketch.host.append(f"O = {conv}.out_channels")
    if layer.groups:
        sketch.host.append(f"G = {conv}.groups")
    sketch.host.append(f"{shown[0]}, {shown[1]} = {conv}.kernel_size, {conv}.stride")
    sketch.host.append(f"{shown[2]}, {shown[3]} = {conv}.padding, {conv}.dilation")
    for i, a in enumerate(letters):
        if layer.transposed:
            # Output sizes by torch's formulas.
            extent = f"L{a} * (K{a} - 1) + {conv}.output_padding[{i}] + 1"
            sketch.host.append(f"O{a} = ({a} - 1) * S{a} - 2 * P{a} + {extent}")
        else:
            sketch.host.append(f"O{a} = ({a} + 2 * P{a} - L{a} * (K{a} - 1) - 1) // S{a} + 1")
    outs = ", ".join(f"O{a}" for a in letters)
    channels = "C" if layer.depthwise else "O"
    sketch.host.append(
        f"{target} = torch.empty((B, {channels}, {outs}), device=x.device, dtype=x.dtype)"
    )
    _launch(sketch, layer, name, extra, (sizes, window), target)


def _launch(
    sketch: Sketch,
    layer: DrawnConvolution,
    name: str,
    extra: ChainNeeds,
    numbers: tuple[list[str], list[str]],
    out: str,
) -> None:
    conv, (sizes, window) = f"self.{layer.name}", numbers
    pixels = " * ".join(f"O{a}" for a in layer.letters)
    bias = [f"{conv}.bias"] if layer.bias else []
    if layer.groups:
        # The kernel works on a group's channels; the grid's third axis runs over groups.
        sketch.host.append("C, O = C // G, O // G")
    values = ", ".join(["x", f"{conv}.weight", *bias, *extra.values, out, *sizes, *window])
    if layer.depthwise:
        sketch.host.append(f"{name}[(B * C, triton.cdiv({pixels}, 1024))]({values}, BLOCK=1024)")
    else:
        sketch.host.append(f"M = B * {pixels}")
        third = ", G" if layer.groups else ""
        sketch.host.append(f"grid = (triton.cdiv(M, 64), triton.cdiv(O, 64){third})")
        sketch.host.append(f"{name}[grid]({values}, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)")
    sketch.current = out
