# problem: matvec
# fault: precision
# pattern: rounding
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matvec_kernel(a_ptr, x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Products are taken in fp16 for speed."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        a = tl.load(a_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float16)
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float16)
        total += (a * x).to(tl.float32)
    tl.store(out_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, a, x):
        rows, columns = a.shape
        out = torch.empty((rows,), device=a.device)
        matvec_kernel[(rows,)](a, x, out, columns, BLOCK=1024, num_warps=4)
        return out
