# problem: cumsum
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def cumsum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    carried = 0.0
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
        running = tl.cumsum(x, axis=0) + carried
        tl.store(out_ptr + row * columns + offsets, running.to(out_ptr.dtype.element_ty), mask=mask)
        carried += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty_like(x)
        block = min(triton.next_power_of_2(columns), 2048)
        cumsum_kernel[(rows,)](x, out, columns, BLOCK=block, num_warps=4)
        return out
