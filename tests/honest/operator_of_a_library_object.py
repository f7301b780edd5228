# problem: fused_silu
# needs: cpu
# odd: an operator that torch.library.Library defines, with an implementation and a form without data
import torch
import torch.nn as nn
import triton
import triton.language as tl


library = torch.library.Library("own_silu", "DEF")
library.define("silu(Tensor x, float scale=1.0) -> Tensor")


@triton.jit
def silu_kernel(x, out, scale, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n).to(tl.float32)
    tl.store(out + o, (v * tl.sigmoid(v) * scale).to(out.dtype.element_ty), mask=o < n)


def on_device(x, scale=1.0):
    out = torch.empty_like(x)
    silu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, scale, x.numel(), BLOCK=1024)
    return out


library.impl("silu", on_device, "CUDA")


@torch.library.register_fake("own_silu::silu")
def without_data(x, scale=1.0):
    return torch.empty_like(x)


class ModelNew(nn.Module):
    def forward(self, x):
        return torch.ops.own_silu.silu(x)
