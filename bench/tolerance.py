"""How well the tolerance tells honest arithmetic from cheats: honest variants (other orders, blocks, approximations)
against lower precision.

    python -m bench.tolerance [--large]          one core, 10 s; --large adds K = 65,536 and a loss of 16M elements

Prints, for each computation, the largest headroom of the honest variants (error over allowed error: under 1 passes),
the smallest of the cheats (over 1 fails) and the separation, their quotient. The table
is kept in `bench/results/tolerance.md`.
Figures for fp32 on a CPU, whose eager is more exact than a GPU's: the harder side.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

import torch
import torch.nn.functional as F

from kernelwright.tools.comparing.comparison import measure

Function = Callable[..., torch.Tensor]


@dataclass
class Case:
    """One computation: `run` on the inputs is the reference (float64) and eager (as drawn); variants take the same
    inputs.
    """

    name: str
    run: Function
    inputs: tuple[torch.Tensor, ...]
    honest: dict[str, Function]
    cheats: dict[str, Function]
    depth: int = 1
    draw: str = "own"
    laundered: dict[str, Function] = field(default_factory=dict)
    """Lower precision that no tolerance can see here: averaged away. Reported, not held."""


def rounded(x: torch.Tensor, bits: int) -> torch.Tensor:
    """fp32 with its mantissa rounded to `bits` explicit bits (10: tf32, 7: bf16), ties away."""
    shift = 23 - bits
    return ((x.contiguous().view(torch.int32) + (1 << (shift - 1))) >> shift << shift).view(
        torch.float32
    )


def tf32(x: torch.Tensor) -> torch.Tensor:
    return rounded(x, 10)


def bf16(x: torch.Tensor) -> torch.Tensor:
    return rounded(x, 7)


def fp16(x: torch.Tensor) -> torch.Tensor:
    return x.half().to(x.dtype)


def fp8(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float8_e4m3fn).to(x.dtype)


def int8(x: torch.Tensor) -> torch.Tensor:
    """One scale a row: the best that int8 usually does."""
    step = x.abs().amax(-1, keepdim=True).float() / 127
    return (torch.round(x.float() / step) * step).to(x.dtype)


def exp2_approx(x: torch.Tensor) -> torch.Tensor:
    """tl.exp on fp32: ex2.approx.f32 (2 ulp, exact at 0: PTX ISA) of a product rounded to fp32."""
    exact = torch.exp2((x * 1.4426950408889634).double())
    noise = torch.empty_like(x).uniform_(-2, 2) * 2**-23 * (x != 0)
    return (exact * (1 + noise.double())).float()


def blocks(f: Function, k: int, *x: torch.Tensor) -> torch.Tensor:
    """a @ b, one fp32 accumulator over blocks of k."""
    a, b = (t.float() for t in x)
    total = torch.zeros(*a.shape[:-1], b.shape[-1])
    for i in range(0, a.shape[-1], k):
        total += f(a[..., i : i + k], b[..., i : i + k, :])
    return total.to(x[0].dtype)


def one_by_one(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """a @ b with one multiply-add after the other, as one thread of a GPU does."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(a.shape[1]):
        total.addcmul_(a[:, k : k + 1], b[k : k + 1])
    return total


