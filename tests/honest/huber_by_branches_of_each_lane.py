# problem: smooth_l1_loss
# needs: cpu
# odd: many comparisons of data: a sign, two thresholds, and a guard that nothing turns
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(p, t, partial, n, beta, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    live = at < n
    d = tl.load(p + at, mask=live, other=0.0) - tl.load(t + at, mask=live, other=0.0)
    size = tl.where(d < 0.0, -d, d)
    guard = tl.maximum(size, 1.0e-30)
    low = 0.5 * size * size / beta
    high = size - 0.5 * beta
    loss = tl.where(guard < beta, low, high)
    tl.store(partial + tl.program_id(0), tl.sum(tl.where(live, loss, 0.0)))


@triton.jit
def total(partial, out, count, n, BLOCK: tl.constexpr):
    acc = 0.0
    for start in range(0, count, BLOCK):
        at = start + tl.arange(0, BLOCK)
        acc += tl.sum(tl.load(partial + at, mask=at < count, other=0.0))
    tl.store(out, acc / n)


class ModelNew(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, predictions, targets):
        n = predictions.numel()
        count = triton.cdiv(n, 1024)
        partial = torch.empty(count, device=predictions.device)
        out = torch.empty((), device=predictions.device)
        kernel[(count,)](predictions, targets, partial, n, self.beta, BLOCK=1024)
        total[(1,)](partial, out, count, n, BLOCK=1024)
        return out
