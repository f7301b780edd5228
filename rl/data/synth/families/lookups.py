"""Rows looked up by index, and int8 quantisation: the families excluded from training."""

from __future__ import annotations

from kernelwright.rl.data.synth.blocks.chain import ChainNeeds, ChainSite, draw_steps, kernel_lines
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program, kernel
from kernelwright.rl.data.synth.engine.sketch import Sketch


def embedding(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws rows of a table or of an input by index -> chain."""
    sketch.family = "embedding"
    columns = sketch.size(
        sketch.pick(("embedding_dim", "dim", "columns")), (512, 768, 1024), (67, 45)
    )
    rows = sketch.size(
        sketch.pick(("num_embeddings", "vocab_size", "rows")), (32000, 50257), (53, 71)
    )
    batch = sketch.size("batch_size", (16, 32), (2, 3))
    length = sketch.size("seq_len", (512, 2048), (5, 7))
    layer = sketch.chance(0.6)
    if layer:
        name = sketch.pick(("embedding", "table", "embed"))
        sketch.argument(rows, rows, keep=False)
        sketch.argument(columns, columns, keep=False)
        sketch.module(name, f"nn.Embedding({rows}, {columns})")
        table = f"self.{name}.weight"
        sketch.reference.append(f"x = self.{name}(index)")
    else:
        table = "table"
        sketch.input("table", (rows, columns))
        sketch.reference.append(sketch.pick(("x = table[index]", "x = F.embedding(index, table)")))
    sketch.inputs.append(("index", f"torch.randint(0, {rows}, ({batch}, {length}))"))
    sketch.shape = (batch, length, columns)
    sketch.ops.append("embedding" if layer else "gather")
    steps = draw_steps(sketch, depth - 1, tensors=False, binary=0)
    extra = ChainNeeds()
    tail = kernel_lines(sketch, steps, ChainSite("x", "", "mask"), extra)
    body = [
        "    pick = tl.program_id(0).to(tl.int64)",
        "    row = tl.load(index_ptr + pick)",
        "    cols = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)",
        "    mask = cols < columns",
        "    x = tl.load(table_ptr + row * columns + cols, mask=mask)",
        *tail,
        "    tl.store(out_ptr + pick * columns + cols, x, mask=mask)",
    ]
    sketch.kernels.append(
        kernel(
            "gather_kernel",
            ["table_ptr", "index_ptr", *extra.parameters, "out_ptr", "columns", "BLOCK"],
            body,
        )
    )
    values = ", ".join([table, "index", *extra.values, "out", "columns"])
    sketch.host += [
        f"columns = {table}.shape[1]",
        f"out = torch.empty((*index.shape, columns), device=index.device, dtype={table}.dtype)",
        f"gather_kernel[(index.numel(), triton.cdiv(columns, 1024))]({values}, BLOCK=1024)",
    ]
    return finish_program(sketch)


def quantisation(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws int8 rows converted to fp32, or numbers rounded to a grid -> chain."""
    sketch.family = "quantisation"
    rows = sketch.size(sketch.pick(("rows", "batch_size")), (4096, 8192), (3, 5))
    columns = sketch.size(sketch.pick(("columns", "dim")), (4096, 8192), (67, 45))
    sketch.shape = (rows, columns)
    back = sketch.chance(0.5)
    pointers, lines, names = (_dequantise if back else _rounded)(sketch, rows, columns)
    steps = draw_steps(sketch, depth - 1, tensors=False, binary=0)
    extra = ChainNeeds()
    tail = kernel_lines(sketch, steps, ChainSite("x", "", "mask"), extra)
    body = [
        "    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "    mask = offs < n",
        *("    " + line for line in lines),
        *tail,
        "    tl.store(out_ptr + offs, x, mask=mask)",
    ]
    size = ["n", "columns"] if back else ["n"]
    sketch.kernels.append(
        kernel("quantise_kernel", [*pointers, *extra.parameters, "out_ptr", *size, "BLOCK"], body)
    )
    first = names[0]
    values = ", ".join(
        [*names, *extra.values, "out", "n", *([f"{first}.shape[1]"] if back else [])]
    )
    sketch.host += [
        f"out = torch.empty({first}.shape, device={first}.device)",
        f"n = {first}.numel()",
        f"quantise_kernel[(triton.cdiv(n, 1024),)]({values}, BLOCK=1024)",
    ]
    return finish_program(sketch)


def _dequantise(sketch: Sketch, rows: str, columns: str) -> tuple[list[str], list[str], list[str]]:
    sketch.inputs.append(("q", f"torch.randint(-128, 128, ({rows}, {columns}), dtype=torch.int8)"))
    sketch.inputs.append(("scale", f"0.01 + torch.rand({rows}, 1)"))
    sketch.reserved |= {"scale", "q"}
    zero = sketch.chance(0.4)
    sketch.reference.append(
        "x = (q.float() - 3.0) * scale" if zero else "x = q.to(torch.float32) * scale"
    )
    sketch.ops.append("dequantise_shifted" if zero else "dequantise")
    value = "(q - 3.0) * scale" if zero else "q * scale"
    lines = [
        "q = tl.load(q_ptr + offs, mask=mask).to(tl.float32)",
        "scale = tl.load(scale_ptr + offs // columns, mask=mask)",
        f"x = {value}",
    ]
    return ["q_ptr", "scale_ptr"], lines, ["q", "scale"]


def _rounded(sketch: Sketch, rows: str, columns: str) -> tuple[list[str], list[str], list[str]]:
    step = sketch.pick(("0.0625", "0.125", "0.03125"))
    sketch.input("x", (rows, columns), "torch.randn({shape}) * 4.0")
    sketch.reference.append(f"x = torch.clamp(torch.round(x / {step}), -128.0, 127.0) * {step}")
    sketch.ops.append("fake_quantise")
    lines = [
        "x = tl.load(x_ptr + offs, mask=mask)",
        f"x = tl.minimum(tl.maximum(libdevice.rint(x / {step}), -128.0), 127.0) * {step}",
    ]
    return ["x_ptr"], lines, ["x"]
