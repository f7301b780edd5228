"""Losses of single elements (mse, hinge ...), and of whole rows (cross entropy, divergence,
cosine, triplet).

In the templates `{p}` are predictions and `{t}` targets of the reference; the kernel's lines use
x and y:

    mse: torch "F.mse_loss({p}, {t})" -> F.mse_loss(x, targets);  Triton "loss = (x - y) * (x - y)"
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelwright.rl.data.synth.blocks.chain import ChainNeeds, ChainSite, draw_steps, kernel_lines
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program, kernel
from kernelwright.rl.data.synth.engine.sketch import Sketch
from kernelwright.rl.data.synth.engine.tensors import start

SUM_KERNEL_LINES = [
    "    acc = tl.zeros((BLOCK,), tl.float32)",
    "    for start in range(0, n, BLOCK):",
    "        offs = start + tl.arange(0, BLOCK)",
    "        acc += tl.load(part_ptr + offs, mask=offs < n, other=0.0)",
]


@dataclass(frozen=True)
class Loss:
    """A loss of single elements. `{p}`: predictions, `{t}`: targets, in the reference; x and y in
    the kernel.
    """

    name: str
    torch: tuple[str, ...]
    triton: tuple[str, ...]
    """Lines of the kernel; the last line assigns `loss`."""
    target: str = ""
    """The distribution of the targets; empty: drawn like the predictions."""
    plain: bool = False


ELEMENTS = (
    Loss("mse", ("F.mse_loss({p}, {t})", "torch.mean(({p} - {t}) ** 2)"), ("loss = (x - y) * (x - y)",), plain=True),
    Loss("l1", ("F.l1_loss({p}, {t})", "torch.mean(torch.abs({p} - {t}))"), ("loss = tl.abs(x - y)",)),
    Loss("smooth_l1", ("F.smooth_l1_loss({p}, {t})", "F.huber_loss({p}, {t})"),
    ("diff = tl.abs(x - y)", "loss = tl.where(diff < 1.0, 0.5 * diff * diff, diff - 0.5)"), plain=True),
    Loss("hinge", ("torch.mean(torch.clamp(1 - {p} * {t}, min=0))",), ("loss = tl.maximum(1.0 - x * y, 0.0)",),
    "torch.randint(0, 2, ({shape},)).float() * 2 - 1", plain=True),
    Loss("squared_hinge", ("torch.mean(torch.clamp(1 - {p} * {t}, min=0) ** 2)",),
    ("loss = tl.maximum(1.0 - x * y, 0.0)", "loss = loss * loss"), "torch.randint(0, 2, ({shape},)).float() * 2 - 1"),
    Loss("log_cosh", ("torch.mean(F.softplus(-2.0 * ({p} - {t})) + ({p} - {t}))",),
    ("diff = x - y", "low = -2.0 * diff",
    "loss = tl.maximum(low, 0.0) + libdevice.log1p(tl.exp(-tl.abs(low))) + diff")),
    Loss("bce_with_logits", ("F.binary_cross_entropy_with_logits({p}, {t})",),
    ("loss = tl.maximum(x, 0.0) - x * y + libdevice.log1p(tl.exp(-tl.abs(x)))",),
    "torch.randint(0, 2, ({shape},)).float()"),
    Loss("weighted_square", ("torch.mean(({p} - {t}) ** 2 * torch.abs({t}))",),
    ("loss = (x - y) * (x - y) * tl.abs(y)",)),
    Loss("poisson", ("torch.mean(torch.exp(torch.clamp({p}, max=4.0)) - {t} * {p})",),
    ("loss = tl.exp(tl.minimum(x, 4.0)) - y * x",)),
)  # fmt: skip


def loss(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws predictions -> chain -> loss against targets."""
    sketch.family = "losses"
    # The kernel's own variables: operands of the chain must have other names.
    sketch.reserved |= {"y", "loss"}
    if sketch.chance(0.35):
        return _row_loss(sketch, depth)
    chosen = sketch.pick([element for element in ELEMENTS if depth > 1 or not element.plain])
    names = sketch.pick(
        (("predictions", "targets"), ("x", "y"), ("input", "target"), ("pred", "target"))
    )
    start(sketch, sketch.pick((2, 2, 3)), name=names[0])
    shape = ", ".join(sketch.shape)
    sketch.input(
        names[1], sketch.shape, chosen.target.replace("{shape}", shape) or "torch.randn({shape})"
    )
    steps, factor = _written(sketch, chosen, names, depth)
    _kernels(sketch, chosen, steps, factor, names)
    return finish_program(sketch)


