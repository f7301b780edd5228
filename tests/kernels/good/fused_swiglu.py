# problem: fused_swiglu
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(x_ptr, out_ptr, columns, x_stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    gate = tl.load(x_ptr + row * x_stride + offsets, mask=mask).to(tl.float32)
    value = tl.load(x_ptr + row * x_stride + columns + offsets, mask=mask).to(tl.float32)
    out = gate * tl.sigmoid(gate) * value
    tl.store(out_ptr + row * columns + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.stride(-1) != 1:
            x = x.contiguous()
        rows, columns = x.shape[0], x.shape[1] // 2
        out = torch.empty((rows, columns), device=x.device, dtype=x.dtype)
        swiglu_kernel[(rows, triton.cdiv(columns, 1024))](x, out, columns, x.stride(0), BLOCK=1024)
        return out
