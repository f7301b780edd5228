# problem: fused_silu
# needs: cpu
# odd: two heuristics: one skips the mask where blocks are whole, one picks the warps
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.heuristics(
    {"EVEN": lambda args: args["n"] % args["BLOCK"] == 0, "num_warps": lambda args: 8 if args["n"] > 1 << 20 else 4}
)
@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(x_ptr + offsets)
        tl.store(out_ptr + offsets, x * tl.sigmoid(x))
    else:
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0)
        tl.store(out_ptr + offsets, x * tl.sigmoid(x), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        n = x.numel()
        silu_kernel[(triton.cdiv(n, 1024),)](x, out, n, BLOCK=1024)
        return out
