# problem: fused_silu
# needs: cpu
# odd: flatten, narrow, unsqueeze and back: views that move nothing
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
    tl.store(out_ptr + offsets, x / (1.0 + tl.exp(-x)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        flat = x.unsqueeze(0).flatten()
        out = torch.empty_strided(flat.shape, (1,), dtype=x.dtype, device=x.device)
        half = flat.numel() // 2
        for start, length in ((0, half), (half, flat.numel() - half)):
            silu_kernel[(triton.cdiv(length, 512),)](
                flat.narrow(0, start, length), out.narrow(0, start, length), length, BLOCK=512
            )
        return out.unflatten(0, x.shape)
