# problem: problems/in_unsigned_words.py
# needs: cpu
# odd: the output's type is uint16, for which torch computes next to nothing
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def words_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    whole = tl.minimum((tl.abs(x) * 1000.0).to(tl.int32), 65535)
    tl.store(out_ptr + offsets, whole.to(tl.uint16), mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape, device=x.device, dtype=torch.uint16)
        words_kernel[(triton.cdiv(x.numel(), 512),)](x, out, x.numel(), BLOCK=512)
        return out
