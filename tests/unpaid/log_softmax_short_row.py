# problem: log_softmax
# why: Sizes: the row's number in 16 bits. Wrong: rows > 32768.
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int16).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
    x = x - tl.max(x, axis=0)
    tl.store(out_ptr + row * columns + offsets, x - tl.log(tl.sum(tl.exp(x), axis=0)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty_like(x)
        kernel[(rows,)](x, out, columns, BLOCK=triton.next_power_of_2(columns))
        return out
