"""Attention with a running maximum: scores never leave the chip."""

from __future__ import annotations

from kernelwright.rl.data.synth.blocks.chain import ChainNeeds, ChainSite, draw_steps, kernel_lines
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program, kernel
from kernelwright.rl.data.synth.engine.sketch import Sketch


def attention(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws softmax(q k^T * scale) v over (batch, heads, length, dim), causal or not -> chain."""
    sketch.family = "attention"
    sketch.reserved |= {"scale", "top", "total"}
    sketch.dtype = sketch.rng.choices(("float32", "float16"), (3, 2))[0]
    names = sketch.pick((("q", "k", "v"), ("Q", "K", "V"), ("query", "key", "value")))
    shape = (
        sketch.size("batch_size", (2, 4, 8), (1, 2)),
        sketch.size(sketch.pick(("num_heads", "heads")), (8, 16), (2, 3)),
        sketch.size(sketch.pick(("seq_len", "length")), (512, 1024, 2048), (37, 70)),
        sketch.size(sketch.pick(("head_dim", "d_k", "embed_dim")), (32, 64, 128), (16, 24)),
    )
    for name in names:
        sketch.inputs.append(
            (
                name,
                f"torch.randn({', '.join(shape)}{', dtype=torch.float16' if sketch.narrow else ''})",
            )
        )
    sketch.shape = shape
    causal = sketch.chance(0.45)
    _write(sketch, names, causal)
    sketch.ops.append("causal_attention" if causal else "attention")
    steps = draw_steps(sketch, depth - 1, tensors=False, binary=0)
    extra = ChainNeeds()
    tail = kernel_lines(sketch, steps, ChainSite("acc", "", "", indent="    "), extra)
    parameters = [
        "q_ptr",
        "k_ptr",
        "v_ptr",
        *extra.parameters,
        "out_ptr",
        "length",
        "dim",
        "scale",
        "BLOCK_M",
        "BLOCK_N",
        "BLOCK_D",
    ]
    sketch.kernels.append(kernel("attention_kernel", parameters, _body(sketch, causal, tail)))
    q, k, v = names
    values = ", ".join([q, k, v, *extra.values, "out", "length", "dim", "dim**-0.5"])
    sketch.host += [
        f"batch, heads, length, dim = {q}.shape",
        f"out = torch.empty_like({q})",
        "grid = (triton.cdiv(length, 64), batch * heads)",
        f"attention_kernel[grid]({values}, BLOCK_M=64, BLOCK_N=32, BLOCK_D=triton.next_power_of_2(dim))",
    ]
    return finish_program(sketch)


def _write(sketch: Sketch, names: tuple[str, str, str], causal: bool) -> None:
    q, k, v = names
    if sketch.chance(0.3):
        causal_argument = ", is_causal=True" if causal else ""
        sketch.reference.append(
            f"x = F.scaled_dot_product_attention({q}, {k}, {v}{causal_argument})"
        )
        return
    root = sketch.pick((f"({q}.shape[-1] ** 0.5)", f"math.sqrt({q}.size(-1))"))
    sketch.reference.append(f"scores = torch.matmul({q}, {k}.transpose(-2, -1)) / {root}")
    if causal:
        length = f"{q}.shape[2]"
        sketch.reference.append(
            f"mask = torch.tril(torch.ones({length}, {length}, device={q}.device)) == 0"
        )
        sketch.reference.append('scores = scores.masked_fill(mask, float("-inf"))')
    sketch.reference.append(
        f"weights = {sketch.pick(('torch.softmax(scores, dim=-1)', 'F.softmax(scores, dim=-1)'))}"
    )
    sketch.reference.append(f"x = torch.matmul(weights, {v})")


def _body(sketch: Sketch, causal: bool, tail: list[str]) -> list[str]:
    precision = "" if sketch.narrow else ', input_precision="tf32x3"'
    weights = "weights.to(v.dtype)" if sketch.narrow else "weights"
    end = "tl.minimum(length, (tl.program_id(0) + 1) * BLOCK_M)" if causal else "length"
    visible = "cols[None, :] < length"
    if causal:
        visible = "(cols[None, :] < length) & (cols[None, :] <= rows[:, None])"
    lines = [
        "base = tl.program_id(1).to(tl.int64) * length * dim",
        "rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)",
        "d = tl.arange(0, BLOCK_D)",
        "mask = (rows[:, None] < length) & (d[None, :] < dim)",
        "q = tl.load(q_ptr + base + rows[:, None] * dim + d[None, :], mask=mask, other=0.0)",
        'top = tl.full((BLOCK_M,), -float("inf"), tl.float32)',
        "total = tl.zeros((BLOCK_M,), tl.float32)",
        "acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)",
        f"for start in range(0, {end}, BLOCK_N):",
        "    cols = start + tl.arange(0, BLOCK_N)",
        "    inside = (cols[:, None] < length) & (d[None, :] < dim)",
        "    k = tl.load(k_ptr + base + cols[:, None] * dim + d[None, :], mask=inside, other=0.0)",
        "    v = tl.load(v_ptr + base + cols[:, None] * dim + d[None, :], mask=inside, other=0.0)",
        f"    scores = tl.dot(q, tl.trans(k){precision}) * scale",
        f'    scores = tl.where({visible}, scores, -float("inf"))',
        "    new_top = tl.maximum(top, tl.max(scores, axis=1))",
        "    weights = tl.exp(scores - new_top[:, None])",
        "    shrink = tl.exp(top - new_top)",
        "    total = total * shrink + tl.sum(weights, axis=1)",
        f"    acc = tl.dot({weights}, v, acc * shrink[:, None]{precision})",
        "    top = new_top",
        "acc = acc / total[:, None]",
    ]
    return [
        *("    " + line for line in lines),
        *tail,
        "    tl.store(out_ptr + base + rows[:, None] * dim + d[None, :], acc, mask=mask)",
    ]
