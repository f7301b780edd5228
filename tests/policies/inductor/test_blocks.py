"""Block sizes of element-wise kernels over two axes."""

from __future__ import annotations

import ast

import pytest

from kernelwright.policies.inductor.writing.blocks import block_sizes
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