def _written(sketch: Sketch, chosen: Loss, names: tuple[str, str], depth: int) -> tuple[list, str]:
    """Writes the reference's statements, and returns the steps before the loss and a factor after
    it.
    """
    factor = sketch.pick(("0.5", "2.0", "0.1")) if depth > 1 and sketch.chance(0.4) else ""
    # The loss itself and the factor are operations of the chain too.
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


def _kernels(
    sketch: Sketch, chosen: Loss, steps: list, factor: str, names: tuple[str, str]
) -> None:
    extra = ChainNeeds()
    lines = kernel_lines(sketch, steps, ChainSite("x", "offs", "mask"), extra)
    body = [
        "    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "    mask = offs < n",
        "    x = tl.load(x_ptr + offs, mask=mask, other=0.0)",
        "    y = tl.load(y_ptr + offs, mask=mask, other=0.0)",
        *lines,
        *("    " + line for line in chosen.triton),
        "    tl.store(part_ptr + tl.program_id(0), tl.sum(tl.where(mask, loss, 0.0), axis=0))",
    ]
    sketch.kernels.append(
        kernel("loss_kernel", ["x_ptr", "y_ptr", *extra.parameters, "part_ptr", "n", "BLOCK"], body)
    )
    write_sum_kernel(sketch, factor)
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


def write_sum_kernel(sketch: Sketch, factor: str = "") -> None:
    """Writes the second kernel, which adds up n partial sums, divides by `count` and multiplies
    by the factor.
    """
    scaled = f"{factor} * " if factor else ""
    body = [*SUM_KERNEL_LINES, f"    tl.store(out_ptr, {scaled}tl.sum(acc, axis=0) / count)"]
    sketch.kernels.append(
        kernel("total_kernel", ["part_ptr", "out_ptr", "n", "count", "BLOCK"], body)
    )


LOSS_ROW_HEAD = ["row = tl.program_id(0).to(tl.int64)"]
ROW_LOOP = [
    "for start in range(0, columns, BLOCK):",
    "    cols = start + tl.arange(0, BLOCK)",
    "    mask = cols < columns",
]
SCALES = ("0.5", "2.0", "0.1", "0.25")


