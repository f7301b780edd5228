# problem: fused_softmax
import torch
import torch.nn as nn
import triton
import triton.language as tl

ONE_BLOCK = 16384


@triton.jit
def softmax_row_kernel(x_ptr, out_ptr, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * x_stride + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    numerator = tl.exp(x - tl.max(x, axis=0))
    out = numerator / tl.sum(numerator, axis=0)
    tl.store(out_ptr + row * out_stride + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_long_row_kernel(x_ptr, out_ptr, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    """Two passes over a row that does not fit: running maximum and sum, then the division."""
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.arange(0, BLOCK)
    maximum = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + lanes
        x = tl.load(x_ptr + row * x_stride + offsets, mask=offsets < columns, other=-float("inf")).to(tl.float32)
        new_maximum = tl.maximum(maximum, x)
        seen = new_maximum > -float("inf")
        old_part = tl.where(maximum > -float("inf"), total * tl.exp(maximum - new_maximum), 0.0)
        total = tl.where(seen, old_part + tl.exp(x - new_maximum), 0.0)
        maximum = new_maximum
    row_maximum = tl.max(maximum, axis=0)
    row_total = tl.sum(tl.where(maximum > -float("inf"), total * tl.exp(maximum - row_maximum), 0.0), axis=0)
    for start in range(0, columns, BLOCK):
        offsets = start + lanes
        mask = offsets < columns
        x = tl.load(x_ptr + row * x_stride + offsets, mask=mask, other=-float("inf")).to(tl.float32)
        out = tl.exp(x - row_maximum) / row_total
        tl.store(out_ptr + row * out_stride + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.stride(-1) != 1:
            x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty((rows, columns), dtype=x.dtype, device=x.device)
        if columns <= ONE_BLOCK:
            block = triton.next_power_of_2(columns)
            warps = 4 if block <= 2048 else 8 if block <= 8192 else 16
            softmax_row_kernel[(rows,)](x, out, columns, x.stride(0), out.stride(0), BLOCK=block, num_warps=warps)
        else:
            softmax_long_row_kernel[(rows,)](x, out, columns, x.stride(0), out.stride(0), BLOCK=4096, num_warps=8)
        return out
