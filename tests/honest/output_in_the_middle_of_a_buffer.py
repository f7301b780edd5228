# problem: fused_gelu
# needs: cpu
# odd: the output is the middle of a wider buffer, whose edges nobody writes
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x_ptr, out_ptr, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    y = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    tl.store(out_ptr + row * stride + offsets, y, mask=offsets < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.reshape(-1, x.shape[-1]).shape
        out = torch.empty(rows + 2, columns + 8, device=x.device, dtype=x.dtype)[1:-1, 3 : 3 + columns]
        gelu_kernel[(rows, triton.cdiv(columns, 512))](x, out, columns, out.stride(0), BLOCK=512)
        return out.unflatten(0, x.shape[:-1])
