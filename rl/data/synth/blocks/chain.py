"""Element-wise chains: drawn once, written into the reference as statements and into a kernel as lines."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.rl.data.synth.engine.operations import ACTIVATIONS, ARITHMETIC, BINARY, Op
from kernelwright.rl.data.synth.engine.sketch import Sketch

INLINE_SHARE = 0.65
"""The share of constants that are written in forward rather than given to `__init__`."""
MODULE_SHARE = 0.3
LEARNED_SHARE = 0.12
"""The share of the constants that training's models are given which are parameters of one number."""
RESIDUAL_SHARE = 0.06
"""The share of training's steps after which the value is kept, and joined again by the step after the next."""

OPERATIONS_WITH_A_TENSOR = ("scale", "shift", "subtract", "divide")
KEPT_TENSOR_NAMES = ("identity", "residual", "skip", "original", "before", "saved")
JOINING_OPERATIONS = tuple(op for op in BINARY if op.name in ("add", "multiply"))


@dataclass(frozen=True)
class Step:
    """One operation of a chain."""

    op: Op
    a: str = ""
    b: str = ""
    operand: str = ""
    """Name of a second operand; empty where there is none."""
    bound: str = ""
    """Name of the argument of __init__ that holds b; empty where b is a number."""
    along: str = ""
    """all: a tensor of the same shape; scalar: a number given to __init__; input: a number given to forward; weight: a
    parameter, one number a channel;
    learned: a parameter of one number; kept: the chain's value of before, under a name; again: that value."""


@dataclass(frozen=True)
class ChainSite:
    """The place in a kernel at which a chain is computed."""

    value: str
    """The name of the variable that holds the current value."""
    offsets: str
    """Offsets of the current element in a tensor of the same shape."""
    mask: str
    channel: str = ""
    """Index of the current element's channel."""
    channel_mask: str = ""
    indent: str = "    "


@dataclass
class ChainNeeds:
    """The parameters and values that a chain needs of its kernel and its launch."""

    parameters: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)


def draw_steps(
    sketch: Sketch, count: int, channels: str = "", tensors: bool = True, binary: float = 0.25
) -> list[Step]:
    """`count` steps, noted in the sketch, written into its reference.

    channels: the size that a parameter may run along, "" for none.
    """
    steps: list[Step] = []
    kept = ""
    for at in range(count):
        if kept and steps[-1].along != "kept":
            step, kept = (
                Step(
                    sketch.rng.choices(JOINING_OPERATIONS, (4, 1))[0], operand=kept, along="again"
                ),
                "",
            )
        else:
            step = _other(sketch, steps, channels, tensors, binary)
        _take(sketch, steps, step)
        if sketch.wild and not kept and at + 2 < count and sketch.chance(RESIDUAL_SHARE):
            kept = sketch.free(sketch.pick(KEPT_TENSOR_NAMES))
            steps.append(Step(step.op, operand=kept, along="kept"))
            sketch.reference.append(f"{kept} = x")
    return steps


def _other(sketch: Sketch, steps: list[Step], channels: str, tensors: bool, binary: float) -> Step:
    """A step that is another operation than the last one."""
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
    pool = ACTIVATIONS if sketch.chance(0.55) else ARITHMETIC
    op = sketch.rng.choices(pool, [o.weight for o in pool])[0]
    at = sketch.rng.randrange(len(op.a)) if op.a else 0
    a = repr(op.a[at]) if op.a else ""
    b = repr(op.b[at]) if op.b else ""
    if op.constant and not sketch.chance(INLINE_SHARE):
        return _named(sketch, op, a, b)
    return Step(op, a=a, b=b)


def _named(sketch: Sketch, op: Op, a: str, b: str) -> Step:
    """Returns the chain with its constants as arguments: of forward at times, of the model mostly."""
    called = sketch.pick(op.constant.split())
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
    bound = sketch.free(op.bound.split()[op.constant.split().index(called)])
    sketch.argument(bound, b)
    return Step(op, f"self.{name}", f"self.{bound}", name, bound, "scalar")


def _learned(sketch: Sketch, op: Op, name: str, value: str) -> Step:
    """Returns the chain with its constant as a parameter of one number."""
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
        name = sketch.own(sketch.pick(("bias", "weight", "shift")))
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
    """Returns the axis of the shape that a parameter's numbers run along: the second axis of an image, the last of a
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
    y = f"self.{step.operand}" if step.along == "weight" else step.operand
    return f"x = {sketch.pick(op.torch).format(x='x', y=y, a=step.a, b=step.b)}"


def kernel_lines(
    sketch: Sketch, steps: list[Step], site: ChainSite, extra: ChainNeeds
) -> list[str]:
    """The chain's lines in a kernel; its pointers and scalars are added to `extra`."""
    lines = []
    for step in steps:
        a, b, name = step.a, step.b, sketch.local(step.operand)
        if step.along in ("scalar", "input"):
            a = name
            _add(extra, name, step.operand if step.along == "input" else f"self.{step.operand}")
            if step.bound:
                b = sketch.local(step.bound)
                _add(extra, b, f"self.{step.bound}")
        elif step.along == "kept":
            lines.append(f"{step.operand} = {site.value}")
            continue
        elif step.along == "learned":
            _add(extra, f"{name}_ptr", f"self.{step.operand}")
            lines.append(f"{name} = tl.load({name}_ptr)")
            a = name
        elif step.along and step.along != "again":
            value = f"self.{step.operand}" if step.along == "weight" else step.operand
            _add(extra, f"{name}_ptr", value)
            where, mask = (
                (site.offsets, site.mask)
                if step.along == "all"
                else (site.channel, site.channel_mask)
            )
            masked = f", mask={mask}" if mask else ""
            lines.append(f"{name} = tl.load({name}_ptr + {where}{masked}){sketch.cast}")
        y = step.operand if step.along == "again" else name
        lines.append(f"{site.value} = {step.op.triton.format(x=site.value, y=y, a=a, b=b)}")
    return [site.indent + line for line in lines]


def _add(extra: ChainNeeds, parameter: str, value: str) -> None:
    if parameter not in extra.parameters:
        extra.parameters.append(parameter)
        extra.values.append(value)
