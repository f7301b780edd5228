# problem: fused_silu
# needs: cpu
# odd: two functions make a kernel each, both of one name; a dict holds them
import functools

import torch
import torch.nn as nn
import triton
import triton.language as tl


def make_plain():
    @triton.jit
    def made_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
        offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
        tl.store(out_ptr + offsets, x / (1.0 + tl.exp(-x)), mask=offsets < n)

    return made_kernel


def make_unrolled(parts):
    """The parts are a constexpr of the launch."""

    @triton.jit
    def made_kernel(x_ptr, out_ptr, n, PARTS: tl.constexpr, BLOCK: tl.constexpr):
        for part in tl.static_range(PARTS):
            offsets = (tl.program_id(0) * PARTS + part) * BLOCK + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
            tl.store(out_ptr + offsets, x * tl.sigmoid(x), mask=offsets < n)

    return functools.partial(made_kernel.__getitem__), {"PARTS": parts}


PLAIN = make_plain()
UNROLLED, MORE = make_unrolled(2)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        first = x.shape[0] // 2
        for kernel, more, part, target in (
            (PLAIN.__getitem__, {}, x[:first], out[:first]),
            (UNROLLED, MORE, x[first:], out[first:]),
        ):
            if part.numel():
                kernel((triton.cdiv(part.numel(), 256),))(part, target, part.numel(), **more, BLOCK=256)
        return out
