# problem: mse_loss
# needs: cpu
# odd: partial sums and the total live in one buffer; the loss is a 0-d view of its last element
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def partial_kernel(a_ptr, b_ptr, sums_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    d = tl.load(a_ptr + offsets, mask=mask, other=0.0) - tl.load(b_ptr + offsets, mask=mask, other=0.0)
    tl.store(sums_ptr + tl.program_id(0), tl.sum(d * d, axis=0))


@triton.jit
def total_kernel(sums_ptr, count, n, BLOCK: tl.constexpr):
    total = 0.0
    for start in range(0, count, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.sum(tl.load(sums_ptr + offsets, mask=offsets < count, other=0.0), axis=0)
    tl.store(sums_ptr + count, total / n)


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        n = predictions.numel()
        count = triton.cdiv(n, 512)
        sums = torch.empty(count + 1, device=predictions.device, dtype=torch.float32)
        partial_kernel[(count,)](predictions.contiguous(), targets.contiguous(), sums, n, BLOCK=512)
        total_kernel[(1,)](sums, count, n, BLOCK=1024)
        return sums[count].reshape(())
