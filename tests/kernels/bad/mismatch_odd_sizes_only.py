# problem: matvec
# fault: mismatch
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matvec_kernel(a_ptr, x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Right where columns is a multiple of the block, short of the tail everywhere else."""
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for block in range(0, columns // BLOCK):
        offsets = block * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(a_ptr + row * columns + offsets) * tl.load(x_ptr + offsets)
    tl.store(out_ptr + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, a, x):
        rows, columns = a.shape
        out = torch.empty((rows,), device=a.device)
        matvec_kernel[(rows,)](a, x, out, columns, BLOCK=32, num_warps=1)
        return out
