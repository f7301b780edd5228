# problem: in_place_accumulate
# needs: cpu
# odd: autotune with restore_value round an in-place kernel
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": 512}), triton.Config({"BLOCK": 1024}, num_warps=8)],
    key=["n"],
    restore_value=["total_ptr"],
)
@triton.jit
def accumulate_kernel(total_ptr, x_ptr, decay, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(total_ptr + offsets, mask=mask)
    tl.store(total_ptr + offsets, total * decay + tl.load(x_ptr + offsets, mask=mask), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, decay):
        super().__init__()
        self.decay = decay

    def forward(self, total, x):
        accumulate_kernel[lambda meta: (triton.cdiv(total.numel(), meta["BLOCK"]),)](
            total, x, self.decay, total.numel()
        )
        return total
