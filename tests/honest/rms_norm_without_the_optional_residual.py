# problem: problems/rms_norm_alone.py
# needs: cpu
# odd: the reference is given None, the pointer is None, HAS_RESIDUAL is worked out by heuristics, the dtype of sums is a constexpr
import torch
import torch.nn as nn
import triton
import triton.language as tl


from typing import Optional


@triton.heuristics(
    {
        "HAS_RESIDUAL": lambda args: args["residual_ptr"] is not None,
        "BLOCK": lambda args: triton.next_power_of_2(args["n"]),
    }
)
@triton.jit(do_not_specialize=["eps"])
def fused_add_rms_norm_kernel(
    x_ptr,
    residual_ptr,
    w_ptr,
    out_ptr,
    sum_ptr,
    x_stride,
    n,
    eps,
    acc_dtype: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    m = cols < n
    x = tl.load(x_ptr + row * x_stride + cols, mask=m, other=0.0)
    if HAS_RESIDUAL:
        x += tl.load(residual_ptr + row * x_stride + cols, mask=m, other=0.0)
    tl.store(sum_ptr + row * x_stride + cols, x, mask=m)
    xf = x.to(acc_dtype)
    var = tl.sum(xf * xf, axis=0) / n
    inv = 1 / tl.sqrt_rn(var + eps)
    y = (xf * inv).to(x_ptr.dtype.element_ty) * tl.load(w_ptr + cols, mask=m)
    tl.store(out_ptr + row * x_stride + cols, y, mask=m)


class ModelNew(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.variance_epsilon = eps

    def forward(self, x: torch.Tensor, residual: Optional[torch.Tensor] = None):
        out, total = torch.empty_like(x), torch.empty_like(x)
        with torch.cuda.device(x.device.index):
            fused_add_rms_norm_kernel[(x.shape[0],)](
                x,
                residual,
                self.weight.data,
                out,
                total,
                x.stride(0),
                x.shape[1],
                self.variance_epsilon,
                acc_dtype=tl.float32,
            )
        return out, total
