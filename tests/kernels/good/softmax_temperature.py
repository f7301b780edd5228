# problem: softmax_temperature
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, inverse_temperature, BLOCK: tl.constexpr):
    """Online softmax: running maximum and sum over the blocks of a row, then a second pass that writes."""
    row = tl.program_id(0).to(tl.int64)
    maximum = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf")).to(tl.float32)
        x *= inverse_temperature
        new_maximum = tl.maximum(maximum, tl.max(x, axis=0))
        total = total * tl.exp(maximum - new_maximum) + tl.sum(tl.exp(x - new_maximum), axis=0)
        maximum = new_maximum
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32) * inverse_temperature
        tl.store(out_ptr + row * columns + offsets, (tl.exp(x - maximum) / total).to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, temperature: float):
        super().__init__()
        self.temperature = temperature

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty_like(x)
        block = min(triton.next_power_of_2(columns), 8192)
        softmax_kernel[(rows,)](x, out, columns, 1.0 / self.temperature, BLOCK=block, num_warps=8)
        return out
