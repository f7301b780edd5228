# problem: fused_softmax
# needs: cpu
# odd: running maximum and sum over blocks, then a second pass that is read backwards
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    x_ptr += tl.program_id(0).to(tl.int64) * columns
    out_ptr += tl.program_id(0).to(tl.int64) * columns
    top = float("-inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < columns, other=float("-inf"))
        new = tl.maximum(top, tl.max(x, axis=0, return_indices=False))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), axis=0)
        top = new
    for number in range(tl.cdiv(columns, BLOCK) - 1, -1, -1):
        offsets = number * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < columns, eviction_policy="evict_first")
        tl.store(out_ptr + offsets, tl.exp(x - top) / total, mask=offsets < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.size(), dtype=x.dtype, device=x.device)
        softmax_kernel[(len(x),)](x, out, x.size(-1), BLOCK=512)
        return out
