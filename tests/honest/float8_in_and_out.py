# problem: problems/float8_scale.py
# needs: cpu
# odd: eight-bit floating-point numbers in and out
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x, s, out, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    for start in range(0, columns, BLOCK):
        m = start + c < columns
        v = tl.load(x + row * columns + start + c, mask=m, other=0.0).to(tl.float32)
        f = tl.load(s + row)
        tl.store(out + row * columns + start + c, (v * f).to(tl.float8e4nv), mask=m)


class ModelNew(torch.nn.Module):
    def forward(self, x, s):
        out = torch.empty_like(x)
        scale_kernel[(x.shape[0],)](x, s, out, x.shape[1], BLOCK=256)
        return out
