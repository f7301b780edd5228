# problem: problems/norm_with_weights.py
# needs: cpu
# odd: an autograd.Function with forward and backward kernels under custom_fwd; only forward is called
import torch
import torch.nn as nn
import triton
import triton.language as tl


import functools
from typing import Optional, Tuple


def ensure_contiguous(fn):
    @functools.wraps(fn)
    def wrapper(ctx, *args, **kwargs):
        def maybe_to_contiguous(x):
            return x.contiguous() if isinstance(x, torch.Tensor) else x

        args = [maybe_to_contiguous(arg) for arg in args]
        kwargs = {k: maybe_to_contiguous(v) for k, v in kwargs.items()}
        return fn(ctx, *args, **kwargs)

    return wrapper


def calculate_settings(n: int) -> Tuple[int, int]:
    BLOCK_SIZE = triton.next_power_of_2(n)
    if BLOCK_SIZE > 65536:
        raise RuntimeError(
            f"Cannot launch Triton kernel since n = {n} exceeds the recommended Triton blocksize = {65536}."
        )
    num_warps = 4
    if BLOCK_SIZE >= 32768:
        num_warps = 32 if not torch.version.hip else 16
    elif BLOCK_SIZE >= 8192:
        num_warps = 16
    elif BLOCK_SIZE >= 2048:
        num_warps = 8
    return BLOCK_SIZE, num_warps


@triton.jit
def _forward_kernel(
    Y_ptr, Y_row_stride, X_ptr, X_row_stride, W_ptr, B_ptr, Mean_ptr, RSTD_ptr, n_cols, eps, BLOCK_SIZE: tl.constexpr
):
    row_idx = tl.program_id(0).to(tl.int64)
    col_offsets = tl.arange(0, BLOCK_SIZE)
    mask = col_offsets < n_cols
    row_X_ptr = X_ptr + row_idx * X_row_stride
    X_row = tl.load(row_X_ptr + col_offsets, mask=mask, other=0.0)
    W_row = tl.load(W_ptr + col_offsets, mask=mask, other=0.0)
    B_row = tl.load(B_ptr + col_offsets, mask=mask, other=0.0)
    X_f32 = X_row.to(tl.float32)
    mean = tl.sum(X_f32, axis=0) / n_cols
    X_centered = X_f32 - mean
    X_centered_masked = tl.where(mask, X_centered, 0.0)
    var = tl.sum(X_centered_masked * X_centered_masked, axis=0) / n_cols
    rstd = tl.rsqrt(var + eps)
    tl.store(Mean_ptr + row_idx, mean)
    tl.store(RSTD_ptr + row_idx, rstd)
    Y_f32 = X_centered * rstd * W_row.to(tl.float32) + B_row.to(tl.float32)
    tl.store(Y_ptr + row_idx * Y_row_stride + col_offsets, Y_f32.to(X_row.dtype), mask=mask)


@triton.jit
def _backward_kernel(DY, X, W, Mean, RSTD, DX, n_cols, BLOCK_SIZE: tl.constexpr, dtype: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK_SIZE)
    mask = cols < n_cols
    dy = tl.load(DY + row * n_cols + cols, mask=mask, other=0.0).to(dtype)
    x = tl.load(X + row * n_cols + cols, mask=mask, other=0.0)
    w = tl.load(W + cols, mask=mask, other=0.0)
    x_hat = (x - tl.load(Mean + row)) * tl.load(RSTD + row)
    wdy = w * dy
    c1 = tl.sum(x_hat * wdy) / n_cols
    c2 = tl.sum(wdy) / n_cols
    tl.store(DX + row * n_cols + cols, (wdy - (x_hat * c1 + c2)) * tl.load(RSTD + row), mask=mask)


class LayerNormFunction(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")
    @ensure_contiguous
    def forward(ctx, X, W, B, eps):
        shape = X.shape
        dim = shape[-1]
        X = X.view(-1, dim)
        n_rows, n_cols = X.shape
        BLOCK_SIZE, num_warps = calculate_settings(n_cols)
        Y = torch.empty((n_rows, n_cols), dtype=X.dtype, device=X.device)
        Mean = torch.empty(n_rows, dtype=X.dtype, device=X.device)
        RSTD = torch.empty(n_rows, dtype=X.dtype, device=X.device)
        if X.shape[1] != W.shape[0]:
            raise ValueError("Incompatible dimensions")
        _forward_kernel[(n_rows,)](
            Y, Y.stride(0), X, X.stride(0), W, B, Mean, RSTD, n_cols, eps, BLOCK_SIZE=BLOCK_SIZE, num_warps=num_warps
        )
        ctx.save_for_backward(X, W, B, Mean, RSTD)
        ctx.BLOCK_SIZE = BLOCK_SIZE
        ctx.num_warps = num_warps
        return Y.view(*shape)

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")
    @ensure_contiguous
    def backward(ctx, dY):
        X, W, B, Mean, RSTD = ctx.saved_tensors
        DX = torch.empty_like(X)
        _backward_kernel[(X.shape[0],)](
            dY, X, W, Mean, RSTD, DX, X.shape[1], BLOCK_SIZE=ctx.BLOCK_SIZE, dtype=tl.float32
        )
        return DX, None, None, None


class ModelNew(nn.Module):
    def __init__(self, hidden_size, eps=1e-5, bias: Optional[bool] = True, init_fn="ones"):
        super().__init__()
        assert init_fn in ["ones", "zeros"]
        self.hidden_size = hidden_size
        self.weight = nn.Parameter(torch.ones(hidden_size) if init_fn == "ones" else torch.zeros(hidden_size))
        self.bias = nn.Parameter(torch.randn(hidden_size) if bias else torch.zeros(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        return LayerNormFunction.apply(hidden_states, self.weight, self.bias, self.variance_epsilon)

    def extra_repr(self):
        return f"{self.hidden_size}, eps={self.variance_epsilon}"
