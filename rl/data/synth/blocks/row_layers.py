"""Norm layers of the last axis: layer norm and RMS norm, with and without weights, as a module, a
function or a formula.

In the spellings `{eps}` is the epsilon, `{by}` the factor after the value, `{of}` the factor
before it:

    "x = {of}(x / rms)" with gamma `self.weight` -> x = self.weight * (x / rms)
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.rl.data.synth.engine.sketch import Sketch

MEAN_SPELLINGS = (
    "x.mean(-1, keepdim=True)",
    "x.mean(dim=-1, keepdim=True)",
    "torch.mean(x, dim=-1, keepdim=True)",
)
VARIANCE_SPELLINGS = (
    "x.var(-1, keepdim=True, unbiased=False)",
    "((x - mean) ** 2).mean(dim=-1, keepdim=True)",
)
RMS_SPELLINGS = (
    "inv_rms = torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True) + {eps})\nx = x * inv_rms{by}",
    "rms = torch.sqrt(x.pow(2).mean(-1, keepdim=True) + {eps})\nx = {of}(x / rms)",
    "variance = x.pow(2).mean(dim=-1, keepdim=True)\nx = {of}(x * torch.rsqrt(variance + {eps}))",
    "rms = torch.sqrt(torch.mean(x ** 2, dim=-1, keepdim=True) + {eps})\nx = x / rms{by}",
)


@dataclass(frozen=True)
class NormScaling:
    """The host's expressions for a norm's kernel; empty if absent."""

    eps: str
    gamma: str = ""
    beta: str = ""


def layer_norm(sketch: Sketch) -> NormScaling:
    """Writes the reference's statements of a layer norm."""
    columns = _columns(sketch)
    if sketch.chance(0.55):
        shape = sketch.pick((columns, columns, f"({columns},)"))
        bare = ", elementwise_affine=False" if sketch.chance(0.15) else ""
        return _module(sketch, "nn.LayerNorm", f"{shape}{_eps_of_module(sketch)}{bare}", not bare)
    gamma, beta = (
        _parameter(sketch, names, columns) for names in (("weight", "gamma"), ("bias", "beta"))
    )
    eps = _eps(sketch)
    if sketch.chance(0.6):
        shape = sketch.pick((f"({sketch.shape[-1]},)", "x.shape[-1:]", f"{gamma}.shape"))
        sketch.reference.append(f"x = F.layer_norm(x, {shape}, {gamma}, {beta}, {eps})")
    else:
        spread = sketch.pick((f"/ torch.sqrt(var + {eps})", f"* torch.rsqrt(var + {eps})"))
        scaled = sketch.pick((f"{gamma} * x + {beta}", f"x * {gamma} + {beta}"))
        sketch.reference += [
            f"mean = {sketch.pick(MEAN_SPELLINGS)}",
            f"var = {sketch.pick(VARIANCE_SPELLINGS)}",
            f"x = (x - mean) {spread}",
        ]
        sketch.reference.append(f"x = {scaled}")
    return NormScaling(eps, gamma, beta)


def rms_norm(sketch: Sketch) -> NormScaling:
    """Writes the reference's statements of an RMS norm, with a weight for each column."""
    columns = _columns(sketch)
    if sketch.chance(0.15):
        eps = sketch.argument(sketch.free("eps"), "1e-6", keep=False)
        return _module(sketch, "nn.RMSNorm", f"{columns}, eps={eps}", False, weight=True)
    # Order of the model's arguments: eps before or after the weight.
    first = sketch.chance(0.5)
    eps = _eps(sketch) if first else ""
    gamma = _parameter(sketch, ("weight", "gamma", "scale_weight"), columns)
    eps = eps or _eps(sketch)
    sketch.reference += (
        sketch.pick(RMS_SPELLINGS).format(eps=eps, by=f" * {gamma}", of=f"{gamma} * ").split("\n")
    )
    return NormScaling(eps, gamma)


def _module(
    sketch: Sketch, kind: str, arguments: str, affine: bool, weight: bool = False
) -> NormScaling:
    name = sketch.module(
        sketch.free(sketch.pick(("norm", "norm", "layer_norm", "ln"))), f"{kind}({arguments})"
    )
    sketch.reference.append(f"x = self.{name}(x)")
    gamma = f"self.{name}.weight" if affine or weight else ""
    return NormScaling(f"self.{name}.eps", gamma, f"self.{name}.bias" if affine else "")


def _columns(sketch: Sketch) -> str:
    """The argument of __init__ that holds the length of a row."""
    columns = sketch.shape[-1]
    if sketch.takes(columns):
        return columns
    name = (
        sketch.free(sketch.pick(("dim", "num_features", "normalized_shape")))
        if sketch.chance(0.2)
        else columns
    )
    return sketch.argument(name, columns, keep=False)


def _parameter(sketch: Sketch, names: tuple[str, ...], columns: str) -> str:
    name = sketch.free(sketch.pick(names))
    drawn = sketch.pick(("torch.randn", "torch.randn", "torch.rand", "torch.ones"))
    return f"self.{sketch.module(name, f'nn.Parameter({drawn}({columns}))')}"


def _eps(sketch: Sketch) -> str:
    """A number, or the model's own."""
    value = sketch.pick(("1e-5", "1e-6", "1e-5", "1e-8"))
    if sketch.chance(0.35):
        return value
    name = sketch.argument(sketch.free("eps"), value)
    if sketch.chance(0.5):
        sketch.defaults[name] = sketch.pick((value, "1e-5"))
    return f"self.{name}"


def _eps_of_module(sketch: Sketch) -> str:
    form = sketch.pick(("", "", "number", "argument"))
    if form != "argument":
        return f", eps={sketch.pick(('1e-5', '1e-6'))}" if form else ""
    name = sketch.argument(sketch.free("eps"), sketch.pick(("1e-5", "1e-6")), keep=False)
    sketch.defaults[name] = "1e-5"
    return f", eps={name}"
