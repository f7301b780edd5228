# problem: problems/cross_entropy_of_those_that_count.py
# needs: cpu
# odd: online log sum exp, losses and flags of those that count into scratch, one program for the quotient
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _rows(logits, labels, lse_ptr, loss_ptr, classes, stride, IGNORE: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    base = logits + row * stride
    m = float("-inf")
    total = 0.0
    for start in range(0, classes, BLOCK):
        c = start + tl.arange(0, BLOCK)
        v = tl.load(base + c, mask=c < classes, other=float("-inf")).to(tl.float32)
        new = tl.maximum(m, tl.max(v, axis=0))
        total = total * tl.exp(m - new) + tl.sum(tl.exp(v - new), axis=0)
        m = new
    lse = m + tl.log(total)
    tl.store(lse_ptr + row, lse)
    label = tl.load(labels + row)
    if label != IGNORE:
        tl.store(loss_ptr + row, lse - tl.load(base + label))
    else:
        tl.store(loss_ptr + row, 0.0)


@triton.jit
def _mean(loss_ptr, labels, out, rows, IGNORE: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    count = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, rows, BLOCK):
        r = start + tl.arange(0, BLOCK)
        total += tl.load(loss_ptr + r, mask=r < rows, other=0.0)
        count += (tl.load(labels + r, mask=r < rows, other=IGNORE) != IGNORE).to(tl.int32)
    tl.store(out, tl.sum(total, axis=0) / tl.sum(count, axis=0))


class ModelNew(nn.Module):
    def forward(self, logits, labels):
        rows, classes = logits.shape
        lse = torch.empty(rows, device=logits.device, dtype=logits.dtype)
        losses = torch.empty(rows, device=logits.device, dtype=torch.float32)
        out = torch.empty((), device=logits.device, dtype=logits.dtype)
        _rows[(rows,)](logits, labels, lse, losses, classes, logits.stride(0), IGNORE=-100, BLOCK=1024)
        _mean[(1,)](losses, labels, out, rows, IGNORE=-100, BLOCK=512)
        return out, lse
