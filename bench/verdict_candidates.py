"""Candidates for bench/verdicts.py, written for this bench: for each problem a correct one, a slow one, a wrong
one, a broken one.
"""

from __future__ import annotations

from string import Template
from typing import NamedTuple

HEADER = "import torch\nimport torch.nn as nn\nimport triton\nimport triton.language as tl\n\n\n"

GEMM = Template("""
@triton.jit
def gemm_kernel(
    x, w, b, out, M, N, K, scale, WN: tl.constexpr, WK: tl.constexpr, HAS_BIAS: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):
    rows = (tl.program_id(0) * BM + tl.arange(0, BM)).to(tl.int64)
    columns = (tl.program_id(1) * BN + tl.arange(0, BN)).to(tl.int64)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        inside = (rows[:, None] < M) & (inner[None, :] < K)
        left = tl.load(x + rows[:, None] * K + inner[None, :], mask=inside, other=0.0)
        wn, wk = (N, 1) if WN else (1, K)
        inside = (inner[:, None] < K) & (columns[None, :] < N)
        right = tl.load(w + inner[:, None] * wn + columns[None, :] * wk, mask=inside, other=0.0)
        total = tl.dot(left, right, total, input_precision="ieee")
    if HAS_BIAS:
        total += tl.load(b + columns, mask=columns < N, other=0.0)[None, :]
    y = total
    $after
    tl.store(out + rows[:, None] * N + columns[None, :], y, mask=(rows[:, None] < M) & (columns[None, :] < N))


def gemm(x, w, b, scale, columns, rowwise):
    x, w = x.contiguous(), w.contiguous()
    (M, K), N = x.shape, columns
    out = torch.empty((M, N), device=x.device, dtype=x.dtype)
    grid = (triton.cdiv(M, $bm), triton.cdiv(N, $bn))
    gemm_kernel[grid](
        x, w, w if b is None else b, out, M, N, K, scale, WN=rowwise, WK=not rowwise, HAS_BIAS=b is not None,
        BM=$bm, BN=$bn, BK=$bk, num_warps=$warps,
    )
    return out
""")

FAST = {"bm": 64, "bn": 64, "bk": 16, "warps": 4}
SLOW = {"bm": 16, "bn": 16, "bk": 16, "warps": 1}

MODELS = {
    "1/1": ("", "class ModelNew(nn.Module):\n    def forward(self, A, B):\n        return gemm(A, B, None, 1.0, "
    "B.shape[1], True)\n", "y = y * 1.001", "y = tl.no_such_function(y)"),
    "2/12": (
        "y = y * scale\n    y = tl.where(y > 0, y, y * 0.1)",
        "class ModelNew(nn.Module):\n    def __init__(self, i, o, multiplier, slope):\n        "
        "super().__init__()\n        self.gemm = nn.Linear(i, o)\n        self.multiplier = multiplier\n\n    def "
        "forward(self, x):\n        return gemm(x, self.gemm.weight, self.gemm.bias, self.multiplier, "
        "self.gemm.weight.shape[0], False)\n",
        "y = y * scale\n    y = tl.where(y > 0, y, y * 0.01)", "y = y * scale\n    y = tl.leaky(y)",
    ),
    "2/63": (
        "y = tl.maximum(y, 0.0) / scale",
        "class ModelNew(nn.Module):\n    def __init__(self, i, o, divisor):\n        super().__init__()\n  "
        "      self.linear = nn.Linear(i, o)\n        self.divisor "
        "= divisor\n\n    def forward(self, x):\n        return gemm(x, self.linear.weight, self.linear.bias, "
        "self.divisor, self.linear.weight.shape[0], False)\n",
        "y = y / scale", "y = tl.relu(y) / scale",
    ),
    "2/76": (
        "y = tl.maximum(y, 0.0)",
        "class ModelNew(nn.Module):\n    def __init__(self, i, o, bias_shape):\n        "
        "super().__init__()\n        self.gemm = nn.Linear(i, o, bias=False)\n        self.bias = "
        "nn.Parameter(torch.randn(bias_shape))\n\n    def forward(self, x):\n        return gemm(x, "
        "self.gemm.weight, self.bias, 1.0, self.gemm.weight.shape[0], False)\n",
        "y = tl.maximum(y, 0.1)", "y = tl.maximum(y)",
    ),
    "2/86": (
        "y = y / scale\n    y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))",
        "class ModelNew(nn.Module):\n    def __init__(self, i, o, divisor):\n        super().__init__()\n  "
        "      self.linear = nn.Linear(i, o)\n        self.divisor "
        "= divisor\n\n    def forward(self, x):\n        return gemm(x, self.linear.weight, self.linear.bias, "
        "self.divisor, self.linear.weight.shape[0], False)\n",
        "y = y * scale\n    y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))",
        "y = y / scale\n    y = tl.math.gelu(y)",
    ),
}  # fmt: skip

