# Written by kernelwright 0.1.0, 2026-11-23 06:49:37.
# problem    fused_softmax (e836eb93e28ca2a8)
# policy     embedded
# candidate  1, turn 1, draft (8c51da4b683526ef), in /tmp/xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx/yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy/a.db
# verified   compiled for sm_90; right on a CPU, interpreted, at small sizes (rows 5, columns 67); not run on a GPU, and nothing is known of its speed
# judged by  evaluator d03de9a65132, torch 2.13.0+cpu, triton 3.9.0

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < columns
        x = tl.load(x_ptr + row * columns + cols, mask=mask, other=-float("inf"))
        new_top = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top), axis=0)
        top = new_top
    for start in range(0, columns, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < columns
        x = tl.load(x_ptr + row * columns + cols, mask=mask, other=-float("inf"))
        x = tl.exp(x - top) / total
        tl.store(out_ptr + row * columns + cols, x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        columns = x.shape[-1]
        rows = x.numel() // columns
        out = torch.empty_like(x)
        softmax_kernel[(rows,)](x, out, columns, BLOCK=1024)
        return out
