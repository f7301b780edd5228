# problem: row_sum
# needs: cpu
# odd: autotune with reset_to_zero, early_config_prune and atomics
import torch
import torch.nn as nn
import triton
import triton.language as tl


def fitting(configs, named, **_):
    """Configurations whose block is not four times wider than the row."""
    return [c for c in configs if c.kwargs["BLOCK"] <= 4 * named["columns"]] or configs[:1]


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 64}, num_warps=2),
        triton.Config({"BLOCK": 512}, num_warps=4),
        triton.Config({"BLOCK": 2048}, num_warps=8),
    ],
    key=["columns"],
    reset_to_zero=["out_ptr"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def sum_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(
        out_ptr + row,
        tl.sum(tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0), axis=0),
        sem="relaxed",
    )


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.zeros(rows, device=x.device, dtype=x.dtype)
        sum_kernel[lambda meta: (rows, triton.cdiv(columns, meta["BLOCK"]))](x, out, columns)
        return out
