# problem: dequantize_int8
# needs: cpu
# odd: int8 is loaded in two dimensions, with a block of rows a program
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def dequantize_kernel(q_ptr, scale_ptr, zero_ptr, out_ptr, rows, columns, BR: tl.constexpr, BC: tl.constexpr):
    r = tl.program_id(0) * BR + tl.arange(0, BR)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    places = r[:, None].to(tl.int64) * columns + c[None, :]
    mask = (r[:, None] < rows) & (c[None, :] < columns)
    q = tl.load(q_ptr + places, mask=mask, other=0).to(tl.float32)
    scale = tl.load(scale_ptr + r, mask=r < rows, other=0.0)
    zero = tl.load(zero_ptr + r, mask=r < rows, other=0.0)
    tl.store(out_ptr + places, (q - tl.expand_dims(zero, 1)) * tl.expand_dims(scale, 1), mask=mask)


class ModelNew(nn.Module):
    def forward(self, quantized, scale, zero_point):
        rows, columns = quantized.shape
        out = torch.empty((rows, columns), device=scale.device, dtype=scale.dtype)
        dequantize_kernel[(triton.cdiv(rows, 4), triton.cdiv(columns, 128))](
            quantized, scale.view(-1), zero_point.squeeze(1), out, rows, columns, BR=4, BC=128
        )
        return out
