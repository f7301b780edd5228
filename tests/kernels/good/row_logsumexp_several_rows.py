# problem: row_logsumexp
# odd: a scalar condition on a block mask
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def logsumexp_kernel(x_ptr, out_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    """ROWS rows a program, one after the other; the last program has fewer."""
    offsets = tl.arange(0, BLOCK)
    for i in range(ROWS):
        row = tl.program_id(0).to(tl.int64) * ROWS + i
        inside = (offsets < columns) & (row < rows)
        x = tl.load(x_ptr + row * columns + offsets, mask=inside, other=-float("inf")).to(tl.float32)
        top = tl.max(x, axis=0)
        top = tl.where(row < rows, top, 0.0)
        out = top + tl.log(tl.sum(tl.exp(x - top), axis=0))
        tl.store(out_ptr + row, out.to(out_ptr.dtype.element_ty), mask=row < rows)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty((rows,), dtype=x.dtype, device=x.device)
        block = triton.next_power_of_2(columns)
        logsumexp_kernel[(triton.cdiv(rows, 2),)](x, out, rows, columns, ROWS=2, BLOCK=block, num_warps=8)
        return out
