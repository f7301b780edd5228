"""Matrix products in every layout, each with a chain on a tile's values.

Tiles are visited in groups of rows, so the right operand stays in L2. fp32 uses three tf32
products (`tf32x3`): as exact as fp32 to the judge's tolerance, on tensor cores.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kernelwright.rl.data.synth.blocks.chain import (
    ChainNeeds,
    ChainSite,
    Step,
    draw_steps,
    kernel_lines,
)
from kernelwright.rl.data.synth.engine.following import append_parts, draw_parts
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program, kernel
from kernelwright.rl.data.synth.engine.sketch import Sketch

TILES = ((64, 64, 32, 4), (128, 64, 32, 8), (128, 128, 32, 8), (128, 128, 32, 8))
"""BLOCK_M, BLOCK_N, BLOCK_K, warps: 141, 135 and 207 registers a thread on sm_90, nothing
spilled.
"""

STRIDES = ("stride_am", "stride_ak", "stride_bk", "stride_bn")
STRIDED_SHARE = 0.2
"""Share of the products of two matrices whose kernel takes strides."""
FOLLOWED_SHARE = 0.5
"""Share of training's products of two matrices with a possible norm, softmax or reduction
afterwards; the other kernels are the product alone.
"""

GROUPED_ORDER_LINES = (
    "pid = tl.program_id(0)",
    "blocks_m = tl.cdiv(M, BLOCK_M)",
    "blocks_n = tl.cdiv(N, BLOCK_N)",
    "first = pid // (GROUP * blocks_n) * GROUP",
    "height = tl.minimum(blocks_m - first, GROUP)",
    "pid_m = first + pid % (GROUP * blocks_n) % height",
    "pid_n = pid % (GROUP * blocks_n) // height",
    "rows = (pid_m * BLOCK_M + tl.arange(0, BLOCK_M)).to(tl.int64)",
    "cols = (pid_n * BLOCK_N + tl.arange(0, BLOCK_N)).to(tl.int64)",
)


@dataclass
class DrawnProduct:
    """The operands and sizes of a product's kernel."""

    a: str
    """The host's variable of the left operand, (M, K) after strides."""
    b: str
    a_strides: tuple[str, str] = ("K", "1")
    """Strides of rows and of depth in the kernel: a size, 1, or `stride_am` and the like."""
    b_strides: tuple[str, str] = ("N", "1")
    """Strides of depth and of columns."""
    batch: bool = False
    bias: str = ""
    """Host expression of a vector of N numbers; empty for none."""
    name: str = "matmul_kernel"
    sizes: list[str] = field(default_factory=list)
    """Host lines that set M, N, K (and batch)."""
    shape: str = "(M, N)"
    strides: tuple[str, ...] = ()
    """Host expressions of the strides passed to the kernel, if any."""
    keep: str = ""
    """A condition on rows and cols outside of which the product is zero."""


def product_kernel(sketch: Sketch, product: DrawnProduct, steps: list[Step]) -> None:
    """Appends the kernel and its launch; the output becomes the sketch's current tensor."""
    extra = ChainNeeds()
    offsets = "rows[:, None] * N + cols[None, :]"
    if product.batch:
        offsets = f"batch * M * N + {offsets}"
    site = ChainSite("acc", offsets, "mask", "cols[None, :]", "cols[None, :] < N")
    tail = kernel_lines(sketch, steps, site, extra)
    body = [
        "    " + line
        for line in (*GROUPED_ORDER_LINES, *_batch_lines(product), *_loop(sketch, product))
    ]
    # Triangular products: elements outside the condition are zero.
    if product.keep:
        body.append(f"    acc = tl.where({product.keep}, acc, 0.0)")
    if product.bias:
        body.append(
            f"    acc += tl.load(bias_ptr + cols, mask=cols < N, other=0.0)[None, :]{sketch.cast}"
        )
    body += [*tail, f"    tl.store(out_ptr + {offsets}, acc, mask=mask)"]
    bias = ["bias_ptr"] if product.bias else []
    blocks = ["BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP"]
    strides = STRIDES if product.strides else ()
    parameters = [
        "a_ptr",
        "b_ptr",
        *bias,
        *extra.parameters,
        "out_ptr",
        "M",
        "N",
        "K",
        *strides,
        *blocks,
    ]
    sketch.kernels.append(kernel(product.name, parameters, body))
    _launch(sketch, product, extra)


def _batch_lines(product: DrawnProduct) -> list[str]:
    if not product.batch:
        return []
    return [
        "batch = tl.program_id(1).to(tl.int64)",
        "a_ptr += batch * M * K",
        "b_ptr += batch * K * N",
    ]


