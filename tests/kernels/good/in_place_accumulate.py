# problem: in_place_accumulate
# odd: in place, as the reference is
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def accumulate_kernel(total_ptr, x_ptr, n, decay, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(total_ptr + offsets, mask=mask)
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(total_ptr + offsets, total * decay + x, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, decay: float):
        super().__init__()
        self.decay = decay

    def forward(self, total: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        n = total.numel()
        accumulate_kernel[(triton.cdiv(n, 1024),)](total, x.contiguous(), n, self.decay, BLOCK=1024)
        return total
