# problem: smooth_l1_loss
# needs: cpu
# odd: device functions that return early by a constant, and several values
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def distance(a, b, KIND: tl.constexpr):
    """The loss of one pair, and the mask of where it is quadratic."""
    d = tl.abs(a - b)
    if KIND == "l2":
        return d * d, d >= 0
    near = d < 1.0
    return tl.where(near, 0.5 * d * d, d - 0.5), near


@triton.jit
def loss_kernel(a_ptr, b_ptr, partial_ptr, n, BLOCK: tl.constexpr):
    block = tl.program_id(0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    loss, near = distance(
        tl.load(a_ptr + offsets, mask=mask, other=0.0), tl.load(b_ptr + offsets, mask=mask, other=0.0), KIND="huber"
    )
    tl.store(partial_ptr + block, tl.sum(tl.where(mask, loss, 0.0), axis=0))


@triton.jit
def finish_kernel(partial_ptr, out_ptr, count, n, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, count, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(partial_ptr + offsets, mask=offsets < count, other=0.0)
    tl.store(out_ptr, tl.sum(total, axis=0) / n)


class ModelNew(nn.Module):
    def __init__(self, beta):
        super().__init__()
        assert beta == 1.0

    def forward(self, a, b):
        count = triton.cdiv(a.numel(), 1024)
        partial = torch.empty(count, device=a.device)
        out = torch.empty((), device=a.device)
        loss_kernel[(count,)](a, b, partial, a.numel(), BLOCK=1024)
        finish_kernel[(1,)](partial, out, count, a.numel(), BLOCK=1024)
        return out
