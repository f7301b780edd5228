# problem: fused_softmax
# needs: cpu
# correct: no
# source: shared/redteam
"""A reply whose count is 1e999, which parses as infinity; int() of it raises OverflowError."""
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
import sys

ch = sys.modules.get("kernelwright.tools.sandbox.channel")
if ch is not None and type(copy_kernel).__name__ != "JITFunction":
    import json

    def send(self, message, fds=()):
        text = json.dumps(message)
        if "count" in message:
            text = json.dumps({**message, "count": "COUNT"}).replace('"COUNT"', "1e999")
        body = text.encode()
        os.write(3, struct.pack("<I", len(body)) + body)

    ch.Channel.send = send


class ModelNew(nn.Module):
    def forward(self, x):
        return copied(x)
