# problem: problems/joined_parts.py
# needs: cpu
# odd: forward takes tensors inside of a list, a tuple and a dictionary
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def place(x, left, right, out, factor, columns, begin, width, BLOCK: tl.constexpr):
    row, at = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + row * columns + at, mask=at < columns)
    value = value * tl.load(left + row) + tl.load(right + row) * factor
    tl.store(out + row * width + begin + at, value, mask=at < columns)


class ModelNew(nn.Module):
    def forward(self, parts, scales, factor):
        first, (second, third) = parts
        all_parts = [first, second, third]
        rows, width = first.shape[0], sum(p.shape[1] for p in all_parts)
        out = torch.empty(rows, width, device=first.device, dtype=first.dtype)
        begin = 0
        for part in all_parts:
            columns = part.shape[1]
            place[(rows, triton.cdiv(columns, 256))](
                part, scales["left"], scales["right"], out, factor, columns, begin, width, BLOCK=256
            )
            begin += columns
        return out
