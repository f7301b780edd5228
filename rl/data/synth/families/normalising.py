"""Softmax variants, and norms along an axis: passes that reduce, then a pass that writes every
element.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.rl.data.synth.blocks.axes import INNER_AXIS, ROW_AXIS, AxisKernel
from kernelwright.rl.data.synth.blocks.chain import draw_steps
from kernelwright.rl.data.synth.blocks.row_layers import NormScaling, layer_norm, rms_norm
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program
from kernelwright.rl.data.synth.engine.sketch import Sketch
from kernelwright.rl.data.synth.engine.tensors import draw_dtype, start
from kernelwright.rl.data.synth.families.reductions import (
    LOWEST,
    online_exp_sum_pass,
    squared_deviation_passes,
)


@dataclass(frozen=True)
class Norm:
    """A way to normalise rows."""

    name: str
    write: Callable[..., NormScaling | None]
    """Adds the reference's statements for an axis, or for a layer of the last axis."""
    passes: Callable[[AxisKernel], str]
    """Writes all passes but the last, and returns the expression of an element."""
    weight: float = 1.0


def _says(*spellings: str) -> Callable[[Sketch, str], None]:
    def write(sketch: Sketch, dim: str) -> None:
        lines = sketch.pick(spellings).format(d=dim).split("\n")
        sketch.reference += lines

    return write


def _softmax(walk: AxisKernel) -> str:
    online_exp_sum_pass(walk)
    s = walk.axis.spread
    return f"tl.exp(x - top{s}) / total{s}"


def _log_softmax(walk: AxisKernel) -> str:
    online_exp_sum_pass(walk)
    s = walk.axis.spread
    if s:
        return f"x - top{s} - tl.log(total){s}"
    return "x - top - tl.log(total)"


def _gathered(
    walk: AxisKernel, term: str, final: str, identity: str = "0.0", fold: str = "acc += {t}"
) -> None:
    # The masked value is written only if the load did not already insert the identity.
    x = walk.masked(identity)
    walk.accumulator("acc", identity)
    lines = [] if x == "x" else [f"x = {x}"]
    walk.each(*lines, fold.format(t=term))
    walk.at(f"factor = {final}")


def _simple(term: str, final: str, element: str) -> Callable[[AxisKernel], str]:
    def passes(walk: AxisKernel) -> str:
        _gathered(walk, term, final.format(n=walk.axis.count))
        return element.format(s=walk.axis.spread)

    return passes


# Each function below writes the passes of a norm and returns the expression of an element;
# `spread` repeats a row's value along its elements.
def _over_max(walk: AxisKernel) -> str:
    _gathered(walk, "tl.abs(x)", "tl.max(acc, axis=0)", fold="acc = tl.maximum(acc, {t})")
    return f"x / (factor{walk.axis.spread} + 1e-6)"


def _less_max(walk: AxisKernel) -> str:
    walk.other = LOWEST if not walk.before else "0.0"
    _gathered(walk, "x", "tl.max(acc, axis=0)", identity=LOWEST, fold="acc = tl.maximum(acc, {t})")
    return f"x - factor{walk.axis.spread}"


def _standard(walk: AxisKernel) -> str:
    squared_deviation_passes(walk)
    walk.at(f"factor = 1.0 / (tl.sqrt(tl.sum(acc, axis=0) / ({walk.axis.count} - 1)) + 1e-5)")
    s = walk.axis.spread
    return f"(x - mean{s}) * factor{s}"


def _biased(walk: AxisKernel) -> str:
    squared_deviation_passes(walk)
    walk.at(f"factor = tl.rsqrt(tl.sum(acc, axis=0) / {walk.axis.count} + 1e-5)")
    s = walk.axis.spread
    return f"(x - mean{s}) * factor{s}"


def _layer(walk: AxisKernel) -> str:
    squared_deviation_passes(walk)
    walk.at(f"factor = tl.rsqrt(tl.sum(acc, axis=0) / {walk.axis.count} + eps)")
    s = walk.axis.spread
    return f"(x - mean{s}) * factor{s}"


