# problem: global_avg_pool
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def plane_mean_kernel(x_ptr, out_ptr, pixels, BLOCK: tl.constexpr):
    plane = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, pixels, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + plane * pixels + offsets, mask=offsets < pixels, other=0.0).to(tl.float32)
    tl.store(out_ptr + plane, (tl.sum(total, axis=0) / pixels).to(out_ptr.dtype.element_ty))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        batch, channels, height, width = x.shape
        out = torch.empty((batch, channels), device=x.device, dtype=x.dtype)
        block = min(triton.next_power_of_2(height * width), 1024)
        plane_mean_kernel[(batch * channels,)](x, out, height * width, BLOCK=block, num_warps=4)
        return out
