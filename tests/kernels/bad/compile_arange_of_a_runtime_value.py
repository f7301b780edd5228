# problem: row_sum
# fault: compile
# line: 13
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def row_sum_kernel(x_ptr, out_ptr, columns, block):
    row = tl.program_id(0)
    offsets = tl.arange(0, block)
    total = tl.sum(tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0), axis=0)
    tl.store(out_ptr + row, total)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((x.shape[0],), device=x.device)
        row_sum_kernel[(x.shape[0],)](x, out, x.shape[1], triton.next_power_of_2(x.shape[1]))
        return out