def _loop(sketch: Sketch, product: DrawnProduct) -> list[str]:
    a = f"a_ptr + {_term('rows[:, None]', product.a_strides[0])} + {_term('k[None, :]', product.a_strides[1])}"
    b = f"b_ptr + {_term('k[:, None]', product.b_strides[0])} + {_term('cols[None, :]', product.b_strides[1])}"
    # fp32 operands in three tf32 products; half precision needs no option.
    precision = "" if sketch.narrow else ', input_precision="tf32x3"'
    return [
        "acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)",
        "for start in range(0, K, BLOCK_K):",
        "    k = start + tl.arange(0, BLOCK_K)",
        f"    a = tl.load({a}, mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0)",
        f"    b = tl.load({b}, mask=(k[:, None] < K) & (cols[None, :] < N), other=0.0)",
        f"    acc = tl.dot(a, b, acc{precision})",
        "mask = (rows[:, None] < M) & (cols[None, :] < N)",
    ]


def _term(index: str, stride: str) -> str:
    return index if stride == "1" else f"{index} * {stride}"


def _launch(sketch: Sketch, product: DrawnProduct, extra: ChainNeeds) -> None:
    m, n, k, warps = sketch.pick(TILES)
    target = sketch.target()
    batch = ", batch" if product.batch else ","
    bias = [product.bias] if product.bias else []
    values = ", ".join(
        [product.a, product.b, *bias, *extra.values, target, "M", "N", "K", *product.strides]
    )
    sketch.host += [
        *product.sizes,
        f"{target} = torch.empty({product.shape}, device={product.a}.device, dtype={product.a}.dtype)",
        f"grid = (triton.cdiv(M, {m}) * triton.cdiv(N, {n}){batch})",
        f"{product.name}[grid]({values}, BLOCK_M={m}, BLOCK_N={n}, BLOCK_K={k}, GROUP=8, num_warps={warps})",
    ]
    sketch.current = target


# -------------------------------------------------------------- forms
SQUARE_SIDES = (1024, 2048, 4096)


