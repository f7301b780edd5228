# problem: problems/scaled_add_of_matrices.py
# needs: cpu
# odd: an expanded row (stride zero) and a transposed matrix are given to one kernel by their strides; scalar keyword
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _axpy_kernel(
    x,
    y,
    z,
    out,
    rows,
    columns,
    sx0,
    sx1,
    sy0,
    sy1,
    sz0,
    sz1,
    so0,
    so1,
    alpha,
    R: tl.constexpr,
    C: tl.constexpr,
):
    r = tl.program_id(1) * R + tl.arange(0, R)[:, None]
    c = tl.program_id(0) * C + tl.arange(0, C)[None, :]
    mask = (r < rows) & (c < columns)
    vx = tl.load(x + r * sx0 + c * sx1, mask)
    vy = tl.load(y + r * sy0 + c * sy1, mask)
    vz = tl.load(z + r * sz0 + c * sz1, mask)
    tl.store(out + r * so0 + c * so1, alpha * vx + vy + vz, mask)


class ModelNew(nn.Module):
    alpha = 0.75

    def forward(self, x, y, offsets):
        spread = offsets[None].expand(x.shape)
        out = torch.empty_like(x)
        grid = lambda meta: (triton.cdiv(x.shape[1], meta["C"]), triton.cdiv(x.shape[0], meta["R"]))
        _axpy_kernel[grid](
            x,
            y,
            spread,
            out,
            *x.shape,
            *x.stride(),
            *y.stride(),
            *spread.stride(),
            *out.stride(),
            alpha=self.alpha,
            R=32,
            C=32,
        )
        return out
