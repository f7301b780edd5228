# problem: cumsum
# needs: cpu
# odd: two launches: sums of blocks, then scans with the sums before them; scratch from new_zeros
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def block_sums_kernel(x_ptr, sums_ptr, columns, blocks, BLOCK: tl.constexpr):
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    tl.store(
        sums_ptr + row * blocks + block,
        tl.sum(tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0), axis=0),
    )


@triton.jit
def scan_kernel(x_ptr, sums_ptr, out_ptr, columns, blocks, BLOCK: tl.constexpr, MOST: tl.constexpr):
    row, block = tl.program_id(0).to(tl.int64), tl.program_id(1)
    lanes = tl.arange(0, MOST)
    before = tl.sum(tl.load(sums_ptr + row * blocks + lanes, mask=lanes < block, other=0.0), axis=0)
    offsets = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0)
    tl.store(out_ptr + row * columns + offsets, before + tl.cumsum(x, axis=0), mask=offsets < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        blocks = triton.cdiv(columns, 256)
        sums = x.new_zeros((rows, blocks))
        out = torch.empty_like(x)
        block_sums_kernel[(rows, blocks)](x, sums, columns, blocks, BLOCK=256)
        scan_kernel[(rows, blocks)](x, sums, out, columns, blocks, BLOCK=256, MOST=triton.next_power_of_2(blocks))
        return out