RELU = """
@triton.jit
def relu_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    value = tl.load(x + offsets, mask=mask)
    tl.store(out + offsets, tl.maximum(value, 0.0{broken}), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        relu_kernel[(triton.cdiv(x.numel(), 4096),)](x, out, x.numel(), BLOCK=4096, num_warps=8)
        return out
"""

SOFTMAX = """
@triton.jit
def softmax_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        inside = start + offsets < columns
        top = tl.maximum(top, tl.load(x + row * columns + start + offsets, mask=inside, other=-float("inf")))
    high = tl.max(top, axis=0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        value = tl.load(x + row * columns + start + offsets, mask=start + offsets < columns, other=-float("inf"))
        total += tl.exp(value - high)
    whole = tl.sum(total, axis=0){wrong}
    for start in range(0, columns, BLOCK):
        mask = start + offsets < columns
        value = tl.load(x + row * columns + start + offsets, mask=mask, other=0.0)
        tl.store(out + row * columns + start + offsets, tl.exp(value - high) / whole, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        out = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=8192, num_warps=16)
        return out
"""


class Entry(NamedTuple):
    problem: str
    kind: str
    """correct, slow, wrong or broken."""
    source: str


TILES = (
    {"bm": 128, "bn": 64, "bk": 16, "warps": 4}, {"bm": 64, "bn": 128, "bk": 16, "warps": 4},
    {"bm": 64, "bn": 64, "bk": 32, "warps": 8}, {"bm": 128, "bn": 128, "bk": 16, "warps": 8},
    {"bm": 32, "bn": 64, "bk": 32, "warps": 4}, {"bm": 64, "bn": 32, "bk": 32, "warps": 4},
    {"bm": 32, "bn": 32, "bk": 64, "warps": 4}, {"bm": 128, "bn": 32, "bk": 16, "warps": 4},
    {"bm": 32, "bn": 128, "bk": 16, "warps": 4}, {"bm": 64, "bn": 64, "bk": 16, "warps": 8},
    {"bm": 128, "bn": 64, "bk": 32, "warps": 8}, {"bm": 64, "bn": 128, "bk": 32, "warps": 8},
)  # fmt: skip
BLOCKS = (512, 1024, 2048, 8192, 16384, 256)


def variants(half: int) -> list[Entry]:
    """Honest candidates in other tiles and blocks, no two with the same text: half 0 or half 1 of them, 36 each."""
    found = [
        Entry(
            problem,
            "correct",
            HEADER + GEMM.substitute(after=after or "pass", **tile) + "\n\n" + model,
        )
        for tile in TILES[half::2]
        for problem, (after, model, _, _) in MODELS.items()
    ]
    for block in BLOCKS[half::2]:
        found.append(
            Entry("1/19", "correct", HEADER + RELU.format(broken="").replace("4096", str(block)))
        )
        found.append(
            Entry("1/23", "correct", HEADER + SOFTMAX.format(wrong="").replace("8192", str(block)))
        )
    return found


def mixed(honest: list[Entry]) -> list[Entry]:
    """Makes as many candidates again of the same texts: in turns one that is wrong and one that does not compile."""
    found = list(honest)
    for number, one in enumerate(honest):
        kind, before, after = (
            ("wrong", "tl.program_id(0)", "((tl.num_programs(0) - 1 - tl.program_id(0)) // 2)")
            if number % 2
            else ("broken", "tl.program_id(0)", "tl.program_number(0)")
        )
        found.append(Entry(one.problem, kind, one.source.replace(before, after, 1)))
    return found


def entries() -> list[Entry]:
    """Twenty-four."""
    found: list[Entry] = []
    for problem, (after, model, wrong, broken) in MODELS.items():
        for kind, ending, tile in (
            ("correct", after, FAST),
            ("slow", after, SLOW),
            ("wrong", wrong, FAST),
            ("broken", broken, FAST),
        ):
            found.append(
                Entry(
                    problem,
                    kind,
                    HEADER + GEMM.substitute(after=ending or "pass", **tile) + "\n\n" + model,
                )
            )
    found += [
        Entry("1/19", "correct", HEADER + RELU.format(broken="")),
        Entry("1/19", "broken", HEADER + RELU.format(broken=", axis=0")),
    ]
    found += [
        Entry("1/23", "correct", HEADER + SOFTMAX.format(wrong="")),
        Entry("1/23", "wrong", HEADER + SOFTMAX.format(wrong=" * 1.5")),
    ]
    return found
