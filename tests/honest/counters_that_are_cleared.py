# problem: row_sum
# needs: cpu
# odd: the last block of a row reduces: it is found by an atomic counter that the host clears
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def sum_kernel(x_ptr, partial_ptr, counter_ptr, out_ptr, columns, blocks, BLOCK: tl.constexpr, MOST: tl.constexpr):
    row, block = tl.program_id(0), tl.program_id(1)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    total = tl.sum(tl.load(x_ptr + row.to(tl.int64) * columns + offsets, mask=offsets < columns, other=0.0), axis=0)
    tl.store(partial_ptr + row * blocks + block, total)
    tl.debug_barrier()
    if tl.atomic_add(counter_ptr + row, 1, sem="acq_rel") == blocks - 1:
        lanes = tl.arange(0, MOST)
        parts = tl.load(partial_ptr + row * blocks + lanes, mask=lanes < blocks, other=0.0, volatile=True)
        tl.store(out_ptr + row, tl.sum(parts, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        blocks = triton.cdiv(columns, 512)
        partial = torch.empty((rows, blocks), device=x.device)
        counters = torch.zeros(rows, device=x.device, dtype=torch.int32)
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        sum_kernel[(rows, blocks)](
            x, partial, counters, out, columns, blocks, BLOCK=512, MOST=triton.next_power_of_2(blocks)
        )
        return out
