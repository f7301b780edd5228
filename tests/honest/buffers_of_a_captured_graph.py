# problem: fused_gelu
# needs: cpu
# odd: inputs are copied into buffers that stay where they are, as for a captured graph, and the answer is copied out
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def gelu_kernel(x, out, n, BLOCK: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + o, mask=o < n)
    inner = 0.7978845608028654 * (v + 0.044715 * v * v * v)
    tl.store(out + o, v * tl.sigmoid(2.0 * inner), mask=o < n)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.given = self.made = None

    def forward(self, x):
        if self.given is None or self.given.shape != x.shape:
            self.given, self.made = torch.empty_like(x), torch.empty_like(x)
        self.given.copy_(x)
        gelu_kernel[(triton.cdiv(x.numel(), 1024),)](self.given, self.made, x.numel(), BLOCK=1024)
        return self.made.clone()
