# problem: row_max
# why: Triton: a hint that the row length is a multiple of 16. Wrong: on a GPU: a row length that is no multiple of 4 (wide loads are misaligned, masks are taken from one lane).
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    columns = tl.multiple_of(columns, 16)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        best = tl.maximum(best, tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf")))
    tl.store(out_ptr + row, tl.max(best, axis=0))


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty((rows,), dtype=x.dtype, device=x.device)
        kernel[(rows,)](x, out, columns, BLOCK=min(triton.next_power_of_2(columns), 1024))
        return out
