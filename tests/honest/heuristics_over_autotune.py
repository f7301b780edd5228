# problem: fused_softmax
# needs: cpu
# odd: heuristics and autotune round one kernel, with a key of two and values of its own
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({}, num_warps=warps, num_stages=1) for warps in (2, 4)],
    key=["rows", "columns"],
)
@triton.heuristics(
    {
        "BLOCK": lambda args: triton.next_power_of_2(args["columns"]),
        "EVEN": lambda args: args["columns"] % 16 == 0,
    }
)
@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, columns, EVEN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    offsets = tl.arange(0, BLOCK)
    if EVEN:
        offsets = tl.max_contiguous(tl.multiple_of(offsets, 16), 16)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf"))
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + offsets, x / tl.sum(x, axis=0), mask=offsets < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        softmax_kernel[lambda meta: (x.shape[0],)](x, out, *x.shape)
        return out
