"""Sums, means, extremes, arguments of extremes, variances, norms and logsumexp along an axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.rl.data.synth.blocks.axes import INNER_AXIS, ROW_AXIS, AxisKernel
from kernelwright.rl.data.synth.blocks.chain import draw_steps
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program
from kernelwright.rl.data.synth.engine.sketch import Sketch
from kernelwright.rl.data.synth.engine.tensors import draw_dtype, start

LOWEST, HIGHEST = '-float("inf")', 'float("inf")'


@dataclass(frozen=True)
class Reduction:
    """A way to reduce rows."""

    name: str
    torch: tuple[str, ...]
    """Spelling of the reference; `{k}` is ", keepdim=True" or nothing."""
    passes: Callable[[AxisKernel], str]
    """Writes the passes and returns the name of the reduced value."""
    integer: bool = False
    weight: float = 1.0


def _folded(walk: AxisKernel, identity: str, fold: str, final: str) -> str:
    """Returns passes with an accumulator for each lane, reduced at the end."""
    # Without a chain before, the load itself can insert the identity for masked elements.
    walk.other = identity if not walk.before else "0.0"
    walk.accumulator("acc", identity)
    walk.each(fold.format(x=walk.masked(identity)))
    walk.at(f"y = {final}")
    return "y"


def _sum(walk: AxisKernel) -> str:
    return _folded(walk, "0.0", "acc += {x}", "tl.sum(acc, axis=0)")


def _mean(walk: AxisKernel) -> str:
    return _folded(walk, "0.0", "acc += {x}", f"tl.sum(acc, axis=0) / {walk.axis.count}")


def _max(walk: AxisKernel) -> str:
    return _folded(walk, LOWEST, "acc = tl.maximum(acc, {x})", "tl.max(acc, axis=0)")


def _min(walk: AxisKernel) -> str:
    return _folded(walk, HIGHEST, "acc = tl.minimum(acc, {x})", "tl.min(acc, axis=0)")


def _l1(walk: AxisKernel) -> str:
    return _folded(walk, "0.0", "acc += tl.abs({x})", "tl.sum(acc, axis=0)")


def _l2(walk: AxisKernel) -> str:
    return _squares(walk, "tl.sqrt(tl.sum(acc, axis=0))")


def _mean_square(walk: AxisKernel) -> str:
    return _squares(walk, f"tl.sum(acc, axis=0) / {walk.axis.count}")


def _squares(walk: AxisKernel, final: str) -> str:
    # An accumulator for each lane; lanes are combined after the loop.
    walk.accumulator("acc", "0.0")
    x = walk.masked("0.0")
    walk.each(*(["acc += x * x"] if x == "x" else [f"x = {x}", "acc += x * x"]))
    walk.at(f"y = {final}")
    return "y"


def _extreme_index(walk: AxisKernel, identity: str, better: str, final: str) -> str:
    walk.other = identity if not walk.before else "0.0"
    walk.accumulator("best", identity)
    walk.accumulator("index", "0", "tl.int32")
    x = walk.masked(identity)
    update = [
        # Strict comparison: of equal elements in a lane the first one stays, as in torch.
        f"better = x {better} best",
        "best = tl.where(better, x, best)",
        f"index = tl.where(better, {walk.axis.index}, index)",
    ]
    walk.each(*([] if x == "x" else [f"x = {x}"]), *update)
    walk.at(f"top = {final}(best, axis=0)")
    walk.at(
        # Of equal extremes in several lanes torch returns the smallest index.
        f"y = tl.min(tl.where(best == top{walk.axis.spread}, index, {walk.axis.count}), axis=0)"
    )
    return "y"


def _argmax(walk: AxisKernel) -> str:
    return _extreme_index(walk, LOWEST, ">", "tl.max")


def _argmin(walk: AxisKernel) -> str:
    return _extreme_index(walk, HIGHEST, "<", "tl.min")


def squared_deviation_passes(walk: AxisKernel) -> None:
    """Writes two passes: `mean`, then `acc` with the squared deviations from the mean.

    A sum of squares alone loses all precision on constant rows.
    """
    walk.accumulator("acc", "0.0")
    walk.each(f"acc += {walk.masked('0.0')}")
    walk.at(f"mean = tl.sum(acc, axis=0) / {walk.axis.count}")
    walk.accumulator("acc", "0.0")
    walk.each(f"diff = tl.where(mask, x - mean{walk.axis.spread}, 0.0)", "acc += diff * diff")


def _variance(walk: AxisKernel) -> str:
    squared_deviation_passes(walk)
    walk.at(f"y = tl.sum(acc, axis=0) / ({walk.axis.count} - 1)")
    return "y"


def _deviation(walk: AxisKernel) -> str:
    squared_deviation_passes(walk)
    walk.at(f"y = tl.sqrt(tl.sum(acc, axis=0) / ({walk.axis.count} - 1))")
    return "y"


def online_exp_sum_pass(walk: AxisKernel) -> None:
    """Writes a single pass: `top`, the maximum so far, and `total`, the sum of exp(x - top)."""
    walk.other = LOWEST if not walk.before else "0.0"
    x = walk.masked(LOWEST)
    # Along an inner axis a program holds a block of columns, along the last axis a single row.
    first = [
        f"top = tl.full((BLOCK,), {LOWEST}, tl.float32)",
        "total = tl.zeros((BLOCK,), tl.float32)",
    ]
    walk.at(*(first if walk.axis is INNER_AXIS else [f"top = {LOWEST}", "total = 0.0"]))
    update = [
        # A larger maximum rescales the sum so far: exp(x - new_top) = exp(x - top) exp(top -
        # new_top).
        "new_top = tl.maximum(top, tl.max(x, axis=0))",
        f"total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top{walk.axis.spread}), axis=0)",
        "top = new_top",
    ]
    walk.each(*([] if x == "x" else [f"x = {x}"]), *update)


def _logsumexp(walk: AxisKernel) -> str:
    online_exp_sum_pass(walk)
    walk.at("y = top + tl.log(total)")
    return "y"


REDUCTIONS = (
    Reduction("sum", ("torch.sum(x, dim={d}{k})", "x.sum(dim={d}{k})"), _sum, weight=2.0),
    Reduction("mean", ("torch.mean(x, dim={d}{k})", "x.mean(dim={d}{k})"), _mean, weight=2.0),
    Reduction("max", ("torch.max(x, dim={d}{k})[0]", "x.max(dim={d}{k}).values", "x.amax(dim={d}{k})",
    "torch.amax(x, dim={d}{k})"), _max, weight=1.5),
    Reduction("min", ("torch.min(x, dim={d}{k})[0]", "x.amin(dim={d}{k})", "torch.amin(x, dim={d}{k})"), _min,
    weight=1.5),
    Reduction("argmax", ("torch.argmax(x, dim={d}{k})", "torch.max(x, dim={d}{k})[1]", "x.argmax(dim={d}{k})"), _argmax,
    integer=True),
    Reduction("argmin", ("torch.argmin(x, dim={d}{k})", "x.argmin(dim={d}{k})"), _argmin, integer=True),
    Reduction("var", ("torch.var(x, dim={d}{k})", "x.var(dim={d}{k})", "x.var(dim={d}, unbiased=True{k})"), _variance),
    Reduction("std", ("torch.std(x, dim={d}{k})", "x.std(dim={d}{k})", "torch.sqrt(torch.var(x, dim={d}{k}))"),
    _deviation, weight=0.7),
    Reduction("logsumexp", ("torch.logsumexp(x, dim={d}{k})", "x.logsumexp(dim={d}{k})"), _logsumexp, weight=1.5),
    Reduction("l1_norm", ("torch.norm(x, p=1, dim={d}{k})", "torch.sum(torch.abs(x), dim={d}{k})"), _l1, weight=0.7),
    Reduction("l2_norm", ("torch.norm(x, p=2, dim={d}{k})", "torch.sqrt(torch.sum(x ** 2, dim={d}{k}))",
    "torch.linalg.norm(x, dim={d}{k})"), _l2),
    Reduction("mean_square", ("torch.mean(x ** 2, dim={d}{k})", "x.pow(2).mean(dim={d}{k})"), _mean_square, weight=0.7),
)  # fmt: skip
OVER_SEVERAL_AXES = tuple(
    r for name in ("mean", "sum", "max", "min", "logsumexp") for r in REDUCTIONS if r.name == name
)
"""Reductions over several axes."""
PER_SAMPLE_SHARE = 0.3
"""Share of training reductions over several axes with a single number for each sample."""
NEVER_DRAWN_ALONE = {"var", "std", "logsumexp", "l1_norm", "l2_norm", "mean_square"}
"""Reductions absent from benchmarks as a single operation."""


def reduction(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws x -> chain -> reduction -> chain."""
    sketch.family = "reductions"
    draw_dtype(sketch)
    start(sketch, sketch.rng.choices((2, 3, 4, 5), (3.5, 2.5, 2, 0.4))[0])
    reduce_current(sketch, depth)
    return finish_program(sketch)


