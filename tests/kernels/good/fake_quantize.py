# problem: fake_quantize
# odd: called jit function
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def round_half_to_even(x):
    low = tl.floor(x)
    part = x - low
    odd = low - 2.0 * tl.floor(low * 0.5)
    up = (part > 0.5) | ((part == 0.5) & (odd == 1.0))
    return tl.where(up, low + 1.0, low)


@triton.jit
def fake_quantize_kernel(x_ptr, out_ptr, n, step, zero_point, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
    steps = round_half_to_even(x / step) + zero_point
    steps = tl.minimum(tl.maximum(steps, -128.0), 127.0)
    tl.store(out_ptr + offsets, ((steps - zero_point) * step).to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, step: float, zero_point: float):
        super().__init__()
        self.step = step
        self.zero_point = zero_point

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        out = torch.empty_like(x)
        n = x.numel()
        fake_quantize_kernel[(triton.cdiv(n, 1024),)](x, out, n, self.step, self.zero_point, BLOCK=1024)
        return out
