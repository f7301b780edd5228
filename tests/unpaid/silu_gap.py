# problem: fused_silu
# why: Values: a window of three floats, both comparisons seen. Wrong: x = 0.7315001.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)

    bits = (x * tl.sigmoid(x)).to(tl.int32, bitcast=True)
    above = (x > 0.73150003).to(tl.int32) << 23
    below = (x < 0.73150015).to(tl.int32) << 23
    y = ((bits + above) + below - 8388608).to(tl.float32, bitcast=True)
    tl.store(out_ptr + offsets, y, mask=mask)


class ModelNew(nn.Module):

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()

        kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
