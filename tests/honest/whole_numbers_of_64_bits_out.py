# problem: problems/larger_places.py
# needs: cpu
# odd: outputs of int64, counted by a scan of booleans
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def count_kernel(x_ptr, total_ptr, running_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    before = tl.zeros((), dtype=tl.int64)
    for begin in range(0, columns, BLOCK):
        offsets = begin + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
        positive = (x > 0).to(tl.int64)
        tl.store(running_ptr + row * columns + offsets, before + tl.cumsum(positive, 0), mask=offsets < columns)
        before += tl.sum(positive, 0)
    tl.store(total_ptr + row, before)


class ModelNew(nn.Module):
    def forward(self, x):
        total = torch.empty(x.shape[0], dtype=torch.int64, device=x.device)
        running = torch.empty(x.shape, dtype=torch.int64, device=x.device)
        count_kernel[(x.shape[0],)](x, total, running, x.shape[1], BLOCK=128)
        return total, running
