# problem: row_logsumexp
# needs: cpu
# odd: triton.constexpr_function decides the block within the kernel
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.constexpr_function
def lanes(block):
    """Half of the block, at least 16."""
    return max(16, block // 2)


@triton.jit
def lse_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    WIDE: tl.constexpr = lanes(BLOCK)
    row = tl.program_id(0).to(tl.int64)
    top = tl.full((WIDE,), -float("inf"), dtype=tl.float32)
    for start in range(0, columns, WIDE):
        offsets = start + tl.arange(0, WIDE)
        top = tl.maximum(top, tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf")))
    highest = tl.max(top, axis=0)
    total = tl.zeros((WIDE,), dtype=tl.float32)
    for start in range(0, columns, WIDE):
        offsets = start + tl.arange(0, WIDE)
        x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
        total += tl.exp(x - highest)
    tl.store(out_ptr + row, highest + tl.log(tl.sum(total, axis=0)))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[0], device=x.device, dtype=x.dtype)
        lse_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=64)
        return out
