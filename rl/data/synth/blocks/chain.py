"""Element-wise chains: drawn once, then written into the reference as statements and into a
kernel as lines.

    Step(scale, a="0.5"), Step(add, operand="bias", along="weight") over channels:
    reference  x = x * 0.5                  kernel  acc = acc * 0.5
               x = x + self.bias                    bias = tl.load(bias_ptr + cols, mask=mask)
                                                    acc = acc + bias
    ChainNeeds: parameters ["bias_ptr"], values ["self.bias"]
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.rl.data.synth.engine.operations import (
    ACTIVATIONS,
    ARITHMETIC_OPERATIONS,
    BINARY,
    Op,
)
from kernelwright.rl.data.synth.engine.sketch import Sketch

INLINE_SHARE = 0.65
"""Share of constants written in forward rather than passed to `__init__`."""
MODULE_SHARE = 0.3
"""Share of operations written as a module, if the operation has a module."""
LEARNED_SHARE = 0.12
"""Share of the constants passed to training models that are single-number parameters."""
RESIDUAL_SHARE = 0.06
"""Share of training steps whose value is stored, and joined again two steps later."""

OPERATIONS_WITH_A_TENSOR = ("scale", "shift", "subtract", "divide")
KEPT_TENSOR_NAMES = ("identity", "residual", "skip", "original", "before", "saved")
JOINING_OPERATIONS = tuple(op for op in BINARY if op.name in ("add", "multiply"))


@dataclass(frozen=True)
class Step:
    """An operation of a chain."""

    op: Op
    a: str = ""
    b: str = ""
    operand: str = ""
    """Name of a second operand; empty if there is none."""
    bound: str = ""
    """Name of the argument of __init__ for b; empty if b is a number."""
    along: str = ""
    """Kind of the operand. all: a tensor of the same shape; scalar: a number passed to __init__;
    input: a number passed to forward; weight: a parameter with a number a channel; learned: a
    single-number parameter; kept: stores the chain's value under a name; again: reads the stored
    value.
    """


@dataclass(frozen=True)
class ChainSite:
    """The position in a kernel of a chain's computation."""

    value: str
    """The name of the variable of the current value."""
    offsets: str
    """Offsets of the current element in a tensor of the same shape."""
    mask: str
    channel: str = ""
    """Index of the current element's channel."""
    channel_mask: str = ""
    indent: str = "    "


@dataclass
class ChainNeeds:
    """Parameters and values needed by a chain in its kernel and launch."""

    parameters: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)


def draw_steps(
    sketch: Sketch, count: int, channels: str = "", tensors: bool = True, binary: float = 0.25
) -> list[Step]:
    """Draws `count` steps, records them in the sketch, and writes them into its reference.

    channels: the size of parameters along an axis; empty for none.
    """
    steps: list[Step] = []
    # Name of a stored value of the chain that a later step has to read again.
    stored = ""
    for at in range(count):
        if stored and steps[-1].along != "kept":
            joining = sketch.rng.choices(JOINING_OPERATIONS, (4, 1))[0]
            step = Step(joining, operand=stored, along="again")
            stored = ""
        else:
            step = _other(sketch, steps, channels, tensors, binary)
        _take(sketch, steps, step)
        if sketch.wild and not stored and at + 2 < count and sketch.chance(RESIDUAL_SHARE):
            stored = sketch.free(sketch.pick(KEPT_TENSOR_NAMES))
            steps.append(Step(step.op, operand=stored, along="kept"))
            sketch.reference.append(f"{stored} = x")
    return steps


def _other(sketch: Sketch, steps: list[Step], channels: str, tensors: bool, binary: float) -> Step:
    """Draws a step with another operation than the last."""
    while True:
        step = (
            _second(sketch, channels, tensors)
            if sketch.chance(binary) and (channels or tensors)
            else _first(sketch)
        )
        if not steps or step.op.name != steps[-1].op.name:
            return step


def _take(sketch: Sketch, steps: list[Step], step: Step) -> None:
    steps.append(step)
    sketch.ops.append(step.op.name)
    sketch.reference.append(_statement(sketch, step))


def _first(sketch: Sketch) -> Step:
    pool = ACTIVATIONS if sketch.chance(0.55) else ARITHMETIC_OPERATIONS
    # The constants a and b are drawn together: their positions in the lists match.
    op = sketch.rng.choices(pool, [o.weight for o in pool])[0]
    at = sketch.rng.randrange(len(op.a)) if op.a else 0
    a = repr(op.a[at]) if op.a else ""
    b = repr(op.b[at]) if op.b else ""
    if op.constant and not sketch.chance(INLINE_SHARE):
        return _named(sketch, op, a, b)
    return Step(op, a=a, b=b)


