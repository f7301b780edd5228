# problem: problems/hadamard_of_rows.py
# needs: cpu
# odd: butterflies by reshape, split and join in a static loop
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _step(v, N: tl.constexpr, K: tl.constexpr):
    v = tl.reshape(v, (N // (2 * K), 2, K))
    v = tl.permute(v, (0, 2, 1))
    a, b = tl.split(v)
    v = tl.join(a + b, a - b)
    return tl.reshape(tl.permute(v, (0, 2, 1)), (N,))


@triton.jit
def _hadamard(x_ptr, signs_ptr, y_ptr, columns, N: tl.constexpr, LOG: tl.constexpr, SCALE: tl.constexpr):
    row, part = tl.program_id(0).to(tl.int64), tl.program_id(1)
    i = part * N + tl.arange(0, N)
    v = tl.load(x_ptr + row * columns + i) * tl.load(signs_ptr + i)
    for k in tl.static_range(LOG):
        v = _step(v, N, 2**k)
    tl.store(y_ptr + row * columns + i, v * SCALE)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        h = torch.ones(1, 1)
        while h.shape[0] < 64:
            h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)], 0)
        self.register_buffer("h", h / 8.0)

    def forward(self, x, signs):
        y = torch.empty_like(x)
        rows, columns = x.shape
        _hadamard[(rows, columns // 64)](x, signs, y, columns, N=64, LOG=6, SCALE=0.125)
        return y