def _rms_of_layer(sketch: Sketch, dim: str) -> None:
    """Draws RMS norms with eps, and often the number of features, as arguments of the model."""
    if sketch.chance(0.6) and not sketch.takes("num_features"):
        size = sketch.shape[1] if dim == "1" else sketch.shape[-1]
        if size:
            sketch.argument("num_features", size, keep=sketch.chance(0.5))
    sketch.argument("eps", "1e-5")
    sketch.defaults["eps"] = "1e-5"
    spellings = (
        "rms = torch.sqrt(torch.mean(x ** 2, dim={d}, keepdim=True) + self.eps)\nx = x / rms",
        "x = x * torch.rsqrt(x.pow(2).mean(dim={d}, keepdim=True) + self.eps)",
    )
    sketch.reference += sketch.pick(spellings).format(d=dim).split("\n")


def _rms_with_eps(walk: AxisKernel) -> str:
    walk.extra.parameters.append("eps")
    walk.extra.values.append("self.eps")
    return _simple("x * x", "tl.rsqrt(tl.sum(acc, axis=0) / {n} + eps)", "x * factor{s}")(walk)


SOFTMAXES = (
    Norm(
        "softmax",
        _says(
            "x = torch.softmax(x, dim={d})", "x = F.softmax(x, dim={d})", "x = x.softmax(dim={d})"
        ),
        _softmax,
        2.0,
    ),
    Norm(
        "log_softmax",
        _says(
            "x = torch.log_softmax(x, dim={d})",
            "x = F.log_softmax(x, dim={d})",
            "x = x.log_softmax(dim={d})",
        ),
        _log_softmax,
        1.5,
    ),
)
NORMS = (
    Norm("rms_norm", _says("rms = torch.sqrt(torch.mean(x ** 2, dim={d}, keepdim=True) + 1e-5)\nx = x / rms",
    "x = x * torch.rsqrt(x.pow(2).mean(dim={d}, keepdim=True) + 1e-5)"),
    _simple("x * x", "tl.rsqrt(tl.sum(acc, axis=0) / {n} + 1e-5)", "x * factor{s}"), 2.0),
    Norm("rms_norm", _rms_of_layer, _rms_with_eps, 1.5),
    Norm("l1_normalise", _says("x = x / torch.mean(torch.abs(x), dim={d}, keepdim=True)"),
    _simple("tl.abs(x)", "tl.sum(acc, axis=0) / {n}", "x / factor{s}")),
    Norm("l1_sum_normalise", _says("x = F.normalize(x, p=1.0, dim={d})"),
    _simple("tl.abs(x)", "tl.maximum(tl.sum(acc, axis=0), 1e-12)", "x / factor{s}"), 0.6),
    Norm("l2_normalise", _says("x = x / torch.norm(x, p=2, dim={d}, keepdim=True)", "x = F.normalize(x, dim={d})",
    "x = F.normalize(x, p=2, dim={d})"), _simple("x * x", "tl.maximum(tl.sqrt(tl.sum(acc, axis=0)), 1e-12)",
    "x / factor{s}"), 1.5),
    Norm("centre", _says("x = x - x.mean(dim={d}, keepdim=True)", "x = x - torch.mean(x, dim={d}, keepdim=True)"),
    _simple("x", "tl.sum(acc, axis=0) / {n}", "x - factor{s}")),
    Norm("standardise",
    _says("mean = x.mean(dim={d}, keepdim=True)\nstd = x.std(dim={d}, keepdim=True)\nx = (x - mean) / (std + 1e-5)"),
    _standard),
    Norm("max_normalise", _says("x = x / (x.abs().amax(dim={d}, keepdim=True) + 1e-6)"), _over_max, 0.7),
    Norm("less_max", _says("x = x - torch.amax(x, dim={d}, keepdim=True)", "x = x - x.max(dim={d}, keepdim=True)[0]"),
    _less_max, 0.7),
    Norm("standardise",
    _says("mean = torch.mean(x, dim={d}, keepdim=True)\nvar = torch.var(x, dim={d}, keepdim=True, "
    "unbiased=False)\nx = (x - mean) / torch.sqrt(var + 1e-5)"), _biased),
)  # fmt: skip
LAYERS = (
    Norm("layer_norm", layer_norm, _layer, 5.0),
    Norm("weighted_rms_norm", rms_norm, _simple("x * x", "tl.rsqrt(tl.sum(acc, axis=0) / {n} + eps)", "x * factor{s}"),
    5.0),
)  # fmt: skip
"""Norms of the last axis only, with eps and mostly with weights."""


