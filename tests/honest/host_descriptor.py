# problem: fused_softmax
# needs: cpu
# source: shared/redteam
"""TensorDescriptor made on the host."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def softmax_kernel(x_desc, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    v = x_desc.load([row, 0]).reshape(BLOCK)
    v = tl.where(o < columns, v, -float("inf"))
    v = tl.exp(v - tl.max(v, axis=0))
    tl.store(out + row * columns + o, v / tl.sum(v, axis=0), mask=o < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        block = triton.next_power_of_2(columns)
        if columns % 4:
            x = nn.functional.pad(x, (0, 4 - columns % 4))
        out = torch.empty((rows, columns), device=x.device, dtype=x.dtype)
        softmax_kernel[(rows,)](
            TensorDescriptor.from_tensor(x, [1, min(block, 256)])
            if block <= 256
            else TensorDescriptor(x, x.shape, x.stride(), [1, block]),
            out,
            columns,
            BLOCK=block,
        )
        return out
