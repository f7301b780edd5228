# problem: max_pool1d
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def max_pool1d_kernel(
    x_ptr, out_ptr, length, out_length,
    KERNEL: tl.constexpr, STRIDE: tl.constexpr, PADDING: tl.constexpr, BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    out = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for tap in tl.static_range(KERNEL):
        place = out * STRIDE + tap - PADDING
        inside = (place >= 0) & (place < length)
        best = tl.maximum(best, tl.load(x_ptr + row * length + place, mask=inside, other=-float("inf")).to(tl.float32))
    tl.store(out_ptr + row * out_length + out, best.to(out_ptr.dtype.element_ty), mask=out < out_length)


class ModelNew(nn.Module):
    def __init__(self, kernel_size: int, stride: int, padding: int):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, length = x.shape
        out_length = (length + 2 * self.padding - self.kernel_size) // self.stride + 1
        out = torch.empty((batch, channels, out_length), device=x.device, dtype=x.dtype)
        max_pool1d_kernel[(batch * channels, triton.cdiv(out_length, 1024))](
            x, out, length, out_length,
            KERNEL=self.kernel_size, STRIDE=self.stride, PADDING=self.padding, BLOCK=1024, num_warps=4,
        )
        return out