def three_tf32(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """input_precision="tf32x3"."""
    ah, bh = tf32(a), tf32(b)
    return tf32(a - ah) @ bh + ah @ tf32(b - bh) + ah @ bh


def on(cheat: Function, f: Function) -> Function:
    return lambda *x: f(*(cheat(t) if t.is_floating_point() else t for t in x))


def within(cheat: Function, f: Function) -> Function:
    """The function with its inputs and its output in low precision: all of the arithmetic is at least as bad."""
    return lambda *x: cheat(f(*(cheat(t) for t in x)))


def matmuls(sizes: tuple[int, ...]) -> Iterator[Case]:
    for k in sizes:
        a, b = torch.randn(48, k), torch.randn(k, 64)
        honest = {f"blocks of {n}": partial(blocks, torch.matmul, n) for n in (16, 32, 128)}
        if k <= 16384:
            honest |= {"one by one": one_by_one}
        honest |= {"tf32x3": three_tf32, "columns reversed": lambda a, b: a.flip(1) @ b.flip(0)}
        cheats = {c.__name__: on(c, torch.matmul) for c in (tf32, bf16, fp16, int8)}
        yield Case(f"matmul K={k}", torch.matmul, (a, b), honest, cheats)
        if k == 4096:
            laundered = {"tf32": on(tf32, torch.matmul)}
            cheats = {"int4": on(lambda x: rounded(x, 2), torch.matmul)}
            yield Case(
                "matmul K=4096 rand",
                torch.matmul,
                (a.abs().frac(), b.abs().frac()),
                honest,
                cheats,
                laundered=laundered,
            )
    for dtype in (torch.float16, torch.bfloat16):
        a, b = torch.randn(48, 4096, dtype=dtype), torch.randn(4096, 64, dtype=dtype)
        honest = {f"blocks of {n}": partial(blocks, torch.matmul, n) for n in (16, 64)}
        cheats = {c.__name__: on(c, torch.matmul) for c in (fp8, int8)}
        yield Case(f"matmul {str(dtype)[6:]}", torch.matmul, (a, b), honest, cheats)


def _online_softmax(x: torch.Tensor, block: int = 128) -> torch.Tensor:
    top, total = torch.full(x.shape[:1], -math.inf), torch.zeros(x.shape[0])
    for part in x.split(block, -1):
        new = torch.maximum(top, part.amax(-1))
        total = total * exp2_approx(top - new) + exp2_approx(part - new[:, None]).sum(-1)
        top = new
    return exp2_approx(x - top[:, None]) / total[:, None]


def _sum_blocks(x: torch.Tensor, block: int) -> torch.Tensor:
    """Partial sums of blocks, then one after the other in fp32 (a grid of atomics)."""
    parts = torch.stack([p.sum(-1) for p in x.split(block, -1)], -1)
    return parts.cumsum(-1, dtype=torch.float32)[..., -1] if parts.shape[-1] < 64 else _walk(parts)


def _walk(parts: torch.Tensor) -> torch.Tensor:
    total = torch.zeros(parts.shape[:-1])
    for part in parts.unbind(-1):
        total = total + part
    return total


def _layer_norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _one_pass_norm(x: torch.Tensor) -> torch.Tensor:
    n = x.shape[-1]
    mean, square = _sum_blocks(x, 64)[:, None] / n, _sum_blocks(x * x, 64)[:, None] / n
    return (x - mean) * torch.rsqrt(square - mean * mean + 1e-5)


def _two_pass_norm(x: torch.Tensor) -> torch.Tensor:
    mean = _sum_blocks(x, 32)[:, None] / x.shape[-1]
    return (x - mean) / torch.sqrt(_sum_blocks((x - mean) ** 2, 32)[:, None] / x.shape[-1] + 1e-5)


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.T / math.sqrt(q.shape[-1]), -1) @ v


def _flash(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block: int = 64, cast: Function = lambda x: x
) -> torch.Tensor:
    top, total, out = (
        torch.full(q.shape[:1], -math.inf),
        torch.zeros(q.shape[0]),
        torch.zeros(q.shape[0], v.shape[1]),
    )
    for i in range(0, k.shape[0], block):
        score = cast(q) @ cast(k[i : i + block]).T / math.sqrt(q.shape[-1])
        new = torch.maximum(top, score.amax(-1))
        p, fade = exp2_approx(score - new[:, None]), exp2_approx(top - new)
        total, out, top = (
            total * fade + p.sum(-1),
            out * fade[:, None] + cast(p) @ cast(v[i : i + block]),
            new,
        )
    return out / total[:, None]


