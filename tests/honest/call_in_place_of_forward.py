# problem: fused_silu
# needs: cpu
# odd: ModelNew overrides __call__ and has a config of a dataclass and an Enum
import dataclasses
import enum

import torch
import torch.nn as nn
import triton
import triton.language as tl


class Activation(enum.Enum):
    SILU = "silu"
    NONE = "none"


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    activation: Activation = Activation.SILU
    block: int = 512


@triton.jit
def activate_kernel(x_ptr, out_ptr, n, KIND: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    if KIND == "silu":
        x = x * tl.sigmoid(x)
    tl.store(out_ptr + offsets, x, mask=offsets < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Config()

    @property
    def block(self):
        return self.config.block

    def __call__(self, x):
        out = torch.empty_like(x)
        activate_kernel[(triton.cdiv(x.numel(), self.block),)](
            x, out, x.numel(), KIND=self.config.activation.value, BLOCK=self.block
        )
        return out
