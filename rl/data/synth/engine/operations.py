"""Element-wise operations: their spellings in torch, and their computation in a kernel.

Texts are templates: `{x}` is the current value, `{y}` a second operand, `{a}` and `{b}`
constants. Kernels are numerically stable even if the textbook form is not: expm1, log1p and tanh
are libdevice's, and no selected value comes from an overflow to NaN.

    leaky_relu with a = 0.1: "torch.where({x} > 0, {x}, {a} * {x})" -> torch.where(x > 0, x, 0.1 * x)
                             "tl.where({x} > 0, {x}, {a} * {x})"    -> tl.where(acc > 0, acc, 0.1 * acc)
"""

from __future__ import annotations

from dataclasses import dataclass

SQRT_HALF = "0.7071067811865476"
GELU_SCALE = "0.7978845608028654"


@dataclass(frozen=True)
class Op:
    """An operation with its spellings."""

    name: str
    triton: str
    torch: tuple[str, ...]
    """Spellings of the reference; the functional module is `F`."""
    module: str = ""
    """The nn.Module of the same name; empty if there is none."""
    a: tuple[float, ...] = ()
    """Values of the constant; empty: no constant."""
    b: tuple[float, ...] = ()
    constant: str = ""
    """Names of the argument for `a`, separated by blanks, for drawing."""
    bound: str = ""
    """Names of the argument for `b`, in the order of the names of `a`."""
    weight: float = 1.0
    plain: bool = False
    """Whether a benchmark asks for this operation alone, so it never becomes a whole problem
    here.
    """


def _op(name: str, triton: str, *torch: str, **fields: object) -> Op:
    return Op(name, triton, torch, **fields)  # type: ignore[arg-type]


