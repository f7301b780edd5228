"""Running sums and products along an axis: forwards, backwards, exclusive, masked.

Each block is scanned in turn, and its total is carried to the next.
"""

from __future__ import annotations

from dataclasses import replace

from kernelwright.rl.data.synth.blocks.axes import INNER_AXIS, ROW_AXIS, Axis, AxisKernel
from kernelwright.rl.data.synth.blocks.chain import draw_steps
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program
from kernelwright.rl.data.synth.engine.sketch import Sketch
from kernelwright.rl.data.synth.engine.tensors import start

SCAN_FORMS = (
    ("cumsum", 4.0),
    ("reverse_cumsum", 2.0),
    ("exclusive_cumsum", 1.5),
    ("masked_cumsum", 2.0),
    ("cumprod", 1.5),
)


def scan(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws x -> chain -> scan -> chain."""
    sketch.family = "scans"
    start(sketch, sketch.rng.choices((2, 3), (5, 1))[0])
    last_axis = len(sketch.shape) == 2 or sketch.chance(0.5)
    form = sketch.rng.choices([f for f, _ in SCAN_FORMS], [w for _, w in SCAN_FORMS])[0]
    # Operations before the scan; the others follow it.
    first = min(depth - 1, sketch.rng.choices((0, 1, 2), (4, 2, 1))[0])
    if form == "cumprod":
        _small_factors(sketch)
    before = draw_steps(sketch, first, tensors=False, binary=0)
    walk = AxisKernel(sketch, ROW_AXIS if last_axis else INNER_AXIS, before)
    _write(sketch, form, last_axis)
    sketch.ops.append(form)
    after = draw_steps(sketch, depth - 1 - first, tensors=False, binary=0)
    _passes(walk, form, walk.chain(after, "y", ""))
    walk.launch("scan_kernel", sketch.target(), "")
    return finish_program(sketch)


def _small_factors(sketch: Sketch) -> None:
    """Returns factors near one, so a long product neither vanishes nor explodes."""
    name, _ = sketch.inputs[0]
    sketch.inputs[0] = (name, f"1.0 + 0.01 * torch.randn({', '.join(sketch.shape)})")


def _write(sketch: Sketch, form: str, last_axis: bool) -> None:
    dim = str(sketch.pick((-1, len(sketch.shape) - 1))) if last_axis else "1"
    if sketch.chance(0.4):
        sketch.reference_init.append("self.dim = dim")
        sketch.arguments.append(("dim", dim))
        dim = "self.dim"
    match form:
        case "cumsum" | "cumprod":
            line = f"x = {sketch.pick((f'torch.{form}(x, dim={dim})', f'x.{form}(dim={dim})'))}"
        case "reverse_cumsum":
            line = f"x = torch.cumsum(x.flip({dim}), dim={dim}).flip({dim})"
        case "exclusive_cumsum":
            line = f"x = torch.cumsum(x, dim={dim}) - x"
        case _:
            sketch.inputs.append(
                ("mask", f"torch.randint(0, 2, ({', '.join(sketch.shape)})).bool()")
            )
            line = f"x = torch.cumsum(x * mask, dim={dim})"
    sketch.reference.append(line)


def _passes(walk: AxisKernel, form: str, tail: list[str]) -> None:
    axis = walk.axis
    if form == "reverse_cumsum":
        walk.axis = axis = _backwards(axis)
    product = form == "cumprod"
    # Masked elements must not change the running value.
    walk.other = "1.0" if product else "0.0"
    walk.at(_carry(axis, "1.0" if product else "0.0"))
    lines = []
    if form == "masked_cumsum":
        walk.extra.parameters.append("keep_ptr")
        walk.extra.values.append("mask")
        lines += [
            f"keep = tl.load(keep_ptr + {axis.offsets}, mask=mask, other=0)",
            "x = tl.where(keep != 0, x, 0.0)",
        ]
    # The chain may have changed the value of masked elements.
    if walk.before:
        lines.append(f"x = tl.where(mask, x, {walk.other})")
    spread = axis.spread
    if product:
        lines += [
            f"y = tl.cumprod(x, axis=0) * carry{spread}",
            # The product so far is the last element of the block; a sum of factors would be
            # wrong.
            f"carry = tl.sum(tl.where({_last(axis)}, y, 0.0), axis=0)",
        ]
    else:
        lines += [f"y = tl.cumsum(x, axis=0) + carry{spread}", "carry += tl.sum(x, axis=0)"]
    if form == "exclusive_cumsum":
        # An exclusive sum leaves out the element itself.
        lines.append("y = y - x")
    walk.each(*lines, *tail, walk.store_elements("y"))


def _carry(axis: Axis, value: str) -> str:
    return f"carry = tl.full((BLOCK,), {value}, tl.float32)" if axis.spread else f"carry = {value}"


def _last(axis: Axis) -> str:
    if axis.spread:
        return "rows == start + BLOCK_L - 1"
    return "cols == start + BLOCK - 1"


def _backwards(axis: Axis) -> Axis:
    """Returns the same walk from the end: positions are counted from the last element."""
    if not axis.spread:
        return replace(
            axis, inside=("cols = columns - 1 - start - tl.arange(0, BLOCK)", "mask = cols >= 0")
        )
    rows = "rows = length - 1 - start - tl.arange(0, BLOCK_L)[:, None]"
    return replace(
        axis, inside=(rows, axis.inside[1], "mask = (rows >= 0) & (cols[None, :] < inner)")
    )
