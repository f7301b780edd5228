# problem: layer_norm
# needs: cpu
# source: shared/redteam
"""Logging, environment, a dataclass; device_assert, and device_print behind a constexpr."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

import dataclasses
import logging
import os

log = logging.getLogger(__name__)
VERBOSE = tl.constexpr(bool(os.environ.get("MY_VERBOSE")))


@dataclasses.dataclass(frozen=True)
class Config:
    warps: int = 4


@triton.jit
def norm(x, w, b, out, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    o = tl.arange(0, BLOCK)
    m = o < columns
    v = tl.load(x + row * columns + o, mask=m, other=0.0)
    tl.device_assert(columns <= BLOCK, "too wide")
    if VERBOSE:
        tl.device_print("row", row)
    mean = tl.sum(v, axis=0) / columns
    d = tl.where(m, v - mean, 0.0)
    r = tl.math.rsqrt(tl.sum(d * d, axis=0) / columns + eps)
    tl.store(
        out + row * columns + o,
        tl.fma(d * r, tl.load(w + o, mask=m, other=0.0), tl.load(b + o, mask=m, other=0.0)),
        mask=m,
    )


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.config = Config()
        self.norm = nn.LayerNorm(columns)
        log.info("built")

    def forward(self, x):
        assert x.is_cuda and x.is_contiguous()
        out = torch.empty_like(x)
        norm[(x.shape[0],)](
            x,
            self.norm.weight,
            self.norm.bias,
            out,
            x.shape[1],
            self.norm.eps,
            BLOCK=triton.next_power_of_2(x.shape[1]),
            num_warps=self.config.warps,
        )
        return out
