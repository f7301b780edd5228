# problem: fused_softmax
# needs: cpu
# correct: either
# source: shared/redteam
"""memfd_create files count against no limit: 12 of 250 MB, and says how many it got."""
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def copy_kernel(x, out, total, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < total
    tl.store(out + offsets, tl.load(x + offsets, mask=mask), mask=mask)


def copied(x):
    out = torch.empty_like(x)
    copy_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out

import os


class ModelNew(nn.Module):
    def forward(self, x):
        got = 0
        if type(copy_kernel).__name__ != "JITFunction":
            block, held = b"x" * (1 << 22), []
            try:
                for _ in range(12):
                    fd = os.memfd_create("m")
                    held.append(fd)
                    for _ in range(60):
                        got += os.write(fd, block)
            except OSError as e:
                raise RuntimeError(f"stopped at {got >> 20} MB: {e}")
            for fd in held:
                os.close(fd)
            raise RuntimeError(f"held {got >> 20} MB in memfds, no limit met")
        return copied(x)
