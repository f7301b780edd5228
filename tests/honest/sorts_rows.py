# problem: problems/sorted_rows.py
# needs: cpu
# odd: tl.sort over a padded row
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sort_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=float("inf"))
    tl.store(out_ptr + row * columns + offsets, tl.sort(x), mask=offsets < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        sort_kernel[(x.shape[0],)](x, out, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
