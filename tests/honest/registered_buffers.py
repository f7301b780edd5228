# problem: problems/bias_from_a_buffer.py
# needs: cpu
# odd: buffers of the state, and one of its own that is not
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def affine_kernel(x_ptr, shift_ptr, scale_ptr, ones_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask) * tl.load(ones_ptr)
    y = (x + tl.load(shift_ptr + offsets, mask=mask)) * tl.load(scale_ptr + offsets, mask=mask)
    tl.store(out_ptr + row * columns + offsets, y, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.register_buffer("shift", torch.zeros(columns))
        self.register_buffer("scale", torch.ones(columns))
        self.register_buffer("ones", torch.ones(1), persistent=False)

    def forward(self, x):
        out = torch.empty_like(x)
        affine_kernel[(triton.cdiv(x.shape[1], 256), x.shape[0])](
            x, self.shift, self.scale, self.ones, out, x.shape[1], BLOCK=256
        )
        return out
