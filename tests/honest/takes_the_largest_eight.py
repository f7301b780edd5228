# problem: problems/largest_eight.py
# needs: cpu
# odd: tl.topk
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def top_kernel(x_ptr, out_ptr, columns, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
    tl.store(out_ptr + row * K + tl.arange(0, K), tl.topk(x, K))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((x.shape[0], 8), device=x.device, dtype=x.dtype)
        top_kernel[(x.shape[0],)](x, out, x.shape[1], K=8, BLOCK=triton.next_power_of_2(x.shape[1]))
        return out
