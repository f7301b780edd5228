# problem: causal_softmax
# odd: a table that depends on the shape alone is made once by a kernel and kept
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def triangle_kernel(mask_ptr, length, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    penalty = tl.where(offsets <= row, 0.0, -float("inf"))
    tl.store(mask_ptr + row.to(tl.int64) * length + offsets, penalty, mask=offsets < length)


@triton.jit
def masked_softmax_kernel(x_ptr, mask_ptr, out_ptr, length, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    inside = offsets < length
    x = tl.load(x_ptr + row * length + offsets, mask=inside, other=-float("inf")).to(tl.float32)
    x += tl.load(mask_ptr + (row % length) * length + offsets, mask=inside, other=0.0)
    numerator = tl.exp(x - tl.max(x, axis=0))
    out = numerator / tl.sum(numerator, axis=0)
    tl.store(out_ptr + row * length + offsets, out.to(out_ptr.dtype.element_ty), mask=inside)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.triangles = {}

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.contiguous()
        matrices, length, _ = scores.shape
        block = triton.next_power_of_2(length)
        if length not in self.triangles:
            self.triangles[length] = torch.empty((length, length), device=scores.device, dtype=torch.float32)
            triangle_kernel[(length,)](self.triangles[length], length, BLOCK=block)
        out = torch.empty_like(scores)
        masked_softmax_kernel[(matrices * length,)](scores, self.triangles[length], out, length, BLOCK=block)
        return out
