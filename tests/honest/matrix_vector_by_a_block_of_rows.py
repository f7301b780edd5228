# problem: matvec
# needs: cpu
# odd: a block of rows of the matrix against the vector, the sum in two dimensions kept to the end
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matvec_kernel(a, v, out, rows, columns, R: tl.constexpr, C: tl.constexpr):
    r = tl.program_id(0) * R + tl.arange(0, R)
    total = tl.zeros((R, C), tl.float32)
    for start in tl.range(0, columns, C, num_stages=2):
        c = start + tl.arange(0, C)
        inside = (r[:, None] < rows) & (c[None, :] < columns)
        block = tl.load(a + r[:, None].to(tl.int64) * columns + c[None, :], mask=inside, other=0.0)
        total = tl.fma(
            block, tl.load(v + c, mask=c < columns, other=0.0)[None, :] + tl.zeros((R, C), tl.float32), total
        )
    tl.store(out + r, tl.sum(total, axis=1), mask=r < rows)


class ModelNew(nn.Module):
    def forward(self, *given):
        a, v = given
        out = torch.empty((a.shape[0], *v.shape[1:]), dtype=a.dtype, device=a.device)
        matvec_kernel[(triton.cdiv(a.shape[0], 16),)](a, v, out, a.shape[0], a.shape[1], R=16, C=64)
        return out
