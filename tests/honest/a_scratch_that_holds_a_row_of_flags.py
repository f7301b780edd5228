# problem: problems/row_sums.py
# needs: cpu
# odd: a workspace kept in the module whose tickets go back to zero at the end of each call
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x, partial, tickets, out, columns, blocks, BLOCK: tl.constexpr, MOST: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + row.to(tl.int64) * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(partial + row * blocks + block, tl.sum(values, axis=0))
    if tl.atomic_add(tickets + row, 1, sem="acq_rel") == blocks - 1:
        lanes = tl.arange(0, MOST)
        tl.store(out + row, tl.sum(tl.load(partial + row * blocks + lanes, mask=lanes < blocks, other=0.0), axis=0))
        tl.atomic_xchg(tickets + row, 0)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self._workspace = {}

    def forward(self, x):
        rows, columns = x.shape
        blocks = triton.cdiv(columns, 64)
        key = (rows, blocks, x.device)
        if key not in self._workspace:
            self._workspace[key] = (
                torch.empty((rows, blocks), device=x.device),
                torch.zeros(rows, device=x.device, dtype=torch.int32),
            )
        partial, tickets = self._workspace[key]
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        sum_kernel[(rows, blocks)](
            x, partial, tickets, out, columns, blocks, BLOCK=64, MOST=triton.next_power_of_2(blocks)
        )
        return out