def rows() -> Iterator[Case]:
    low = (tf32, bf16, fp16)
    softmax = partial(torch.softmax, dim=-1)
    for scale in (1.0, 20.0):
        x = torch.randn(67, 4096) * scale
        honest = {
            "online": _online_softmax,
            "approximate exp": lambda x: (e := exp2_approx(x - x.amax(-1, True))) / e.sum(-1, True),
        }
        yield Case(
            f"softmax of randn*{scale:g}",
            softmax,
            (x,),
            honest,
            {c.__name__: within(c, softmax) for c in low},
        )
    for shift in (0.0, 3.0):
        x = torch.randn(67, 1024) + shift
        honest = {"two passes": _two_pass_norm, "one pass": _one_pass_norm}
        yield Case(
            f"layer norm, mean {shift:g}",
            _layer_norm,
            (x,),
            honest,
            {c.__name__: within(c, _layer_norm) for c in low},
        )
    x = torch.randn(67, 16384)
    sums = {f"blocks of {n}": partial(_sum_blocks, block=n) for n in (16, 128, 1024)}
    yield Case(
        "row sum",
        lambda x: x.sum(-1),
        (x,),
        sums,
        {c.__name__: on(c, lambda x: x.sum(-1)) for c in low},
        depth=16384,
    )
    logsumexp = partial(torch.logsumexp, dim=-1)
    honest = {
        "approximate exp": lambda x: exp2_approx(x - x.amax(-1, True)).sum(-1).log() + x.amax(-1)
    }
    yield Case(
        "logsumexp",
        logsumexp,
        (x * 4,),
        honest,
        {c.__name__: within(c, logsumexp) for c in low},
        depth=16384,
    )
    cumsum = partial(torch.cumsum, dim=-1)
    y = torch.randn(16, 4096)
    honest = {"one by one": lambda x: torch.stack(list(_running(x)), -1)}
    yield Case("cumsum", cumsum, (y,), honest, {c.__name__: within(c, cumsum) for c in low})
    q, k, v = (torch.randn(256, 64) for _ in range(3))
    honest = {"flash": _flash, "flash, blocks of 16": partial(_flash, block=16)}
    yield Case(
        "attention",
        _attention,
        (q, k, v),
        honest,
        {c.__name__: partial(_flash, cast=c) for c in low},
    )


def _running(x: torch.Tensor) -> Iterator[torch.Tensor]:
    total = torch.zeros(x.shape[0])
    for part in x.unbind(-1):
        total = total + part
        yield total


def _gelu_by_sigmoid(x: torch.Tensor) -> torch.Tensor:
    inner = 0.7978845608028654 * (x + 0.044715 * x**3)
    return x / (1 + exp2_approx(-2 * inner))


