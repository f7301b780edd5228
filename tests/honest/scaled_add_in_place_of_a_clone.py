# problem: problems/scaled_add_of_matrices.py
# needs: cpu
# odd: one input is cloned, and the kernel updates the clone where it lies
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _update(out, x, offsets, rows, columns, s0, s1, x0, x1, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    for start in tl.range(0, columns, BLOCK, num_stages=2):
        c = start + tl.arange(0, BLOCK)
        mask = c < columns
        place = out + row * s0 + c * s1
        v = tl.load(place, mask=mask)
        v += tl.load(x + row * x0 + c * x1, mask=mask) * 0.75
        v += tl.load(offsets + c, mask=mask)
        tl.store(place, v, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, y, offsets):
        out = y.clone(memory_format=torch.contiguous_format)
        _update[(x.shape[0],)](out, x, offsets, *x.shape, *out.stride(), *x.stride(), BLOCK=256)
        return out
