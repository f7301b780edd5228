# problem: add_layer_norm
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def add_layer_norm_kernel(
    x_ptr, residual_ptr, weight_ptr, bias_ptr, out_ptr, total_ptr, columns, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0)
    total = x + tl.load(residual_ptr + row * columns + offsets, mask=mask, other=0.0)
    tl.store(total_ptr + row * columns + offsets, total, mask=mask)
    total = total.to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    centred = tl.where(mask, total - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + offsets, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + offsets, mask=mask).to(tl.float32)
    out = centred * scale * weight + bias
    tl.store(out_ptr + row * columns + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns: int):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x, residual = x.contiguous(), residual.contiguous()
        rows, columns = x.shape
        out, total = torch.empty_like(x), torch.empty_like(x)
        add_layer_norm_kernel[(rows,)](
            x, residual, self.norm.weight, self.norm.bias, out, total, columns, self.norm.eps,
            BLOCK=triton.next_power_of_2(columns), num_warps=8,
        )
        return out, total