def others(large: bool) -> Iterator[Case]:
    low = (tf32, bf16, fp16)
    x = torch.empty(67, 1024).uniform_(-88, 88)
    yield Case(
        "exp to 88",
        torch.exp,
        (x,),
        {"ex2.approx": exp2_approx},
        {c.__name__: on(c, torch.exp) for c in low},
    )
    x = torch.randn(67, 1024) * 3
    gelu = partial(F.gelu, approximate="tanh")
    yield Case(
        "gelu tanh",
        gelu,
        (x,),
        {"by sigmoid": _gelu_by_sigmoid},
        {c.__name__: within(c, gelu) for c in low} | {"erf": F.gelu},
    )
    n = 1 << (24 if large else 20)
    p, t = torch.randn(n), torch.randn(n)
    mse = {f"atomics of blocks of {b}": partial(_blocked_mse, block=b) for b in (256, 1024)}
    cheats = {
        "every other element": lambda p, t: F.mse_loss(p[::2], t[::2]),
        "the first nine tenths": lambda p, t: F.mse_loss(p[: n * 9 // 10], t[: n * 9 // 10]),
    }
    yield Case(
        "mse loss",
        F.mse_loss,
        (p, t),
        mse,
        cheats,
        depth=2 * n,
        laundered={"tf32": on(tf32, F.mse_loss)},
    )
    image, weight = torch.randn(4, 32, 18, 18), torch.randn(48, 32, 3, 3)
    honest = {"as a matmul in blocks": _unfolded}
    yield Case(
        "conv2d", F.conv2d, (image, weight), honest, {c.__name__: on(c, F.conv2d) for c in low}
    )
    layers = tuple(torch.randn(256, 256) / 16 for _ in range(8))
    honest = {"blocks of 32": partial(_network, product=partial(blocks, torch.matmul, 32))}
    cheats = {c.__name__: partial(_network, product=on(c, torch.matmul)) for c in low}
    yield Case("eight layers", _network, (torch.randn(64, 256), *layers), honest, cheats)


def _sigmoid(x: torch.Tensor) -> torch.Tensor:
    return 1 / (1 + exp2_approx(-x))


def _tanh_by_exp(x: torch.Tensor) -> torch.Tensor:
    e = exp2_approx(2 * x)
    return (e - 1) / (e + 1)


def constant_rows(rows: int) -> Iterator[Case]:
    """Rows of one number each: some lie next to a zero of the function, where the usual forms are off by half an
    ulp of 1.
    """
    x = torch.randn(rows, 1).expand(rows, 96).contiguous()
    functions: dict[str, tuple[Function, dict[str, Function]]] = {
        "tanh": (
            torch.tanh,
            {"by sigmoid": lambda x: 2 * _sigmoid(2 * x) - 1, "by exp": _tanh_by_exp},
        ),
        "elu": (F.elu, {"exp(x) - 1": lambda x: torch.where(x > 0, x, exp2_approx(x) - 1)}),
        "relu of expm1": (
            lambda x: torch.relu(torch.expm1(x)),
            {"exp(x) - 1": lambda x: (exp2_approx(x) - 1).relu()},
        ),
        "log1p": (lambda x: torch.log1p(x.abs()), {"log(1 + x)": lambda x: (1 + x.abs()).log()}),
    }
    for name, (function, honest) in functions.items():
        cheats = {c.__name__: within(c, function) for c in (tf32, bf16, fp16)}
        yield Case(
            f"{name}, {rows} constant rows", function, (x,), honest, cheats, draw="constant_rows"
        )


def _blocked_mse(p: torch.Tensor, t: torch.Tensor, block: int) -> torch.Tensor:
    return _sum_blocks(((p - t) ** 2)[None], block)[0] / p.numel()


def _unfolded(image: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    columns = F.unfold(image, weight.shape[-2:])
    out = torch.stack([blocks(torch.matmul, 32, weight.flatten(1), c) for c in columns])
    return out.view(image.shape[0], weight.shape[0], image.shape[2] - 2, -1)


def _network(
    x: torch.Tensor, *layers: torch.Tensor, product: Function = torch.matmul
) -> torch.Tensor:
    for w in layers:
        x = torch.tanh(product(x, w)) * 1.5
    return x


def cases(large: bool = False) -> Iterator[Case]:
    yield from matmuls((64, 512, 4096, 16384, *((65536,) if large else ())))
    yield from rows()
    yield from others(large)
    yield from constant_rows(8)
    yield from constant_rows(4096)


def headrooms(case: Case, variants: dict[str, Function]) -> dict[str, float]:
    """Error over allowed error of each variant. Under 1 is right."""
    eager, exact = case.run(*case.inputs), case.run(*(t.double() for t in case.inputs))
    return {
        name: measure(f(*case.inputs), eager, exact, draw=case.draw, depth=case.depth).headroom
        for name, f in variants.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    print("| computation | honest, worst | cheat, best | separation |\n|---|---|---|---|")
    for case in cases(arguments.large):
        honest = max((v, n) for n, v in headrooms(case, case.honest).items())
        cheat = min((v, n) for n, v in headrooms(case, case.cheats).items())
        print(
            f"| {case.name} | {honest[0]:.2f} ({honest[1]}) | {cheat[0]:.3g} ({cheat[1]}) | "
            f"{cheat[0] / max(honest[0], 1e-9):.0f} |"
        )
        for name, value in headrooms(case, case.laundered).items():
            print(f"| {case.name}, averaged away: {name} | | {value:.2f} | |")
        if case.draw != "own":
            strict = max(headrooms(replace(case, draw="own"), case.honest).values())
            print(f"| the same by the rule for other rows | {strict:.2f} | | |")


if __name__ == "__main__":
    main()