ACTIVATIONS: tuple[Op, ...] = (
    _op("relu", "tl.maximum({x}, 0.0)", "torch.relu({x})", "F.relu({x})", "{x}.relu()", "torch.clamp({x}, min=0.0)",
    module="nn.ReLU()", weight=2.5, plain=True),
    _op("leaky_relu", "tl.where({x} > 0, {x}, {a} * {x})", "F.leaky_relu({x}, negative_slope={a})",
    "F.leaky_relu({x}, {a})", "torch.where({x} > 0, {x}, {a} * {x})", module="nn.LeakyReLU({a})",
    a=(0.01, 0.1, 0.2, 0.05), constant="negative_slope", weight=1.5, plain=True),
    _op("sigmoid", "tl.sigmoid({x})", "torch.sigmoid({x})", "{x}.sigmoid()", "F.sigmoid({x})", module="nn.Sigmoid()",
    weight=2.5, plain=True),
    _op("tanh", "libdevice.tanh({x})", "torch.tanh({x})", "{x}.tanh()", module="nn.Tanh()", weight=2.0, plain=True),
    _op("silu", "{x} * tl.sigmoid({x})", "F.silu({x})", "{x} * torch.sigmoid({x})", "torch.sigmoid({x}) * {x}",
    module="nn.SiLU()", weight=2.0, plain=True),
    _op("gelu", f"0.5 * {{x}} * (1.0 + tl.erf({{x}} * {SQRT_HALF}))", "F.gelu({x})",
    "0.5 * {x} * (1.0 + torch.erf({x} / math.sqrt(2.0)))", module="nn.GELU()", weight=2.0, plain=True),
    _op("gelu_tanh", f"0.5 * {{x}} * (1.0 + libdevice.tanh({GELU_SCALE} * ({{x}} + 0.044715 * {{x}} * {{x}} * {{x}})))",
    'F.gelu({x}, approximate="tanh")',
    "0.5 * {x} * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * ({x} + 0.044715 * torch.pow({x}, 3.0))))",
    module='nn.GELU(approximate="tanh")', weight=1.5, plain=True),
    _op("selu", "1.0507009873554805 * tl.where({x} > 0, {x}, 1.6732632423543772 * libdevice.expm1({x}))",
    "torch.selu({x})", "F.selu({x})", module="nn.SELU()", plain=True),
    _op("hardsigmoid", "tl.minimum(tl.maximum({x} / 6.0 + 0.5, 0.0), 1.0)", "F.hardsigmoid({x})",
    "torch.clamp({x} / 6.0 + 0.5, 0.0, 1.0)", module="nn.Hardsigmoid()", plain=True),
    _op("hardswish", "{x} * tl.minimum(tl.maximum({x} + 3.0, 0.0), 6.0) / 6.0", "F.hardswish({x})",
    "{x} * torch.clamp({x} + 3.0, 0.0, 6.0) / 6.0", module="nn.Hardswish()", weight=1.5),
    _op("softplus", "tl.where({x} > 20.0, {x}, libdevice.log1p(tl.exp({x})))", "F.softplus({x})",
    module="nn.Softplus()", weight=1.5, plain=True),
    _op("softsign", "{x} / (1.0 + tl.abs({x}))", "F.softsign({x})", "{x} / (1 + torch.abs({x}))",
    module="nn.Softsign()", plain=True),
    _op("elu", "tl.where({x} > 0, {x}, {a} * libdevice.expm1({x}))", "F.elu({x}, alpha={a})", "F.elu({x}, {a})",
    module="nn.ELU(alpha={a})", a=(1.0, 0.5, 1.5), constant="alpha", weight=1.5, plain=True),
    _op("celu", "tl.where({x} > 0, {x}, {a} * libdevice.expm1({x} / {a}))", "F.celu({x}, alpha={a})",
    module="nn.CELU(alpha={a})", a=(1.0, 0.5, 2.0), constant="alpha", weight=0.6),
    _op("hardtanh", "tl.minimum(tl.maximum({x}, {a}), {b})", "F.hardtanh({x}, min_val={a}, max_val={b})",
    "F.hardtanh({x}, {a}, {b})", module="nn.Hardtanh(min_val={a}, max_val={b})", a=(-1.0, -2.0, -0.5),
    b=(1.0, 2.0, 0.5), constant="hardtanh_min min_val low", bound="hardtanh_max max_val high", weight=1.5, plain=True),
    _op("relu6", "tl.minimum(tl.maximum({x}, 0.0), 6.0)", "F.relu6({x})", module="nn.ReLU6()"),
    _op("mish", "{x} * libdevice.tanh(tl.where({x} > 20.0, {x}, libdevice.log1p(tl.exp({x}))))", "F.mish({x})",
    "{x} * torch.tanh(F.softplus({x}))", "torch.tanh(F.softplus({x})) * {x}", module="nn.Mish()", weight=2.0),
    _op("logsigmoid", "tl.minimum({x}, 0.0) - libdevice.log1p(tl.exp(-tl.abs({x})))", "F.logsigmoid({x})",
    module="nn.LogSigmoid()"),
    _op("softshrink", "tl.where({x} > {a}, {x} - {a}, tl.where({x} < -{a}, {x} + {a}, 0.0))", "F.softshrink({x}, {a})",
    module="nn.Softshrink({a})", a=(0.5, 0.25), weight=0.5),
    _op("tanhshrink", "{x} - libdevice.tanh({x})", "F.tanhshrink({x})", module="nn.Tanhshrink()", weight=0.4),
)  # fmt: skip