def matmul(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws a product of two inputs in one of many forms -> chain."""
    sketch.family = "matmul"
    sketch.dtype = sketch.rng.choices(("float32", "float16", "bfloat16"), (8, 1, 1))[0]
    form = sketch.rng.choices(
        (_plain, _transposed, _batched, _three, _triangular), (3, 4, 2, 2, 1)
    )[0]
    product = form(sketch)
    if form in (_plain, _transposed, _triangular) and sketch.style.random() < STRIDED_SHARE:
        _strided(product)
    channels = "" if sketch.narrow else sketch.shape[-1]
    followed = (
        sketch.wild
        and not sketch.narrow
        and form in (_plain, _transposed)
        and sketch.chance(FOLLOWED_SHARE)
    )
    first, *later = draw_parts(sketch, depth) if followed else [depth]
    steps = draw_steps(sketch, first - 1, binary=0.2, channels=channels, tensors=True)
    product_kernel(sketch, product, steps)
    append_parts(sketch, 0, later)
    return finish_program(sketch)


def _strided(product: DrawnProduct) -> None:
    """Rewrites the product with the operands' strides as kernel arguments, for any view of them."""
    a, b = product.a, product.b
    depth, column = (0, 1) if product.b_strides[1] == "1" else (1, 0)
    row, along = (0, 1) if product.a_strides[1] == "1" else (1, 0)
    product.strides = (
        f"{a}.stride({row})",
        f"{a}.stride({along})",
        f"{b}.stride({depth})",
        f"{b}.stride({column})",
    )
    product.a_strides, product.b_strides = (STRIDES[0], STRIDES[1]), (STRIDES[2], STRIDES[3])


def _names(sketch: Sketch) -> tuple[str, str]:
    return sketch.pick((("A", "B"), ("A", "B"), ("a", "b"), ("x", "w")))


def _sides(sketch: Sketch) -> tuple[str, str, str]:
    """Draws M, K, N: square, long, thin or independent."""
    m, k, n = sketch.rng.choices(
        ((SQUARE_SIDES,) * 3, ((16384, 32768), (32, 64, 128), (16384,)), ((256, 512), (131072, 262144), (256,)),
        ((8205, 5000), (2949, 1111), (5921, 777)), ((32768,), (512, 1024), (16, 32, 64))),
        (5, 1, 1, 1, 1),
    )[0]  # fmt: skip
    names = sketch.pick((("M", "K", "N"), ("M", "K", "N"), ("m", "k", "n")))
    small = ((17, 33, 70), (35, 40, 65), (19, 37, 66))
    sizes = [
        sketch.size(name, full, cpu)
        for name, full, cpu in zip(names, (m, k, n), small, strict=True)
    ]
    return sizes[0], sizes[1], sizes[2]


def _statement(sketch: Sketch, a: str, b: str) -> None:
    sketch.reference.append(
        "x = " + sketch.pick((f"torch.matmul({a}, {b})", f"{a} @ {b}", f"torch.matmul({a}, {b})"))
    )
    sketch.ops.append("matmul")


def _plain(sketch: Sketch) -> DrawnProduct:
    (a, b), (m, k, n) = _names(sketch), _sides(sketch)
    sketch.input(a, (m, k))
    sketch.input(b, (k, n))
    _statement(sketch, a, b)
    sketch.shape = (m, n)
    return DrawnProduct(a, b, sizes=[f"(M, K), N = {a}.shape, {b}.shape[1]"])


def _transposed(sketch: Sketch) -> DrawnProduct:
    (a, b), (m, k, n) = _names(sketch), _sides(sketch)
    first, second = sketch.pick(((True, False), (False, True), (True, True)))
    sketch.input(a, (k, m) if first else (m, k))
    sketch.input(b, (n, k) if second else (k, n))
    turned = sketch.pick(("{}.T", "{}.T", "{}.t()", "{}.transpose(0, 1)"))
    _statement(sketch, turned.format(a) if first else a, turned.format(b) if second else b)
    sketch.ops[-1] = "matmul_" + "a" * first + "b" * second
    sketch.shape = (m, n)
    sizes = (
        f"(K, M), N = {a}.shape, {b}.shape[{0 if second else 1}]"
        if first
        else f"(M, K), N = {a}.shape, {b}.shape[0]"
    )
    return DrawnProduct(
        a,
        b,
        ("1", "M") if first else ("K", "1"),
        ("1", "K") if second else ("N", "1"),
        sizes=[sizes],
    )


def _batched(sketch: Sketch) -> DrawnProduct:
    a, b = _names(sketch)
    batch = sketch.size(sketch.pick(("batch_size", "batch_size", "B")), (16, 64, 128), (2, 3))
    m, k, n = _sides(sketch)
    for name in (m, k, n):
        sketch.sizes[name] = (sketch.pick((128, 256, 512, 1024)), sketch.sizes[name][1])
    first, second = sketch.pick(((False, False), (False, False), (False, True), (True, False)))
    sketch.input(a, (batch, k, m) if first else (batch, m, k))
    sketch.input(b, (batch, n, k) if second else (batch, k, n))
    turned = sketch.pick(("{}.transpose(1, 2)", "{}.transpose(-2, -1)"))
    sides = turned.format(a) if first else a, turned.format(b) if second else b
    sketch.reference.append(f"x = {sketch.pick(('torch.bmm', 'torch.matmul'))}({', '.join(sides)})")
    sketch.ops.append("bmm" + "_a" * first + "_b" * second)
    sketch.shape = (batch, m, n)
    sizes = f"batch, {'K, M' if first else 'M, K'} = {a}.shape"
    return DrawnProduct(
        a, b, ("1", "M") if first else ("K", "1"), ("1", "K") if second else ("N", "1"), batch=True,
        sizes=[sizes, f"N = {b}.shape[{1 if second else 2}]"], shape="(batch, M, N)",
    )  # fmt: skip


def _three(sketch: Sketch) -> DrawnProduct:
    """Draws (..., K) times (K, N): the leading axes are rows."""
    a, b = _names(sketch)
    is_batched = sketch.chance(0.4)
    names = (
        sketch.pick((("b", "i", "j", "l"), ("batch_size", "height", "width", "features")))
        if is_batched
        else sketch.pick((("N", "M", "K"), ("batch_size", "seq_len", "dim")))
    )
    full, cpu = ((8, 16), (128, 256), (64, 256), (256, 512)), ((2,), (3, 4), (5, 6), (33, 40))
    sides = [
        sketch.size(n, f, c)
        for n, f, c in zip(names, full[-len(names) :], cpu[-len(names) :], strict=True)
    ]
    last = sketch.size(
        sketch.pick(("L", "out_features", "dim_out")) if not is_batched else "k",
        (512, 768, 1024),
        (35, 66),
    )
    sketch.input(a, sides)
    sketch.input(b, (sides[-1], last))
    spellings = [f"torch.matmul({a}, {b})", f"{a} @ {b}"] + (
        [f'torch.einsum("bijl,lk->bijk", {a}, {b})'] if is_batched else []
    )
    sketch.reference.append("x = " + sketch.pick(spellings))
    sketch.ops.append(f"matmul_{len(sides)}d")
    sketch.shape = (*sides[:-1], last)
    sizes = [f"K, N = {b}.shape", f"M = {a}.numel() // K"]
    return DrawnProduct(a, b, sizes=sizes, shape=f"(*{a}.shape[:-1], N)")


def _triangular(sketch: Sketch) -> DrawnProduct:
    product = _plain(sketch)
    upper = sketch.chance(0.5)
    sketch.reference[-1] = (
        f"x = {'torch.triu' if upper else 'torch.tril'}({sketch.reference[-1].removeprefix('x = ')})"
    )
    sketch.ops.append("triu" if upper else "tril")
    product.keep = f"rows[:, None] {'<=' if upper else '>='} cols[None, :]"
    return product
