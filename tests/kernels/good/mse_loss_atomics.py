# problem: mse_loss
# odd: atomics into a scalar of zero
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_squared_error_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """A grid that strides over the tensor, so that there are few atomics."""
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for block in range(tl.program_id(0), tl.cdiv(n, BLOCK), tl.num_programs(0)):
        offsets = block * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + offsets, mask=mask, other=0.0).to(tl.float32)
        total += (x - y) * (x - y)
    tl.atomic_add(out_ptr, tl.sum(total, axis=0) / n)


class ModelNew(nn.Module):
    def forward(self, predictions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        predictions, targets = predictions.contiguous(), targets.contiguous()
        n = predictions.numel()
        out = torch.zeros((), dtype=torch.float32, device=predictions.device)
        grid = (min(triton.cdiv(n, 2048), 1056),)
        mean_squared_error_kernel[grid](predictions, targets, out, n, BLOCK=2048, num_warps=8)
        return out
