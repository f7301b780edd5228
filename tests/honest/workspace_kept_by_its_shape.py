# problem: row_sum
# needs: cpu
# odd: scratch memory is kept in a dictionary by shape, type and device, and used again
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def parts_kernel(x, parts, columns, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    row, split = tl.program_id(0), tl.program_id(1)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(split * BLOCK, columns, SPLITS * BLOCK):
        o = start + tl.arange(0, BLOCK)
        total += tl.load(x + row * columns + o, mask=o < columns, other=0.0)
    tl.store(parts + row * SPLITS + split, tl.sum(total, axis=0))


@triton.jit
def join_kernel(parts, out, SPLITS: tl.constexpr):
    row = tl.program_id(0)
    tl.store(out + row, tl.sum(tl.load(parts + row * SPLITS + tl.arange(0, SPLITS)), axis=0))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._workspaces = {}

    def workspace(self, shape, like):
        key = (tuple(shape), like.dtype, like.device)
        if key not in self._workspaces:
            self._workspaces[key] = torch.empty(shape, dtype=torch.float32, device=like.device)
        return self._workspaces[key]

    def forward(self, x):
        rows, columns = x.shape
        parts = self.workspace((rows, 4), x)
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        parts_kernel[(rows, 4)](x, parts, columns, SPLITS=4, BLOCK=256)
        join_kernel[(rows,)](parts, out, SPLITS=4)
        return out
