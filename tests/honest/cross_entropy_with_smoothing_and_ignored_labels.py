# problem: problems/smoothed_cross_entropy.py
# needs: cpu
# odd: counts the labels that are not ignored in a kernel, and divides in the last one
import torch
import torch.nn as nn
import triton
import triton.language as tl


MAX_FUSED_SIZE = 65536 // 2


@triton.jit
def liger_like_cross_entropy_kernel(
    X_ptr,
    X_stride,
    Y_ptr,
    Y_stride,
    loss_ptr,
    count_ptr,
    n_cols,
    ignore_index: tl.constexpr,
    label_smoothing: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    program_id = tl.program_id(0).to(tl.int64)
    Y_ptr += program_id * Y_stride
    y = tl.load(Y_ptr)
    X_ptr += program_id * X_stride
    if y == ignore_index:
        tl.store(loss_ptr + program_id, 0.0)
        tl.store(count_ptr + program_id, 0)
        return
    m = float("-inf")
    d = 0.0
    scaled_x_sum = 0.0
    eps = label_smoothing / n_cols
    for i in range(0, n_cols, BLOCK_SIZE):
        X_offsets = i + tl.arange(0, BLOCK_SIZE)
        X_block = tl.load(X_ptr + X_offsets, mask=X_offsets < n_cols, other=float("-inf")).cast(tl.float32)
        block_max = tl.max(X_block)
        scaled_x_sum += tl.sum(tl.where(X_offsets < n_cols, -eps * X_block, 0.0))
        m_new = tl.maximum(m, block_max)
        d = d * tl.exp(m - m_new) + tl.sum(tl.exp(X_block - m_new))
        m = m_new
    lse = m + tl.log(d)
    x_y = tl.load(X_ptr + y).cast(tl.float32)
    loss = lse - x_y
    smooth = scaled_x_sum + label_smoothing * lse
    loss = loss * (1 - label_smoothing) + smooth
    tl.store(loss_ptr + program_id, loss)
    tl.store(count_ptr + program_id, 1)


@triton.jit
def mean_kernel(loss_ptr, count_ptr, out_ptr, n, BLOCK: tl.constexpr):
    total = tl.zeros([BLOCK], dtype=tl.float32)
    count = tl.zeros([BLOCK], dtype=tl.int32)
    for i in range(0, n, BLOCK):
        offs = i + tl.arange(0, BLOCK)
        total += tl.load(loss_ptr + offs, mask=offs < n, other=0.0)
        count += tl.load(count_ptr + offs, mask=offs < n, other=0)
    tl.store(out_ptr, tl.sum(total) / tl.sum(count).to(tl.float32))


class ModelNew(nn.Module):
    def __init__(self, ignore_index=3, label_smoothing=0.1, reduction="mean"):
        super().__init__()
        assert 0 <= label_smoothing <= 1, f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing}"
        assert reduction in {"mean", "sum", "none"}
        self.ignore_index, self.label_smoothing = ignore_index, label_smoothing

    def forward(self, _input, target):
        BT, V = _input.shape
        BLOCK_SIZE = min(MAX_FUSED_SIZE, triton.next_power_of_2(V))
        loss_1d = torch.zeros(BT, dtype=_input.dtype, device=_input.device)
        counts = torch.zeros(BT, dtype=torch.int32, device=_input.device)
        if _input.stride(-1) != 1:
            _input = _input.contiguous()
        if target.stride(-1) != 1:
            target = target.contiguous()
        liger_like_cross_entropy_kernel[(BT,)](
            X_ptr=_input,
            X_stride=_input.stride(-2),
            Y_ptr=target,
            Y_stride=target.stride(-1),
            loss_ptr=loss_1d,
            count_ptr=counts,
            n_cols=V,
            ignore_index=self.ignore_index,
            label_smoothing=self.label_smoothing,
            BLOCK_SIZE=BLOCK_SIZE,
            num_warps=4 if not torch.version.hip else 16,
        )
        out = torch.empty((), dtype=_input.dtype, device=_input.device)
        mean_kernel[(1,)](loss_1d, counts, out, BT, BLOCK=1024)
        return out
