"""Losses over two or three inputs: every program leaves its part, a second kernel adds the parts up in one order, so that the answer is the same every time."""

from __future__ import annotations

from dataclasses import dataclass

from rl.data.synth.chain import Extra, Site, draw_steps, kernel_lines
from rl.data.synth.program import Program, finished, kernel
from rl.data.synth.sketch import Sketch
from rl.data.synth.tensors import start

TOTAL = [
    "    acc = tl.zeros((BLOCK,), tl.float32)",
    "    for start in range(0, n, BLOCK):",
    "        offs = start + tl.arange(0, BLOCK)",
    "        acc += tl.load(part_ptr + offs, mask=offs < n, other=0.0)",
]


@dataclass(frozen=True)
class Loss:
    """Of single elements. `{p}`: predictions, `{t}`: targets, in the reference; x and y in the kernel."""

    name: str
    torch: tuple[str, ...]
    triton: tuple[str, ...]
    """Lines; the last sets `loss`."""
    target: str = ""
    """How targets are drawn; empty: like predictions."""
    plain: bool = False


ELEMENTS = (
    Loss("mse", ("F.mse_loss({p}, {t})", "torch.mean(({p} - {t}) ** 2)"), ("loss = (x - y) * (x - y)",), plain=True),
    Loss("l1", ("F.l1_loss({p}, {t})", "torch.mean(torch.abs({p} - {t}))"), ("loss = tl.abs(x - y)",)),
    Loss("smooth_l1", ("F.smooth_l1_loss({p}, {t})", "F.huber_loss({p}, {t})"), ("diff = tl.abs(x - y)", "loss = tl.where(diff < 1.0, 0.5 * diff * diff, diff - 0.5)"), plain=True),
    Loss("hinge", ("torch.mean(torch.clamp(1 - {p} * {t}, min=0))",), ("loss = tl.maximum(1.0 - x * y, 0.0)",), "torch.randint(0, 2, ({shape},)).float() * 2 - 1", plain=True),
    Loss("squared_hinge", ("torch.mean(torch.clamp(1 - {p} * {t}, min=0) ** 2)",), ("loss = tl.maximum(1.0 - x * y, 0.0)", "loss = loss * loss"), "torch.randint(0, 2, ({shape},)).float() * 2 - 1"),
    Loss("log_cosh", ("torch.mean(F.softplus(-2.0 * ({p} - {t})) + ({p} - {t}))",), ("diff = x - y", "low = -2.0 * diff", "loss = tl.maximum(low, 0.0) + libdevice.log1p(tl.exp(-tl.abs(low))) + diff")),
    Loss("bce_with_logits", ("F.binary_cross_entropy_with_logits({p}, {t})",), ("loss = tl.maximum(x, 0.0) - x * y + libdevice.log1p(tl.exp(-tl.abs(x)))",), "torch.randint(0, 2, ({shape},)).float()"),
    Loss("weighted_square", ("torch.mean(({p} - {t}) ** 2 * torch.abs({t}))",), ("loss = (x - y) * (x - y) * tl.abs(y)",)),
    Loss("poisson", ("torch.mean(torch.exp(torch.clamp({p}, max=4.0)) - {t} * {p})",), ("loss = tl.exp(tl.minimum(x, 4.0)) - y * x",)),
)  # fmt: skip


def loss(sketch: Sketch, depth: int) -> Program:
    """Predictions -> chain -> loss against targets."""
    sketch.family = "losses"
    sketch.reserved |= {"y", "loss"}
    if sketch.chance(0.35):
        from rl.data.synth.row_losses import row_loss

        return row_loss(sketch, depth)
    chosen = sketch.pick([one for one in ELEMENTS if depth > 1 or not one.plain])
    names = sketch.pick((("predictions", "targets"), ("x", "y"), ("input", "target"), ("pred", "target")))
    start(sketch, sketch.pick((2, 2, 3)), name=names[0])
    shape = ", ".join(sketch.shape)
    sketch.input(names[1], sketch.shape, chosen.target.replace("{shape}", shape) or "torch.randn({shape})")
    steps, factor = _written(sketch, chosen, names, depth)
    _kernels(sketch, chosen, steps, factor, names)
    return finished(sketch)


def _written(sketch: Sketch, chosen: Loss, names: tuple[str, str], depth: int) -> tuple[list, str]:
    """The reference's statements; the steps before the loss, and a factor behind it."""
    factor = sketch.pick(("0.5", "2.0", "0.1")) if depth > 1 and sketch.chance(0.4) else ""
    count = depth - 1 - bool(factor)
    if count:
        sketch.reference.append(f"x = {names[0]}") if names[0] != "x" else None
    steps = draw_steps(sketch, count, tensors=False, binary=0)
    text = sketch.pick(chosen.torch).format(p="x" if count else names[0], t=names[1])
    sketch.reference.append(f"x = {text}" if not factor else f"x = {factor} * {text}")
    sketch.ops.append(f"{chosen.name}_loss")
    if factor:
        sketch.ops.append("scale")
    return steps, factor


def _kernels(sketch: Sketch, chosen: Loss, steps: list, factor: str, names: tuple[str, str]) -> None:
    extra = Extra()
    lines = kernel_lines(sketch, steps, Site("x", "offs", "mask"), extra)
    body = [
        "    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "    mask = offs < n",
        "    x = tl.load(x_ptr + offs, mask=mask, other=0.0)",
        "    y = tl.load(y_ptr + offs, mask=mask, other=0.0)",
        *lines,
        *("    " + line for line in chosen.triton),
        "    tl.store(part_ptr + tl.program_id(0), tl.sum(tl.where(mask, loss, 0.0), axis=0))",
    ]
    sketch.kernels.append(kernel("loss_kernel", ["x_ptr", "y_ptr", *extra.parameters, "part_ptr", "n", "BLOCK"], body))
    add_up(sketch, factor)
    first = names[0]
    values = ", ".join([first, names[1], *extra.values, "part", "n"])
    sketch.host += [
        f"n = {first}.numel()",
        "blocks = triton.cdiv(n, 4096)",
        f"part = torch.empty(blocks, device={first}.device)",
        f"out = torch.empty((), device={first}.device)",
        f"loss_kernel[(blocks,)]({values}, BLOCK=4096)",
        "total_kernel[(1,)](part, out, blocks, n, BLOCK=1024)",
    ]


def add_up(sketch: Sketch, factor: str = "") -> None:
    """The second kernel: the sum of n parts over `count`, times the factor."""
    scaled = f"{factor} * " if factor else ""
    body = [*TOTAL, f"    tl.store(out_ptr, {scaled}tl.sum(acc, axis=0) / count)"]
    sketch.kernels.append(kernel("total_kernel", ["part_ptr", "out_ptr", "n", "count", "BLOCK"], body))
