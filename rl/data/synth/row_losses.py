"""Losses that need a whole row: cross entropy, divergence, cosine, triplet."""

from __future__ import annotations

from rl.data.synth.losses import add_up
from rl.data.synth.program import Program, finished, kernel
from rl.data.synth.sketch import Sketch
from rl.data.synth.tensors import start

HEAD = ["row = tl.program_id(0).to(tl.int64)"]
LOOP = ["for start in range(0, columns, BLOCK):", "    cols = start + tl.arange(0, BLOCK)", "    mask = cols < columns"]
SCALES = ("0.5", "2.0", "0.1", "0.25")


def row_loss(sketch: Sketch, depth: int) -> Program:
    """A loss of rows, averaged; scaled where the chain is longer."""
    form = sketch.pick((_cross_entropy, _divergence, _cosine, _triplet))
    return form(sketch, sketch.pick(SCALES) if depth > 1 else "")


def _finish(sketch: Sketch, name: str, text: str, factor: str, inputs: list[str], lines: list[str]) -> Program:
    """`lines` set `loss`, of one row."""
    sketch.ops += [f"{name}_loss", *(["scale"] if factor else [])]
    sketch.reference.append(f"x = {factor} * {text}" if factor else f"x = {text}")
    body = ["    " + line for line in [*HEAD, *lines, "tl.store(part_ptr + row, loss)"]]
    pointers = [f"{p}_ptr" for p in ("x", "y", "z")[: len(inputs)]]
    scalars = ["margin"] if sketch.takes("margin") else []
    sketch.kernels.append(kernel("loss_kernel", [*pointers, "part_ptr", "columns", *scalars, "BLOCK"], body))
    add_up(sketch, factor)
    first = inputs[0]
    sketch.host += [
        f"rows, columns = {first}.shape",
        f"part = torch.empty(rows, device={first}.device)",
        f"out = torch.empty((), device={first}.device)",
        f"loss_kernel[(rows,)]({', '.join(inputs)}, part, {', '.join(['columns', *(f'self.{s}' for s in scalars)])}, BLOCK=1024)",
        "total_kernel[(1,)](part, out, rows, rows, BLOCK=1024)",
    ]
    return finished(sketch)


def _load(name: str, pointer: str, other: str = "0.0") -> str:
    return f"    {name} = tl.load({pointer}_ptr + row * columns + cols, mask=mask, other={other})"


def _cross_entropy(sketch: Sketch, factor: str) -> Program:
    names = sketch.pick((("predictions", "targets"), ("logits", "labels"), ("logits", "targets")))
    start(sketch, 2, name=names[0])
    rows, columns = sketch.shape
    sketch.inputs.append((names[1], f"torch.randint(0, {columns}, ({rows},))"))
    smoothed = not factor and sketch.chance(0.5)
    given = ", label_smoothing=0.1" if smoothed else ""
    lines = [
        'top = -float("inf")',
        "total = 0.0",
        *(["plain = 0.0"] if smoothed else []),
        *LOOP,
        _load("x", "x", '-float("inf")'),
        "    new_top = tl.maximum(top, tl.max(x, axis=0))",
        "    total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), axis=0)",
        "    top = new_top",
        *(["    plain += tl.sum(tl.where(mask, x, 0.0), axis=0)"] if smoothed else []),
        "right = tl.load(x_ptr + row * columns + tl.load(y_ptr + row))",
        "norm = top + tl.log(total)",
        "loss = norm - 0.9 * right - 0.1 * plain / columns" if smoothed else "loss = norm - right",
    ]
    name = "smoothed_cross_entropy" if smoothed else "cross_entropy"
    return _finish(
        sketch,
        name,
        f"F.cross_entropy({names[0]}, {names[1]}{given})",
        factor or ("" if smoothed else "2.0"),
        list(names),
        lines,
    )


def _divergence(sketch: Sketch, factor: str) -> Program:
    names = sketch.pick((("predictions", "targets"), ("p", "q"), ("logits", "targets")))
    start(sketch, 2, name=names[0])
    shape = ", ".join(sketch.shape)
    sketch.inputs[0] = (names[0], f"torch.rand({shape}).softmax(dim=-1)")
    sketch.inputs.append((names[1], f"torch.rand({shape}).softmax(dim=-1)"))
    lines = [
        "acc = tl.zeros((BLOCK,), tl.float32)",
        *LOOP,
        _load("x", "x", "1.0"),
        _load("y", "y", "0.0"),
        "    acc += tl.where(y > 0, y * (tl.log(tl.where(y > 0, y, 1.0)) - tl.log(x)), 0.0)",
        "loss = tl.sum(acc, axis=0)",
    ]
    text = f'F.kl_div(torch.log({names[0]}), {names[1]}, reduction="batchmean")'
    return _finish(sketch, "kl_div", text, factor or "0.5", list(names), lines)


def _cosine(sketch: Sketch, factor: str) -> Program:
    names = sketch.pick((("predictions", "targets"), ("a", "b"), ("x1", "x2")))
    start(sketch, 2, name=names[0])
    sketch.input(names[1], sketch.shape)
    lines = [
        "dot = 0.0",
        "xx = 0.0",
        "yy = 0.0",
        *LOOP,
        _load("x", "x"),
        _load("y", "y"),
        "    dot += tl.sum(x * y, axis=0)",
        "    xx += tl.sum(x * x, axis=0)",
        "    yy += tl.sum(y * y, axis=0)",
        "loss = 1.0 - dot / (tl.maximum(tl.sqrt(xx), 1e-8) * tl.maximum(tl.sqrt(yy), 1e-8))",
    ]
    text = f"torch.mean(1 - F.cosine_similarity({names[0]}, {names[1]}, dim=1))"
    return _finish(sketch, "cosine", text, factor, list(names), lines)


def _triplet(sketch: Sketch, factor: str) -> Program:
    names = ["anchor", "positive", "negative"]
    start(sketch, 2, name=names[0])
    for name in names[1:]:
        sketch.input(name, sketch.shape)
    margin = sketch.pick(("1.0", "0.5", "0.2"))
    lines = [
        "near = 0.0",
        "far = 0.0",
        *LOOP,
        _load("x", "x"),
        _load("y", "y"),
        _load("z", "z"),
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
    return _finish(sketch, "triplet", text, factor or "0.5", names, lines)
