# problem: problems/deep_in_dicts.py
# needs: cpu
# odd: outputs in a dict of dicts of lists of tuples, all views of one buffer
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, out_ptr, n, first, BLOCK: tl.constexpr):
    part = tl.program_id(1)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    added = tl.where(part == 3, -1.0, (part + 1).to(tl.float32))
    tl.store(out_ptr + part.to(tl.int64) * n + offsets, x + added, mask=offsets < n)


class ModelNew(nn.Module):
    def forward(self, x):
        out = x.new_empty(4, *x.shape)
        add_kernel[(triton.cdiv(x.numel(), 512), 4)](x, out, x.numel(), 1, BLOCK=512)
        a, b, c, d = out.unbind()
        return {"one": {"up": [a, (b, {"last": c})]}, "two": (), "three": [d]}
