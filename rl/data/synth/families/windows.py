"""Pooling over one, two or three axes: each program computes a block of outputs of a plane, with
unrolled window taps.
"""

from __future__ import annotations

from kernelwright.rl.data.synth.blocks.chain import ChainNeeds, ChainSite, draw_steps, kernel_lines
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program, kernel
from kernelwright.rl.data.synth.engine.sketch import Sketch
from kernelwright.rl.data.synth.engine.tensors import start

AXES = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}
LOWEST_VALUE = '-float("inf")'
FLAG_SHARE = 0.3


def pooling(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws x -> max or average pooling -> chain."""
    sketch.family = "pooling"
    axes = sketch.rng.choices((1, 2, 3), (3, 4, 2))[0]
    start(sketch, axes + 2)
    for name, cpu in zip(sketch.shape, (1, 3, *((5,) * axes if axes > 2 else ())), strict=False):
        sketch.sizes[name] = (sketch.sizes[name][0], cpu)
    pool_current(sketch, axes, depth)
    return finish_program(sketch)


def pool_current(sketch: Sketch, axes: int, depth: int) -> None:
    """Appends a window over the last `axes` axes of the current tensor, then depth - 1
    element-wise steps.
    """
    largest = sketch.chance(0.5)
    name = f"{'max' if largest else 'avg'}_pool{axes}d"
    host = _write(sketch, name, axes, largest)
    sketch.ops.append(name)
    sketch.shape = (*sketch.shape[:2], *("" for _ in range(axes)))
    steps = draw_steps(sketch, depth - 1, tensors=False, binary=0)
    extra = ChainNeeds()
    tail = kernel_lines(sketch, steps, ChainSite("y", "", "mask"), extra)
    names = AXES[axes]
    parameters = [
        "x_ptr",
        *extra.parameters,
        "out_ptr",
        *_sizes(names),
        "KERNEL",
        "STRIDE",
        "PADDING",
    ]
    parameters += ["DILATION"] if largest else []
    sketch.kernels.append(
        kernel("pool_kernel", [*parameters, "BLOCK"], _body(sketch, names, largest, tail))
    )
    _host(sketch, names, extra, host)


def _write(sketch: Sketch, name: str, axes: int, largest: bool) -> dict[str, str]:
    """Writes the reference's layer or call, and returns the host's expressions for the window's
    numbers.
    """
    values = _window(sketch, largest)
    used = {argument for argument, _ in sketch.arguments} & values.keys()
    prefix = "pool_" if used else sketch.pick(("", "", "", "pool_"))
    shown = _shown(sketch, values)
    if sketch.chance(0.3):
        _layer(sketch, name, axes, shown)
        return values
    omits_stride = values["stride"] == values["kernel_size"] and sketch.chance(0.5)
    for argument in shown:
        value = "None" if omits_stride and argument == "stride" else values[argument]
        fallback = f" or {prefix}kernel_size" if argument == "stride" else ""
        sketch.arguments.append((f"{prefix}{argument}", value))
        sketch.init.append(f"self.{prefix}{argument} = {prefix}{argument}{fallback}")
    sketch.defaults |= {
        f"{prefix}stride": "None",
        f"{prefix}padding": "0",
        f"{prefix}dilation": "1",
    }
    host = {a: f"self.{prefix}{a}" if a in shown else value for a, value in values.items()}
    if "stride" not in shown:
        host["stride"] = host["kernel_size"]
    if sketch.chance(0.35):
        sketch.reference_init += [
            f"self.{prefix}{argument} = {prefix}{argument}" for argument in shown
        ]
        named = sketch.chance(0.4) or tuple(shown) != tuple(values)[: len(shown)]
        shown_values = ", ".join(
            f"{a}=self.{prefix}{a}" if named else f"self.{prefix}{a}" for a in shown
        )
        sketch.reference.append(f"x = F.{name}(x, {shown_values})")
    else:
        _layer(
            sketch,
            name,
            axes,
            {
                argument: f"{prefix}{argument}"
                for argument in [*shown, *_flags(sketch, largest, prefix)]
            },
        )
    return host


def _flags(sketch: Sketch, largest: bool, prefix: str) -> list[str]:
    """Returns further arguments of torch's layer at their defaults: sometimes written in training
    references, without effect on the kernel.
    """
    flags = {"return_indices": "False"} if largest else {"count_include_pad": "True"}
    flags |= {"ceil_mode": "False"}
    chosen = [name for name in flags if sketch.wild and sketch.style.random() < FLAG_SHARE]
    for name in chosen:
        sketch.argument(f"{prefix}{name}", flags[name], keep=False)
        sketch.defaults[f"{prefix}{name}"] = flags[name]
    return chosen


def _window(sketch: Sketch, largest: bool) -> dict[str, str]:
    """Draws a window small enough for the smallest inputs, with a padding of at most half the
    kernel.
    """
    size = sketch.pick((2, 3, 3, 4, 5))
    padding = sketch.pick((0, 0, 1, size // 2))
    dilation = sketch.pick((1, 1, 1, 2)) if largest else 1
    stride = sketch.pick((1, 2, 3, size))
    while (size - 1) * dilation + 1 - 2 * padding > 3:
        size, dilation = (size - 1, dilation) if dilation == 1 else (size, 1)
    padding = min(padding, size // 2)
    values = {"kernel_size": str(size), "stride": str(stride), "padding": str(padding)}
    return values | ({"dilation": str(dilation)} if largest else {})


def _shown(sketch: Sketch, values: dict[str, str]) -> dict[str, str]:
    """Returns the written arguments: torch's default numbers are mostly omitted."""
    usual = {"stride": values["kernel_size"], "padding": "0", "dilation": "1"}
    return {a: value for a, value in values.items() if usual.get(a) != value or sketch.chance(0.4)}


def _layer(sketch: Sketch, name: str, axes: int, values: dict[str, str]) -> None:
    kind = f"nn.{'Max' if name.startswith('max') else 'Avg'}Pool{axes}d"
    plain = list(values) == ["kernel_size", "stride", "padding", "dilation"][
        : len(values)
    ] and name.startswith("max")
    plain = (
        plain or list(values) == ["kernel_size", "stride", "padding"][: len(values)]
    ) and sketch.chance(0.35)
    shown = ", ".join(
        value if plain else f"{argument}={value}" for argument, value in values.items()
    )
    called = sketch.pick(("pool", name.removesuffix(f"{axes}d"), f"{name.split('_')[0]}pool"))
    sketch.reference.append(
        f"x = self.{sketch.module(called, f'{kind}({shown})', weights=False)}(x)"
    )


def _sizes(names: tuple[str, ...]) -> list[str]:
    return [*names, *(f"O{name}" for name in names)]


def _body(sketch: Sketch, names: tuple[str, ...], largest: bool, tail: list[str]) -> list[str]:
    """Returns the lines of the kernel."""
    total = " * ".join(f"O{name}" for name in names)
    lines = [
        "plane = tl.program_id(0).to(tl.int64)",
        "offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        f"mask = offs < {total}",
        *_coordinates(names),
        f"y = tl.full((BLOCK,), {LOWEST_VALUE if largest else '0.0'}, tl.float32)",
    ]
    indent = ""
    for name in names:
        lines.append(f"{indent}for k{name.lower()} in tl.static_range(KERNEL):")
        indent += "    "
        step = f"k{name.lower()}" + (" * DILATION" if largest else "")
        lines.append(f"{indent}{name.lower()} = o{name.lower()} * STRIDE - PADDING + {step}")
    inside = " & ".join(f"({n.lower()} >= 0) & ({n.lower()} < {n})" for n in names)
    origin = names[0].lower()
    for name in names[1:]:
        origin = (
            f"({origin}) * {name} + {name.lower()}"
            if " " in origin
            else f"{origin} * {name} + {name.lower()}"
        )
    planes = " * ".join(names)
    value = (
        f"tl.load(x_ptr + plane * {planes} + {origin}, mask=mask & {inside}, "
        f"other={LOWEST_VALUE if largest else '0.0'}){sketch.cast}"
    )
    if len(names) > 1:
        value = (
            f"tl.load(x_ptr + plane * ({planes}) + {origin}, mask=mask & {inside}, "
            f"other={LOWEST_VALUE if largest else '0.0'}){sketch.cast}"
        )
    lines += [
        f"{indent}x = {value}",
        f"{indent}y = tl.maximum(y, x)" if largest else f"{indent}y += x",
    ]
    if not largest:
        lines.append(
            "y = y / (" + " * ".join("KERNEL" for _ in names) + ")"
            if len(names) > 1
            else "y = y / KERNEL"
        )
    store = f"tl.store(out_ptr + plane * ({total}) + offs, y, mask=mask)"
    return [*("    " + line for line in lines), *tail, "    " + store]


def _coordinates(names: tuple[str, ...]) -> list[str]:
    match len(names):
        case 1:
            return ["ol = offs"]
        case 2:
            return ["oh = offs // OW", "ow = offs % OW"]
    return ["od = offs // (OH * OW)", "oh = offs // OW % OH", "ow = offs % OW"]


def _host(
    sketch: Sketch, names: tuple[str, ...], extra: ChainNeeds, window: dict[str, str]
) -> None:
    source, target = sketch.current, sketch.target()
    size, stride, padding = (window[name] for name in ("kernel_size", "stride", "padding"))
    reach = f"{window['dilation']} * ({size} - 1)" if "dilation" in window else f"({size} - 1)"
    sketch.host.append(f"B, C, {', '.join(names)} = {source}.shape")
    for name in names:
        sketch.host.append(f"O{name} = ({name} + 2 * {padding} - {reach} - 1) // {stride} + 1")
    shape = ", ".join(["B", "C", *(f"O{name}" for name in names)])
    total = " * ".join(f"O{name}" for name in names)
    dilation = f", DILATION={window['dilation']}" if "dilation" in window else ""
    values = ", ".join([source, *extra.values, target, *_sizes(names)])
    sketch.host += [
        f"{target} = torch.empty(({shape}), device={source}.device, dtype={source}.dtype)",
        f"pool_kernel[(B * C, triton.cdiv({total}, 1024))]({values}, KERNEL={size}, STRIDE={stride}, "
        f"PADDING={padding}{dilation}, "
        "BLOCK=1024)",
    ]
    sketch.current = target