def _row_loss(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws a loss of rows, averaged; scaled if the chain is longer."""
    form = sketch.pick((_cross_entropy, _divergence, _cosine, _triplet))
    return form(sketch, sketch.pick(SCALES) if depth > 1 else "")


def _finished_row_loss(
    sketch: Sketch, name: str, text: str, factor: str, inputs: list[str], lines: list[str]
) -> DrawnProgram:
    """Writes the kernel of a row loss; `lines` set `loss` of a single row."""
    sketch.ops += [f"{name}_loss", *(["scale"] if factor else [])]
    sketch.reference.append(f"x = {factor} * {text}" if factor else f"x = {text}")
    body = ["    " + line for line in [*LOSS_ROW_HEAD, *lines, "tl.store(part_ptr + row, loss)"]]
    pointers = [f"{p}_ptr" for p in ("x", "y", "z")[: len(inputs)]]
    scalars = ["margin"] if sketch.takes("margin") else []
    sketch.kernels.append(
        kernel("loss_kernel", [*pointers, "part_ptr", "columns", *scalars, "BLOCK"], body)
    )
    write_sum_kernel(sketch, factor)
    first = inputs[0]
    sketch.host += [
        f"rows, columns = {first}.shape",
        f"part = torch.empty(rows, device={first}.device)",
        f"out = torch.empty((), device={first}.device)",
        f"loss_kernel[(rows,)]({', '.join(inputs)}, part, "
        f"{', '.join(['columns', *(f'self.{s}' for s in scalars)])}, BLOCK=1024)",
        "total_kernel[(1,)](part, out, rows, rows, BLOCK=1024)",
    ]
    return finish_program(sketch)


def _row_load(name: str, pointer: str, other: str = "0.0") -> str:
    return f"    {name} = tl.load({pointer}_ptr + row * columns + cols, mask=mask, other={other})"


def _cross_entropy(sketch: Sketch, factor: str) -> DrawnProgram:
    names = sketch.pick((("predictions", "targets"), ("logits", "labels"), ("logits", "targets")))
    start(sketch, 2, name=names[0])
    rows, columns = sketch.shape
    sketch.inputs.append((names[1], f"torch.randint(0, {columns}, ({rows},))"))
    smoothed = not factor and sketch.chance(0.5)
    smoothing_argument = ", label_smoothing=0.1" if smoothed else ""
    lines = [
        'top = -float("inf")',
        "total = 0.0",
        *(["plain = 0.0"] if smoothed else []),
        *ROW_LOOP,
        _row_load("x", "x", '-float("inf")'),
        "    new_top = tl.maximum(top, tl.max(x, axis=0))",
        "    total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), axis=0)",
        "    top = new_top",
        *(["    plain += tl.sum(tl.where(mask, x, 0.0), axis=0)"] if smoothed else []),
        "right = tl.load(x_ptr + row * columns + tl.load(y_ptr + row))",
        "norm = top + tl.log(total)",
        # Label smoothing 0.1: 0.9 of the target's log-prob and 0.1 of the mean over all classes.
        "loss = norm - 0.9 * right - 0.1 * plain / columns" if smoothed else "loss = norm - right",
    ]
    name = "smoothed_cross_entropy" if smoothed else "cross_entropy"
    return _finished_row_loss(
        sketch,
        name,
        f"F.cross_entropy({names[0]}, {names[1]}{smoothing_argument})",
        factor or ("" if smoothed else "2.0"),
        list(names),
        lines,
    )


def _divergence(sketch: Sketch, factor: str) -> DrawnProgram:
    names = sketch.pick((("predictions", "targets"), ("p", "q"), ("logits", "targets")))
    start(sketch, 2, name=names[0])
    shape = ", ".join(sketch.shape)
    sketch.inputs[0] = (names[0], f"torch.rand({shape}).softmax(dim=-1)")
    sketch.inputs.append((names[1], f"torch.rand({shape}).softmax(dim=-1)"))
    lines = [
        "acc = tl.zeros((BLOCK,), tl.float32)",
        *ROW_LOOP,
        _row_load("x", "x", "1.0"),
        _row_load("y", "y", "0.0"),
        "    acc += tl.where(y > 0, y * (tl.log(tl.where(y > 0, y, 1.0)) - tl.log(x)), 0.0)",
        "loss = tl.sum(acc, axis=0)",
    ]
    text = f'F.kl_div(torch.log({names[0]}), {names[1]}, reduction="batchmean")'
    return _finished_row_loss(sketch, "kl_div", text, factor or "0.5", list(names), lines)


def _cosine(sketch: Sketch, factor: str) -> DrawnProgram:
    names = sketch.pick((("predictions", "targets"), ("a", "b"), ("x1", "x2")))
    start(sketch, 2, name=names[0])
    sketch.input(names[1], sketch.shape)
    lines = [
        "dot = 0.0",
        "xx = 0.0",
        "yy = 0.0",
        *ROW_LOOP,
        _row_load("x", "x"),
        _row_load("y", "y"),
        "    dot += tl.sum(x * y, axis=0)",
        "    xx += tl.sum(x * x, axis=0)",
        "    yy += tl.sum(y * y, axis=0)",
        "loss = 1.0 - dot / (tl.maximum(tl.sqrt(xx), 1e-8) * tl.maximum(tl.sqrt(yy), 1e-8))",
    ]
    text = f"torch.mean(1 - F.cosine_similarity({names[0]}, {names[1]}, dim=1))"
    return _finished_row_loss(sketch, "cosine", text, factor, list(names), lines)


def _triplet(sketch: Sketch, factor: str) -> DrawnProgram:
    names = ["anchor", "positive", "negative"]
    start(sketch, 2, name=names[0])
    for name in names[1:]:
        sketch.input(name, sketch.shape)
    margin = sketch.pick(("1.0", "0.5", "0.2"))
    lines = [
        "near = 0.0",
        "far = 0.0",
        *ROW_LOOP,
        _row_load("x", "x"),
        _row_load("y", "y"),
        _row_load("z", "z"),
        "    y = tl.where(mask, x - y + 1e-6, 0.0)",
        "    z = tl.where(mask, x - z + 1e-6, 0.0)",
        "    near += tl.sum(y * y, axis=0)",
        "    far += tl.sum(z * z, axis=0)",
        f"loss = tl.maximum(tl.sqrt(near) - tl.sqrt(far) + {margin}, 0.0)",
    ]
    text = f"F.triplet_margin_loss({', '.join(names)}, margin={margin})"
    if sketch.chance(0.5):
        sketch.argument("margin", margin, keep=False)
        sketch.defaults["margin"] = "1.0"
        sketch.module("loss_fn", "nn.TripletMarginLoss(margin=margin)", weights=False)
        sketch.init.append("self.margin = margin")
        text = f"self.loss_fn({', '.join(names)})"
        lines[-1] = lines[-1].replace(margin, "margin")
    return _finished_row_loss(sketch, "triplet", text, factor or "0.5", names, lines)
