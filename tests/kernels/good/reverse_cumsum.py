# problem: reverse_cumsum
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def reverse_cumsum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    """Blocks from the last to the first; what lies right of a block is carried into it."""
    row = tl.program_id(0).to(tl.int64)
    blocks = tl.cdiv(columns, BLOCK)
    carried = 0.0
    for back in range(blocks):
        offsets = (blocks - 1 - back) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
        running = tl.cumsum(x, axis=0, reverse=True) + carried
        tl.store(out_ptr + row * columns + offsets, running.to(out_ptr.dtype.element_ty), mask=mask)
        carried += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty_like(x)
        block = min(triton.next_power_of_2(columns), 2048)
        reverse_cumsum_kernel[(rows,)](x, out, columns, BLOCK=block, num_warps=4)
        return out
