# problem: scale_shift_clamp
# needs: cpu
# odd: constexpr parameters: bool, text, None, float, int, tuple, dtype
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def clamp_kernel(
    x_ptr,
    out_ptr,
    n,
    SCALE: tl.constexpr,
    SHIFT: tl.constexpr,
    BOUNDS: tl.constexpr,
    MODE: tl.constexpr,
    ROUND: tl.constexpr,
    NOTHING: tl.constexpr,
    WIDE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask, other=0.0).to(WIDE)
    x = x * SCALE + SHIFT
    if NOTHING is not None:
        x += NOTHING
    if MODE == "clamp":
        x = tl.minimum(tl.maximum(x, BOUNDS[0]), BOUNDS[1])
    if ROUND:
        x = tl.floor(x)
    tl.store(out_ptr + offsets, x, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, scale, shift, low, high):
        super().__init__()
        self.plan = {"SCALE": scale, "SHIFT": shift, "BOUNDS": (low, high)}

    def forward(self, x):
        out = torch.empty_like(x)
        clamp_kernel[(triton.cdiv(x.numel(), 1024),)](
            x, out, x.numel(), **self.plan, MODE="clamp", ROUND=False, NOTHING=None, WIDE=tl.float32, BLOCK=1024
        )
        return out