def softmax(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws x -> chain -> softmax or log-softmax -> chain."""
    sketch.family = "softmax"
    draw_dtype(sketch)
    return _program(sketch, depth, SOFTMAXES)


def norm(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws x -> chain -> norm along an axis -> chain."""
    sketch.family = "norms"
    return _program(sketch, depth, (*NORMS, *LAYERS))


def _program(sketch: Sketch, depth: int, pool: tuple[Norm, ...]) -> DrawnProgram:
    start(sketch, sketch.rng.choices((2, 3, 4), (5, 2, 1))[0])
    normalise_current(sketch, pool, depth)
    return finish_program(sketch)


def normalise_current(
    sketch: Sketch, pool: tuple[Norm, ...], depth: int, before: int | None = None
) -> None:
    """Appends a norm of `pool` over the current tensor with depth - 1 element-wise steps around
    it, few of them before: every pass repeats those.
    """
    chosen = sketch.rng.choices(pool, [n.weight for n in pool])[0]
    around = depth - 1
    first = min(around, sketch.rng.choices((0, 1, 2), (5, 2, 0.7))[0]) if before is None else before
    last_axis = len(sketch.shape) == 2 or chosen in LAYERS or sketch.chance(0.4)
    steps = draw_steps(sketch, first, tensors=False, binary=0)
    scaled = _write(sketch, chosen, last_axis)
    sketch.ops.append(chosen.name)
    walk = AxisKernel(sketch, ROW_AXIS if last_axis else INNER_AXIS, steps)
    _add_parameters(walk, scaled)
    element = chosen.passes(walk)
    channels = (
        ""
        if sketch.narrow
        else sketch.shape[-1]
        if last_axis
        else sketch.shape[1]
        if len(sketch.shape) > 2
        else ""
    )
    later = draw_steps(
        sketch,
        around - first,
        channels=channels if len(sketch.shape) == 2 else "",
        tensors=all(sketch.shape),
        binary=0.2,
    )
    tail = _affine(walk, scaled) + walk.chain(later, "x", "")
    walk.each(f"x = {element}", *tail, walk.store_elements("x"))
    walk.launch(f"{'softmax' if pool is SOFTMAXES else 'norm'}_kernel", sketch.target(), "")


def _write(sketch: Sketch, chosen: Norm, last_axis: bool) -> NormScaling | None:
    """Writes the reference's statements, and returns the arguments of a layer's kernel."""
    if chosen in LAYERS:
        return chosen.write(sketch)
    dim = str(sketch.pick((-1, len(sketch.shape) - 1))) if last_axis else "1"
    if chosen in SOFTMAXES and sketch.chance(0.2):
        kind = "nn.Softmax" if chosen.name == "softmax" else "nn.LogSoftmax"
        sketch.module("softmax", f"{kind}(dim={dim})", weights=False)
        sketch.reference.append("x = self.softmax(x)")
    else:
        chosen.write(sketch, dim)
    return None


def _add_parameters(walk: AxisKernel, scaled: NormScaling | None) -> None:
    """Adds the kernel's pointers and numbers of a layer."""
    if scaled is None:
        return
    parameters = {"gamma_ptr": scaled.gamma, "beta_ptr": scaled.beta, "eps": scaled.eps}
    walk.extra.parameters += [name for name, value in parameters.items() if value]
    walk.extra.values += [value for value in parameters.values() if value]


def _affine(walk: AxisKernel, scaled: NormScaling | None) -> list[str]:
    if scaled is None or not scaled.gamma:
        return []
    cast = walk.sketch.cast
    gamma = f"gamma = tl.load(gamma_ptr + cols, mask=mask){cast}"
    if not scaled.beta:
        return [gamma, "x = x * gamma"]
    return [gamma, f"beta = tl.load(beta_ptr + cols, mask=mask){cast}", "x = x * gamma + beta"]
