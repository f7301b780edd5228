# problem: row_logsumexp
# needs: cpu
# odd: a running maximum and a running sum in a device function with two results
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def carried(top, total, values):
    new = tl.maximum(top, tl.max(values, axis=0))
    safe = tl.where(new == -float("inf"), 0.0, new)
    return new, total * tl.exp(top - safe) + tl.sum(tl.exp(values - safe), axis=0)


@triton.jit
def logsumexp_kernel(x, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top, total = -float("inf"), 0.0
    for start in range(0, columns, BLOCK):
        i = start + tl.arange(0, BLOCK)
        top, total = carried(top, total, tl.load(x + row * columns + i, mask=i < columns, other=-float("inf")))
    infinite = tl.abs(top) == float("inf")
    tl.store(out + row, tl.where(infinite, top, top + tl.log(total)))


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape[:-1], dtype=x.dtype, device=x.device)
        logsumexp_kernel[(out.numel(),)](x, out, x.shape[-1], BLOCK=512)
        return out
