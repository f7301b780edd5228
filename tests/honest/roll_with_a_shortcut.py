# problem: problems/rolled_rows.py
# needs: cpu
# odd: where a roll is by whole rows, the input is given back and nothing is launched
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def roll_kernel(x, out, columns, shift, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    for start in range(0, columns, BLOCK):
        places = start + tl.arange(0, BLOCK)
        inside = places < columns
        values = tl.load(x + row * columns + (places + columns - shift) % columns, mask=inside)
        tl.store(out + row * columns + places, values, mask=inside)


class ModelNew(nn.Module):
    def forward(self, x):
        shift = 3 % x.shape[1]
        if shift == 0:
            return x.clone()
        out = torch.empty_like(x)
        roll_kernel[(x.shape[0],)](x, out, x.shape[1], shift, BLOCK=256)
        return out
