# problem: row_max
# needs: cpu
# odd: a config's pre_hook fills the output before each launch
import torch
import torch.nn as nn
import triton
import triton.language as tl


def lowest(named, *_, **__):
    named["out_ptr"].fill_(-float("inf"))


@triton.autotune(
    configs=[triton.Config({"BLOCK": 256}, pre_hook=lowest), triton.Config({"BLOCK": 1024}, pre_hook=lowest)],
    key=["columns"],
)
@triton.jit
def max_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_max(
        out_ptr + row,
        tl.max(tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=-float("inf")), axis=0),
    )


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        max_kernel[lambda meta: (triton.cdiv(columns, meta["BLOCK"]), rows)](x, out, columns)
        return out
