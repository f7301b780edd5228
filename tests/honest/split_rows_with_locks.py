# problem: row_sum
# needs: cpu
# odd: a row is summed in parts that meet under a spin lock made of compare-and-swap
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def parts_kernel(x_ptr, out_ptr, lock_ptr, columns, parts, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    part = tl.program_id(1)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(part * BLOCK, columns, parts * BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    mine = tl.sum(total, axis=0)
    while tl.atomic_cas(lock_ptr + row, 0, 1) == 1:
        pass
    tl.store(out_ptr + row, tl.load(out_ptr + row) + mine)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + row, 0)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.zeros(rows, device=x.device, dtype=torch.float32)
        locks = torch.zeros(rows, device=x.device, dtype=torch.int32)
        parts_kernel[(rows, 3)](x, out, locks, columns, 3, BLOCK=64)
        return out
