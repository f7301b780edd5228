# problem: mse_loss
# needs: cpu
# odd: partial sums in a scratch tensor, added by one program of the same kernel launched again
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def squares_or_sum_kernel(a, b, out, n, scale, SQUARES: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    step = tl.num_programs(0) * BLOCK
    for start in range(tl.program_id(0) * BLOCK, n, step):
        i = start + tl.arange(0, BLOCK)
        values = tl.load(a + i, mask=i < n, other=0.0)
        if SQUARES:
            off = values - tl.load(b + i, mask=i < n, other=0.0)
            values = off * off
        total += values
    tl.store(out + tl.program_id(0), tl.sum(total, axis=0) * scale)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        n = predictions.numel()
        programs = min(64, triton.cdiv(n, 512))
        parts = torch.empty(programs, dtype=torch.float32, device=predictions.device)
        out = torch.empty((), dtype=predictions.dtype, device=predictions.device)
        squares_or_sum_kernel[(programs,)](predictions, targets, parts, n, 1.0, SQUARES=True, BLOCK=512)
        squares_or_sum_kernel[(1,)](parts, parts, out, programs, 1.0 / n, SQUARES=False, BLOCK=64)
        return out