def reduce_current(sketch: Sketch, depth: int, before: int | None = None) -> None:
    """Appends a reduction of the current tensor with depth - 1 element-wise steps around it."""
    planes = len(sketch.shape) > 3 and (depth > 1 or bool(sketch.ops)) and sketch.chance(0.5)
    chosen = (
        sketch.rng.choices(OVER_SEVERAL_AXES, (3, 1, 1, 1, 1))[0]
        if planes
        else _chosen(sketch, depth)
    )
    around = depth - 1
    first = sketch.rng.randint(0, around) if before is None else before
    if chosen.integer:
        first = around
    if planes:
        _planes(sketch, chosen, around, first)
        return
    last_axis = len(sketch.shape) == 2 or sketch.chance(0.35)
    axis = ROW_AXIS if last_axis else INNER_AXIS
    steps = draw_steps(sketch, first, tensors=False, binary=0)
    keep = sketch.chance(0.4)
    _write(sketch, chosen, last_axis, keep)
    sketch.ops.append(chosen.name)
    sketch.shape = _reduced(sketch.shape, last_axis, keep)
    walk = AxisKernel(sketch, axis, steps)
    name = chosen.passes(walk)
    walk.after(draw_steps(sketch, around - first, tensors=False, binary=0), name)
    walk.store_reduced(name)
    dtype = "torch.int64" if chosen.integer else ""
    walk.launch(
        "reduce_kernel",
        sketch.target(),
        _shape(sketch.current, last_axis, keep),
        dtype,
    )