ARITHMETIC_OPERATIONS: tuple[Op, ...] = (
    _op("scale", "{x} * {a}", "{x} * {a}", "{a} * {x}", "torch.mul({x}, {a})", a=(0.5, 2.0, 1.5, 0.1, 3.0, 0.25, 1.702),
    constant="scale scaling_factor multiplier scale_factor", weight=3.0, plain=True),
    _op("shift", "{x} + {a}", "{x} + {a}", "torch.add({x}, {a})", "{a} + {x}", a=(1.0, 0.5, 2.0, 3.0, 0.1),
    constant="add_value shift constant add_constant offset", weight=2.0),
    _op("subtract", "{x} - {a}", "{x} - {a}", "torch.sub({x}, {a})", a=(1.0, 0.5, 2.0),
    constant="subtract_value offset subtract", weight=1.5),
    _op("divide", "{x} / {a}", "{x} / {a}", "torch.div({x}, {a})", a=(2.0, 10.0, 3.0, 8.0),
    constant="divisor temperature scale divide_by", weight=2.0),
    _op("reverse_subtract", "{a} - {x}", "{a} - {x}", a=(1.0, 2.0), constant="offset", weight=0.7),
    _op("clamp", "tl.minimum(tl.maximum({x}, {a}), {b})", "torch.clamp({x}, {a}, {b})",
    "torch.clamp({x}, min={a}, max={b})", "{x}.clamp({a}, {b})", a=(-1.0, -2.0, 0.0), b=(1.0, 2.0, 3.0),
    constant="low min_value min_val lower clamp_min", bound="high max_value max_val upper clamp_max", weight=2.0),
    _op("clamp_min", "tl.maximum({x}, {a})", "torch.clamp({x}, min={a})", "{x}.clamp(min={a})", a=(0.5, -0.5, 0.1),
    constant="min_value low lower"),
    _op("clamp_max", "tl.minimum({x}, {a})", "torch.clamp({x}, max={a})", "{x}.clamp(max={a})", a=(1.0, 2.0, 0.5),
    constant="max_value high upper"),
    _op("abs", "tl.abs({x})", "torch.abs({x})", "{x}.abs()"),
    _op("neg", "-{x}", "-{x}", "torch.neg({x})", weight=0.7),
    _op("square", "{x} * {x}", "{x} ** 2", "torch.square({x})", "torch.pow({x}, 2)", "{x} * {x}"),
    _op("cube", "{x} * {x} * {x}", "{x} ** 3", "torch.pow({x}, 3)", weight=0.5),
    _op("sin", "tl.sin({x})", "torch.sin({x})", "{x}.sin()"),
    _op("cos", "tl.cos({x})", "torch.cos({x})", "{x}.cos()"),
    _op("exp_neg_abs", "tl.exp(-tl.abs({x}))", "torch.exp(-torch.abs({x}))", weight=0.7),
    _op("gaussian", "tl.exp(-{x} * {x})", "torch.exp(-{x} * {x})", "torch.exp(-({x} ** 2))", weight=0.7),
    _op("log1p_abs", "libdevice.log1p(tl.abs({x}))", "torch.log1p(torch.abs({x}))", "torch.log(1 + torch.abs({x}))",
    weight=0.7),
    _op("sqrt_abs", "tl.sqrt(tl.abs({x}))", "torch.sqrt(torch.abs({x}))", weight=0.7),
    _op("rsqrt_square", "tl.rsqrt({x} * {x} + {a})", "torch.rsqrt({x} * {x} + {a})", "1.0 / torch.sqrt({x} ** 2 + {a})",
    a=(1.0, 0.5), weight=0.5),
    _op("exp_clamped", "tl.exp(tl.minimum({x}, {a}))", "torch.exp(torch.clamp({x}, max={a}))", a=(4.0, 2.0),
    weight=0.5),
)  # fmt: skip

BINARY: tuple[Op, ...] = (
    _op("add", "{x} + {y}", "{x} + {y}", "{y} + {x}", "torch.add({x}, {y})", weight=3.0),
    _op("subtract_tensor", "{x} - {y}", "{x} - {y}", "torch.sub({x}, {y})"),
    _op("multiply", "{x} * {y}", "{x} * {y}", "{y} * {x}", "torch.mul({x}, {y})", weight=3.0),
    _op("maximum", "tl.maximum({x}, {y})", "torch.maximum({x}, {y})", weight=0.6),
    _op("minimum", "tl.minimum({x}, {y})", "torch.minimum({x}, {y})", weight=0.6),
    _op("divide_by_magnitude", "{x} / (1.0 + tl.abs({y}))", "{x} / (1.0 + torch.abs({y}))", weight=0.6),
    _op("gate", "{x} * tl.sigmoid({y})", "{x} * torch.sigmoid({y})"),
)  # fmt: skip
"""Operations with a second tensor or a parameter."""

OPERATIONS = {op.name: op for op in (*ACTIVATIONS, *ARITHMETIC_OPERATIONS, *BINARY)}