def _named(sketch: Sketch, op: Op, a: str, b: str) -> Step:
    """Returns the step with its constants as arguments: sometimes of forward, mostly of the
    model.
    """
    called = sketch.pick(op.constant.split())
    # A number passed to forward; clamps with two bounds are left out.
    if not op.bound and sketch.chance(0.15):
        name = sketch.free(sketch.pick(("s", "alpha", called)))
        sketch.inputs.append((name, a))
        return Step(op, a=name, operand=name, along="input")
    name = sketch.free(called)
    if (
        sketch.wild
        and not sketch.narrow
        and op.name in OPERATIONS_WITH_A_TENSOR
        and sketch.chance(LEARNED_SHARE)
    ):
        return _learned(sketch, op, name, a)
    sketch.argument(name, a)
    if not op.bound:
        return Step(op, a=f"self.{name}", operand=name, along="scalar")
    # The second bound's name matches the first's: low and high, min_val and max_val.
    bound = sketch.free(op.bound.split()[op.constant.split().index(called)])
    sketch.argument(bound, b)
    return Step(op, f"self.{name}", f"self.{bound}", name, bound, "scalar")


def _learned(sketch: Sketch, op: Op, name: str, value: str) -> Step:
    """Returns the step with its constant as a single-number parameter."""
    if sketch.chance(0.5):
        sketch.argument(name, value, keep=False)
        sketch.module(name, f"nn.Parameter(torch.tensor({name}))")
    else:
        shape = sketch.argument(f"{name}_shape", "(1,)", keep=False)
        drawn = (
            "torch.rand({}) + 0.5"
            if op.name == "divide"
            else sketch.pick(("torch.randn({})", "torch.ones({})"))
        )
        sketch.module(name, f"nn.Parameter({drawn.format(shape)})")
    return Step(op, a=f"self.{name}", operand=name, along="learned")


def _second(sketch: Sketch, channels: str, tensors: bool) -> Step:
    op = sketch.rng.choices(BINARY, [o.weight for o in BINARY])[0]
    if channels and (not tensors or sketch.chance(0.6)):
        name = sketch.parameter_name(sketch.pick(("bias", "weight", "shift")))
        # A parameter along an axis needs unit axes behind it for broadcasting.
        trailing = "".join(", 1" for _ in sketch.shape[_axis_of(sketch, channels) + 1 :])
        shape = f"{channels}{trailing}"
        if sketch.chance(0.4):
            shape = sketch.argument(f"{name}_shape", f"({channels}{trailing or ','})", keep=False)
        elif not sketch.takes(channels):
            sketch.argument(channels, channels, keep=False)
        draw = f"nn.Parameter(torch.randn({shape}))"
        sketch.module(name, draw)
        return Step(op, operand=name, along="weight")
    name = sketch.free("y")
    sketch.input(name, sketch.shape)
    return Step(op, operand=name, along="all")


def _axis_of(sketch: Sketch, channels: str) -> int:
    """Returns the axis of a parameter's numbers: the second axis of an image, the last of a
    product.
    """
    usual = 1 if len(sketch.shape) > 2 else len(sketch.shape) - 1
    return (
        usual
        if sketch.shape[usual] == channels
        else max(i for i, n in enumerate(sketch.shape) if n == channels)
    )


def _statement(sketch: Sketch, step: Step) -> str:
    op = step.op
    if op.module and not step.along and sketch.chance(MODULE_SHARE):
        name = sketch.free(op.name.removesuffix("_tanh"))
        sketch.module(name, op.module.format(a=step.a, b=step.b), weights=False)
        return f"x = self.{name}(x)"
    # Parameters are attributes; tensors and numbers are arguments of forward.
    y = f"self.{step.operand}" if step.along == "weight" else step.operand
    return f"x = {sketch.pick(op.torch).format(x='x', y=y, a=step.a, b=step.b)}"


def kernel_lines(
    sketch: Sketch, steps: list[Step], site: ChainSite, extra: ChainNeeds
) -> list[str]:
    """Returns the chain's lines in a kernel; adds its pointers and scalars to `extra`."""
    lines = []
    for step in steps:
        a, b, name = step.a, step.b, sketch.local(step.operand)
        # A number becomes a scalar parameter of the kernel.
        if step.along in ("scalar", "input"):
            a = name
            _add(extra, name, step.operand if step.along == "input" else f"self.{step.operand}")
            if step.bound:
                b = sketch.local(step.bound)
                _add(extra, b, f"self.{step.bound}")
        # Stores the value under a name; a later step reads it.
        elif step.along == "kept":
            lines.append(f"{step.operand} = {site.value}")
            continue
        # A single-number parameter is loaded once, without offsets or mask.
        elif step.along == "learned":
            _add(extra, f"{name}_ptr", f"self.{step.operand}")
            lines.append(f"{name} = tl.load({name}_ptr)")
            a = name
        # A tensor is loaded at the element's offsets, a weight at its channel.
        elif step.along and step.along != "again":
            value = f"self.{step.operand}" if step.along == "weight" else step.operand
            _add(extra, f"{name}_ptr", value)
            offsets, mask = site.channel, site.channel_mask
            if step.along == "all":
                offsets, mask = site.offsets, site.mask
            masked = f", mask={mask}" if mask else ""
            lines.append(f"{name} = tl.load({name}_ptr + {offsets}{masked}){sketch.cast}")
        y = step.operand if step.along == "again" else name
        lines.append(f"{site.value} = {step.op.triton.format(x=site.value, y=y, a=a, b=b)}")
    return [site.indent + line for line in lines]


def _add(extra: ChainNeeds, parameter: str, value: str) -> None:
    if parameter not in extra.parameters:
        extra.parameters.append(parameter)
        extra.values.append(value)