def _planes(sketch: Sketch, chosen: Reduction, around: int, first: int) -> None:
    """Appends a reduction over all axes after the second, in training sometimes after the first:
    a plane, or a sample, is a row.
    """
    steps = draw_steps(sketch, first, tensors=False, binary=0)
    behind = 1 if sketch.wild and sketch.chance(PER_SAMPLE_SHARE) else 2
    axes = ", ".join(str(i) for i in range(behind, len(sketch.shape)))
    keep = sketch.chance(0.5)
    shown = sketch.pick((f"({axes})", f"[{axes}]"))
    adaptive = behind == 2 and chosen.name in ("mean", "max") and sketch.chance(0.35)
    if adaptive:
        keep = sketch.chance(0.6)
        _adaptive(sketch, "Avg" if chosen.name == "mean" else "Max", keep)
    else:
        spelt = chosen.torch[-1] if chosen.name in ("max", "min") else sketch.pick(chosen.torch)
        sketch.reference.append("x = " + spelt.format(d=shown, k=", keepdim=True" if keep else ""))
    sketch.ops.append(f"{'plane' if behind == 2 else 'sample'}_{chosen.name}")
    ones = ["1"] * (len(sketch.shape) - behind) if keep else []
    sketch.shape = (*sketch.shape[:behind], *ones)
    walk = AxisKernel(sketch, ROW_AXIS, steps)
    name = chosen.passes(walk)
    walk.after(draw_steps(sketch, around - first, tensors=False, binary=0), name)
    walk.store_reduced(name)
    source = sketch.current
    walk.columns = f"{source}.stride({behind - 1})"
    shape = (
        f"(*{source}.shape[:{behind}], {', '.join(ones)})" if keep else f"{source}.shape[:{behind}]"
    )
    walk.launch("reduce_kernel", sketch.target(), shape)


def _adaptive(sketch: Sketch, kind: str, keep: bool) -> None:
    """Returns pooling to a single pixel, as a layer or a call; flattened if unit axes are not
    wanted.
    """
    axes = len(sketch.shape) - 2
    to = sketch.pick(("1", "1", f"({', '.join(['1'] * axes)})"))
    if sketch.chance(0.6):
        name = sketch.free(sketch.pick(("pool", "global_pool", "gap")))
        sketch.module(name, f"nn.Adaptive{kind}Pool{axes}d({to})", weights=False)
        call = f"self.{name}(x)"
    else:
        call = f"F.adaptive_{kind.lower()}_pool{axes}d(x, {to})"
    flat = (
        "" if keep else sketch.pick((".flatten(1)", ".view(x.size(0), -1)", ".squeeze(-1)" * axes))
    )
    sketch.reference.append(f"x = {call}{flat}")


def _chosen(sketch: Sketch, depth: int) -> Reduction:
    pool = [r for r in REDUCTIONS if depth > 1 or sketch.ops or r.name in NEVER_DRAWN_ALONE]
    return sketch.rng.choices(pool, [r.weight for r in pool])[0]


def _write(sketch: Sketch, chosen: Reduction, last_axis: bool, keep: bool) -> None:
    dim = str(sketch.pick((-1, len(sketch.shape) - 1))) if last_axis else "1"
    if sketch.chance(0.4):
        sketch.reference_init.append("self.dim = dim")
        sketch.arguments.append(("dim", dim))
        dim = "self.dim"
    sketch.reference.append(
        "x = " + sketch.pick(chosen.torch).format(d=dim, k=", keepdim=True" if keep else "")
    )


def _reduced(shape: tuple[str, ...], last_axis: bool, keep: bool) -> tuple[str, ...]:
    at = len(shape) - 1 if last_axis else 1
    return tuple(n if i != at else "1" for i, n in enumerate(shape) if keep or i != at)


def _shape(source: str, last_axis: bool, keep: bool) -> str:
    unit_axis = ", 1" if keep else ""
    if last_axis:
        return f"(*{source}.shape[:-1]{unit_axis})" if keep else f"{source}.shape[:-1]"
    return f"({source}.shape[0]{unit_axis}, *{source}.shape[2:])"
