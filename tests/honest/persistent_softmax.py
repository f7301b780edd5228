# problem: fused_softmax
# needs: cpu
# source: shared/redteam
"""A persistent kernel: as many programs as SMs, each walks over rows with num_stages."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(
    out_ptr, in_ptr, in_stride, out_stride, n_rows, n_cols, BLOCK_SIZE: tl.constexpr, num_stages: tl.constexpr
):
    row_start = tl.program_id(0)
    row_step = tl.num_programs(0)
    for row_idx in tl.range(row_start, n_rows, row_step, num_stages=num_stages):
        col = tl.arange(0, BLOCK_SIZE)
        mask = col < n_cols
        row = tl.load(in_ptr + row_idx * in_stride + col, mask=mask, other=-float("inf"))
        num = tl.exp(row - tl.max(row, axis=0))
        tl.store(out_ptr + row_idx * out_stride + col, num / tl.sum(num, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        n_rows, n_cols = x.shape
        y = torch.empty_like(x)
        sms = torch.cuda.get_device_properties(x.device).multi_processor_count
        softmax_kernel[(min(sms * 4, n_rows), 1, 1)](
            y,
            x,
            x.stride(0),
            y.stride(0),
            n_rows,
            n_cols,
            BLOCK_SIZE=triton.next_power_of_2(n_cols),
            num_stages=2,
            num_warps=8,
        )
        return y
