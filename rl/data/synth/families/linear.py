"""nn.Linear with bias and chain in the same kernel, then up to two kernels on its rows or
columns.
"""

from __future__ import annotations

from kernelwright.rl.data.synth.blocks.chain import draw_steps
from kernelwright.rl.data.synth.engine.following import append_parts, draw_parts
from kernelwright.rl.data.synth.engine.program import DrawnProgram, finish_program
from kernelwright.rl.data.synth.engine.sketch import Sketch
from kernelwright.rl.data.synth.families.matmul import DrawnProduct, product_kernel

BIAS_FLAG_SHARE = 0.15
"""Share of training layers whose bias depends on an argument of the model."""


def linear(sketch: Sketch, depth: int) -> DrawnProgram:
    """Draws linear -> chain -> (softmax, norm or reduction -> chain), twice at most."""
    sketch.family = "linear"
    sketch.reserved |= {"bias"}
    first, *later = draw_parts(sketch, depth)
    layer, bias = _layer(sketch)
    steps = draw_steps(sketch, first - 1, channels=sketch.shape[-1], tensors=False, binary=0.25)
    sizes = [f"(M, K), N = x.shape, self.{layer}.out_features"]
    product = DrawnProduct(
        "x", f"self.{layer}.weight", b_strides=("1", "K"), bias=f"self.{layer}.bias" if bias else "",
        name="linear_kernel", sizes=sizes,
    )  # fmt: skip
    product_kernel(sketch, product, steps)
    append_parts(sketch, 0, later)
    return finish_program(sketch)


def _layer(sketch: Sketch) -> tuple[str, bool]:
    """Draws the layer; returns its name, and whether it has a bias."""
    batch = sketch.size("batch_size", (128, 1024, 4096), (5, 17))
    name_in, name_out = sketch.pick(
        (
            ("in_features", "out_features"),
            ("in_features", "out_features"),
            ("input_size", "hidden_size"),
        )
    )
    sketch.size(name_in, (512, 1024, 4096, 8192), (33, 40))
    sketch.size(name_out, (512, 1024, 4096, 8192), (66, 37))
    sketch.argument(name_in, name_in, keep=False)
    sketch.argument(name_out, name_out, keep=False)
    sketch.input("x", (batch, name_in))
    bias = sketch.chance(0.8)
    name = sketch.pick(("linear", "linear", "gemm", "fc", "matmul"))
    bias_argument = "" if bias else ", bias=False"
    if sketch.wild and sketch.chance(BIAS_FLAG_SHARE):
        sketch.argument("bias", str(bias), keep=False)
        sketch.defaults["bias"] = "True"
        bias_argument = ", bias=bias"
    sketch.module(name, f"nn.Linear({name_in}, {name_out}{bias_argument})")
    sketch.reference.append(f"x = self.{name}(x)")
    sketch.ops.append("linear" if bias else "linear_no_bias")
    sketch.shape = (batch, name_out)
    return name, bias
