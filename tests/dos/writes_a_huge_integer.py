# problem: fused_softmax
# needs: cpu
# correct: no
# source: shared/redteam
"""A message on descriptor 3 whose number has 5000 digits: json.loads raises a plain ValueError."""
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
import struct


class ModelNew(nn.Module):
    def forward(self, x):
        if type(copy_kernel).__name__ != "JITFunction":
            body = b'{"nonce": ' + b"9" * 5000 + b"}"
            os.write(3, struct.pack("<I", len(body)) + body)
        return copied(x)
