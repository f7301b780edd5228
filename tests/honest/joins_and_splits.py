# problem: fused_swiglu
# needs: cpu
# odd: tl.join, tl.split, reshape and permute within a kernel
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def swiglu_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lanes = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    halves = tl.arange(0, 2)
    mask = lanes < columns
    both = tl.load(
        x_ptr + row * 2 * columns + halves[:, None] * columns + lanes[None, :], mask=mask[None, :], other=0.0
    )
    gate, value = tl.split(tl.permute(both, (1, 0)))
    joined = tl.join(gate * tl.sigmoid(gate), value)
    gate, value = tl.split(joined)
    tl.store(out_ptr + row * columns + lanes, gate * value, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape[0], x.shape[1] // 2
        out = torch.empty((rows, columns), device=x.device, dtype=x.dtype)
        swiglu_kernel[(rows, triton.cdiv(columns, 256))](x, out, columns, BLOCK=256)
        return out
