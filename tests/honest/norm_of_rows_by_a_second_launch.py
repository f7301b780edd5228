# problem: layer_norm
# needs: cpu
# odd: moments of all rows by one kernel into a table of two columns, and a second kernel over flat elements
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def moments_kernel(x, table, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(x + row * columns + start + i, mask=start + i < columns, other=0.0)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        inside = start + i < columns
        off = tl.load(x + row * columns + start + i, mask=inside, other=0.0) - mean
        squares += tl.where(inside, off * off, 0.0)
    tl.store(table + 2 * row + tl.arange(0, 2), tl.join(mean, tl.sum(squares, axis=0) / columns))


@triton.jit
def scale_kernel(x, table, weight, bias, out, columns, n, eps, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    row, column = i // columns, i % columns
    mean = tl.load(table + 2 * row, mask=inside, other=0.0)
    variance = tl.load(table + 2 * row + 1, mask=inside, other=1.0)
    x_ = tl.load(x + i, mask=inside, other=0.0)
    w, b = tl.load(weight + column, mask=inside, other=0.0), tl.load(bias + column, mask=inside, other=0.0)
    tl.store(out + i, (x_ - mean) * tl.rsqrt(variance + eps) * w + b, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        rows, columns = x.shape
        table = torch.empty(rows, 2, dtype=torch.float32, device=x.device)
        out = torch.empty_like(x)
        moments_kernel[(rows,)](x, table, columns, BLOCK=256)
        n = x.numel()
        norm = self.norm
        scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](
            x, table, norm.weight, norm.bias, out, columns, n, norm.eps, BLOCK=1024
        )
        return out
