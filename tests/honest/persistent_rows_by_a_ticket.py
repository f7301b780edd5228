# problem: row_max
# needs: cpu
# odd: persistent programs draw the next row from a counter by atomic_add
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def max_kernel(x_ptr, out_ptr, ticket_ptr, rows, columns, BLOCK: tl.constexpr):
    row = tl.atomic_add(ticket_ptr, 1)
    while row < rows:
        best = tl.full((BLOCK,), float("-inf"), tl.float32)
        for start in range(0, columns, BLOCK):
            offsets = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=float("-inf"))
            best = tl.maximum(best, x, propagate_nan=tl.PropagateNan.ALL)
        found = tl.reduce(best, 0, larger)
        tl.store(out_ptr + row, found)
        row = tl.atomic_add(ticket_ptr, 1)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty(rows, device=x.device, dtype=x.dtype)
        ticket = torch.zeros(1, device=x.device, dtype=torch.int32)
        programs = min(rows, 4 * torch.cuda.get_device_properties(x.device).multi_processor_count)
        max_kernel[(programs,)](x, out, ticket, rows, columns, BLOCK=256)
        return out
