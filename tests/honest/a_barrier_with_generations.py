# problem: problems/row_sums.py
# needs: cpu
# odd: a workspace whose counter only grows: each call waits for its own generation
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, partial, counter, out, rows, columns, blocks, BLOCK: tl.constexpr, MOST: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + row.to(tl.int64) * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(partial + row * blocks + block, tl.sum(values, axis=0))
    ticket = tl.atomic_add(counter + row, 1, sem="acq_rel")
    if ticket % blocks == blocks - 1:
        lanes = tl.arange(0, MOST)
        tl.store(out + row, tl.sum(tl.load(partial + row * blocks + lanes, mask=lanes < blocks, other=0.0), axis=0))


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.counter = None

    def forward(self, x):
        rows, columns = x.shape
        blocks = triton.cdiv(columns, 64)
        if self.counter is None or self.counter.numel() != rows:
            self.counter = torch.zeros(rows, device=x.device, dtype=torch.int32)
        partial = torch.empty((rows, blocks), device=x.device)
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        sum_kernel[(rows, blocks)](
            x, partial, self.counter, out, rows, columns, blocks, BLOCK=64, MOST=triton.next_power_of_2(blocks)
        )
        return out
