"""Pooling over one, two or three axes: one program a block of outputs of one plane, the taps of the window unrolled."""

from __future__ import annotations

from rl.data.synth.chain import Extra, Site, draw_steps, kernel_lines
from rl.data.synth.program import Program, finished, kernel
from rl.data.synth.sketch import Sketch
from rl.data.synth.tensors import start

AXES = {1: ("L",), 2: ("H", "W"), 3: ("D", "H", "W")}
LOW = '-float("inf")'


def pooling(sketch: Sketch, depth: int) -> Program:
    """x -> max or average pooling -> chain."""
    sketch.family = "pooling"
    axes = sketch.rng.choices((1, 2, 3), (3, 4, 2))[0]
    start(sketch, axes + 2)
    for name, cpu in zip(sketch.shape, (1, 3, *((5,) * axes if axes > 2 else ())), strict=False):
        sketch.sizes[name] = (sketch.sizes[name][0], cpu)
    pool_current(sketch, axes, depth)
    return finished(sketch)


def pool_current(sketch: Sketch, axes: int, depth: int) -> None:
    """A window over the last `axes` axes of the current tensor, then depth - 1 element-wise steps."""
    largest = sketch.chance(0.5)
    name = f"{'max' if largest else 'avg'}_pool{axes}d"
    _write(sketch, name, axes, largest)
    sketch.ops.append(name)
    sketch.shape = (*sketch.shape[:2], *("" for _ in range(axes)))
    steps = draw_steps(sketch, depth - 1, tensors=False, binary=0)
    extra = Extra()
    tail = kernel_lines(sketch, steps, Site("y", "", "mask"), extra)
    names = AXES[axes]
    parameters = ["x_ptr", *extra.parameters, "out_ptr", *_sizes(names), "KERNEL", "STRIDE", "PADDING"]
    parameters += ["DILATION"] if largest else []
    sketch.kernels.append(kernel("pool_kernel", [*parameters, "BLOCK"], _body(sketch, names, largest, tail)))
    _host(sketch, names, extra, largest)


def _write(sketch: Sketch, name: str, axes: int, largest: bool) -> None:
    size = sketch.pick((2, 3, 3, 4))
    stride, padding, dilation = (
        sketch.pick((1, 2, 3, size)),
        sketch.pick((0, 0, 1)),
        sketch.pick((1, 1, 2)) if largest else 1,
    )
    while (size - 1) * dilation + 1 - 2 * padding > 3:
        size, dilation = (size - 1, dilation) if dilation == 1 else (size, 1)
    values = [("kernel_size", size), ("stride", stride), ("padding", padding)] + (
        [("dilation", dilation)] if largest else []
    )
    own = stride == size and sketch.chance(0.7)
    sketch.defaults |= {"stride": "None", "padding": "0", "dilation": "1"}
    for argument, value in values:
        sketch.arguments.append((argument, "None" if own and argument == "stride" else str(value)))
        sketch.init.append(f"self.{argument} = {argument}" + (" or kernel_size" if argument == "stride" else ""))
    _ask(sketch, name, axes, largest, [argument for argument, _ in values])


def _ask(sketch: Sketch, name: str, axes: int, largest: bool, arguments: list[str]) -> None:
    """The reference's call: of a layer mostly, else of the function with what the model keeps."""
    if sketch.chance(0.25):
        sketch.reference_init += [f"self.{argument} = {argument}" for argument in arguments]
        given = ", ".join(f"self.{argument}" for argument in arguments)
        sketch.reference.append(f"x = F.{name}(x, {given})")
        return
    given = ", ".join(f"{argument}={argument}" for argument in arguments)
    layer = f"nn.{'Max' if largest else 'Avg'}Pool{axes}d({given})"
    called = sketch.pick(("pool", name.removesuffix(f"{axes}d"), f"{name.split('_')[0]}pool"))
    sketch.reference.append(f"x = self.{sketch.module(called, layer, weights=False)}(x)")


def _sizes(names: tuple[str, ...]) -> list[str]:
    return [*names, *(f"O{name}" for name in names)]


def _body(sketch: Sketch, names: tuple[str, ...], largest: bool, tail: list[str]) -> list[str]:
    """Lines of the kernel."""
    total = " * ".join(f"O{name}" for name in names)
    lines = [
        "plane = tl.program_id(0).to(tl.int64)",
        "offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        f"mask = offs < {total}",
        *_coordinates(names),
        f"y = tl.full((BLOCK,), {LOW if largest else '0.0'}, tl.float32)",
    ]
    indent = ""
    for name in names:
        lines.append(f"{indent}for k{name.lower()} in tl.static_range(KERNEL):")
        indent += "    "
        step = f"k{name.lower()}" + (" * DILATION" if largest else "")
        lines.append(f"{indent}{name.lower()} = o{name.lower()} * STRIDE - PADDING + {step}")
    inside = " & ".join(f"({n.lower()} >= 0) & ({n.lower()} < {n})" for n in names)
    place = names[0].lower()
    for name in names[1:]:
        place = f"({place}) * {name} + {name.lower()}" if " " in place else f"{place} * {name} + {name.lower()}"
    planes = " * ".join(names)
    value = f"tl.load(x_ptr + plane * {planes} + {place}, mask=mask & {inside}, other={LOW if largest else '0.0'}){sketch.cast}"
    if len(names) > 1:
        value = f"tl.load(x_ptr + plane * ({planes}) + {place}, mask=mask & {inside}, other={LOW if largest else '0.0'}){sketch.cast}"
    lines += [f"{indent}x = {value}", f"{indent}y = tl.maximum(y, x)" if largest else f"{indent}y += x"]
    if not largest:
        lines.append("y = y / (" + " * ".join("KERNEL" for _ in names) + ")" if len(names) > 1 else "y = y / KERNEL")
    store = f"tl.store(out_ptr + plane * ({total}) + offs, y, mask=mask)"
    return [*("    " + line for line in lines), *tail, "    " + store]


def _coordinates(names: tuple[str, ...]) -> list[str]:
    match len(names):
        case 1:
            return ["ol = offs"]
        case 2:
            return ["oh = offs // OW", "ow = offs % OW"]
    return ["od = offs // (OH * OW)", "oh = offs // OW % OH", "ow = offs % OW"]


def _host(sketch: Sketch, names: tuple[str, ...], extra: Extra, largest: bool) -> None:
    source, target = sketch.current, sketch.target()
    reach = "self.dilation * (self.kernel_size - 1)" if largest else "(self.kernel_size - 1)"
    sketch.host.append(f"B, C, {', '.join(names)} = {source}.shape")
    for name in names:
        sketch.host.append(f"O{name} = ({name} + 2 * self.padding - {reach} - 1) // self.stride + 1")
    shape = ", ".join(["B", "C", *(f"O{name}" for name in names)])
    total = " * ".join(f"O{name}" for name in names)
    dilation = ", DILATION=self.dilation" if largest else ""
    values = ", ".join([source, *extra.values, target, *_sizes(names)])
    sketch.host += [
        f"{target} = torch.empty(({shape}), device={source}.device, dtype={source}.dtype)",
        f"pool_kernel[(B * C, triton.cdiv({total}, 1024))]({values}, KERNEL=self.kernel_size, STRIDE=self.stride, PADDING=self.padding{dilation}, BLOCK=1024)",
    ]
    sketch.current = target
