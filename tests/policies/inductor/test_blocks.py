"""Block sizes of element-wise kernels over two axes, and of reductions that hold whole rows."""

from __future__ import annotations

import ast

import pytest

from kernelwright.policies.inductor.writing.blocks import block_sizes, choose_warps
from kernelwright.policies.inductor.writing.kernels import LoweredKernel

TEXT = """
def kernel(in_ptr0, out_ptr0, ynumel, xnumel, YBLOCK, XBLOCK):
    y0 = yindex
    x1 = xindex
    tmp0 = tl.load(in_ptr0 + ({place}), xmask & ymask)
    tl.store(out_ptr0 + (x1 + xnumel * y0), tmp0, xmask & ymask)
"""


@pytest.mark.parametrize(
    ("place", "columns", "wanted"),
    [("y0 + ynumel * x1", 4096, {"YBLOCK": 32, "XBLOCK": 32}),
     ("x1 + y0 + ks0 * y0", 4096, {"YBLOCK": 1, "XBLOCK": 1024}),
     ("2 * x1 + 9 * y0", 4096, {"YBLOCK": 1, "XBLOCK": 1024}), ("2 * x1 + 9 * y0", 16, {"YBLOCK": 64, "XBLOCK": 16})],
)  # fmt: skip
def test_a_block_has_many_rows_only_where_rows_lie_side_by_side(place, columns, wanted):
    function = ast.parse(TEXT.format(place=place)).body[0]
    kernel = LoweredKernel(
        original="triton_poi_fused_0", name="copy_kernel", function=function, helpers=[], kind="pointwise", dot=False,
        persistent=False, operators=("clone",), hints={"X": columns, "Y": 4096}, inner=False, grid="Grid2D",
    )  # fmt: skip
    assert block_sizes(kernel) == wanted


@pytest.mark.parametrize(
    ("rows", "depth", "rows_of_a_block", "warps"),
    [(8192, 1024, 1, 1), (8192, 512, 2, 1), (64, 1024, 1, 4), (8192, 64, 16, 4)],
)
def test_one_warp_holds_a_row_where_there_are_many_rows(rows, depth, rows_of_a_block, warps):
    text = f"def kernel(p, xnumel, XBLOCK):\n    R0_BLOCK: tl.constexpr = {depth}\n    tl.load(p)\n"
    kernel = LoweredKernel(
        original="triton_per_fused_0", name="norm_row_kernel", function=ast.parse(text).body[0], helpers=[],
        kind="reduction", dot=False, persistent=True, operators=("var_mean",), hints={"X": rows, "R0": depth},
        inner=True, grid="Grid1D",
    )  # fmt: skip
    sizes = block_sizes(kernel)
    assert sizes == {"XBLOCK": rows_of_a_block}
    assert choose_warps(kernel, sizes) == warps
