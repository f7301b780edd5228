"""Products without tiles: a matrix and a vector, a diagonal, and combined halves of a tensor
(gated units).
"""

from __future__ import annotations

from kernelwright.rl.data.synth.blocks.axes import ROW_AXIS, AxisKernel
from kernelwright.rl.data.synth.blocks.chain import ChainNeeds, ChainSite, draw_steps, kernel_lines
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program, kernel
from kernelwright.rl.data.synth.engine.sketch import Sketch
from kernelwright.rl.data.synth.engine.tensors import start

GATES = (
    ("silu", "F.silu({g})", "gate * tl.sigmoid(gate)"),
    ("gelu", "F.gelu({g})", "0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))"),
    ("sigmoid", "torch.sigmoid({g})", "tl.sigmoid(gate)"),
    ("tanh", "torch.tanh({g})", "libdevice.tanh(gate)"),
    ("relu", "torch.relu({g})", "tl.maximum(gate, 0.0)"),
)


def matvec(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws a matrix and a vector (or a diagonal and a matrix) -> chain."""
    sketch.family = "matmul"
    return _diagonal(sketch, depth) if sketch.chance(0.35) else _vector(sketch, depth)


def _vector(sketch: Sketch, depth: int) -> DrawnProgram:
    a, b = sketch.pick((("A", "B"), ("A", "x"), ("matrix", "vector")))
    rows = sketch.size("M", (256, 2048, 8192), (5, 17))
    columns = sketch.size("K", (131072, 65536, 16384), (67, 1100))
    flat = sketch.chance(0.4)
    sketch.input(a, (rows, columns))
    sketch.input(b, (columns,) if flat else (columns, "1"))
    sketch.reference.append("x = " + sketch.pick((f"torch.matmul({a}, {b})", f"{a} @ {b}")))
    sketch.ops.append("matvec" if flat else "matvec_column")
    sketch.shape = (rows,) if flat else (rows, "1")
    steps = draw_steps(sketch, depth - 1, tensors=False, binary=0)
    walk = AxisKernel(sketch, ROW_AXIS, [])
    walk.extra.parameters.append("v_ptr")
    walk.extra.values.append(b)
    walk.accumulator("acc", "0.0")
    walk.each("acc += x * tl.load(v_ptr + cols, mask=mask, other=0.0)")
    walk.at("y = tl.sum(acc, axis=0)")
    walk.after(steps, "y")
    walk.store_reduced("y")
    sketch.current = a
    walk.launch("matvec_kernel", sketch.target(), "rows" if flat else "(rows, 1)")
    return finish_program(sketch)


def _diagonal(sketch: Sketch, depth: int) -> DrawnProgram:
    a, b = sketch.pick((("A", "B"), ("d", "X"), ("diagonal", "matrix")))
    rows = sketch.size("N", (2048, 4096), (5, 17))
    columns = sketch.size("M", (2048, 4096, 16384), (67, 45))
    sketch.input(a, (rows,))
    sketch.input(b, (rows, columns))
    sketch.reference.append(
        "x = " + sketch.pick((f"torch.diag({a}) @ {b}", f"torch.matmul(torch.diag({a}), {b})"))
    )
    sketch.ops.append("diagonal_matmul")
    sketch.shape = (rows, columns)
    steps = draw_steps(sketch, depth - 1, tensors=False, binary=0)
    extra = ChainNeeds()
    tail = kernel_lines(sketch, steps, ChainSite("x", "offs", "mask"), extra)
    body = [
        "    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "    mask = offs < n",
        "    d = tl.load(d_ptr + offs // columns, mask=mask)",
        "    x = tl.load(x_ptr + offs, mask=mask) * d",
        *tail,
        "    tl.store(out_ptr + offs, x, mask=mask)",
    ]
    sketch.kernels.append(
        kernel(
            "diagonal_kernel",
            ["d_ptr", "x_ptr", *extra.parameters, "out_ptr", "n", "columns", "BLOCK"],
            body,
        )
    )
    sketch.host += [
        f"out = torch.empty_like({b})",
        f"n = {b}.numel()",
        f"diagonal_kernel[(triton.cdiv(n, 1024),)]({', '.join([a, b, *extra.values])}, out, n, "
        f"{b}.shape[1], "
        "BLOCK=1024)",
    ]
    return finish_program(sketch)


def gated(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws the halves of the last axis: an activation of the first, times the second -> chain."""
    sketch.family = "elementwise"
    start(sketch, sketch.pick((2, 2, 3)))
    columns = sketch.shape[-1]
    shape = ", ".join((*sketch.shape[:-1], f"2 * {columns}"))
    sketch.inputs[0] = ("x", f"torch.randn({shape})")
    name, spelt, computed = sketch.pick(GATES)
    sketch.reference.append(
        sketch.pick(("gate, value = x.chunk(2, dim=-1)", "gate, value = torch.chunk(x, 2, dim=-1)"))
    )
    sketch.reference.append(f"x = {spelt.format(g='gate')} * value")
    sketch.ops.append(f"{name}_glu")
    steps = draw_steps(sketch, depth - 1, tensors=False, binary=0)
    extra = ChainNeeds()
    tail = kernel_lines(sketch, steps, ChainSite("x", "", "mask"), extra)
    body = [
        "    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)",
        "    mask = offs < n",
        "    first = offs // columns * 2 * columns + offs % columns",
        "    gate = tl.load(x_ptr + first, mask=mask)",
        "    value = tl.load(x_ptr + first + columns, mask=mask)",
        f"    x = {computed} * value",
        *tail,
        "    tl.store(out_ptr + offs, x, mask=mask)",
    ]
    sketch.kernels.append(
        kernel(
            "gated_kernel", ["x_ptr", *extra.parameters, "out_ptr", "n", "columns", "BLOCK"], body
        )
    )
    sketch.host += [
        "columns = x.shape[-1] // 2",
        "out = torch.empty((*x.shape[:-1], columns), device=x.device, dtype=x.dtype)",
        "n = out.numel()",
        f"gated_kernel[(triton.cdiv(n, 1024),)]({', '.join(['x', *extra.values])}, out, n, columns, BLOCK=1024)",
    ]
    return finish_program(sketch)
