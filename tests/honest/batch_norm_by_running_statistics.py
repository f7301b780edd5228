# problem: problems/batch_norm_in_inference.py
# needs: cpu
# odd: reads running_mean and running_var of its own BatchNorm2d in eval mode
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def bn_relu_kernel(x_ptr, y_ptr, w_ptr, b_ptr, m_ptr, v_ptr, eps: tl.constexpr, C, HW, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    c = (offs // HW) % C
    x = tl.load(x_ptr + offs, mask=mask)
    scale = tl.load(w_ptr + c, mask=mask) / tl.sqrt(tl.load(v_ptr + c, mask=mask) + eps)
    y = (x - tl.load(m_ptr + c, mask=mask)) * scale + tl.load(b_ptr + c, mask=mask)
    tl.store(y_ptr + offs, tl.maximum(y, 0), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bn = nn.BatchNorm2d(channels)
        self.eval()

    @torch.no_grad()
    def forward(self, x):
        if not x.is_cuda:
            raise RuntimeError("this module needs a GPU")
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        n = x.numel()
        bn = self.bn
        assert not bn.training
        bn_relu_kernel[(triton.cdiv(n, 256),)](
            x,
            y,
            bn.weight,
            bn.bias,
            bn.running_mean,
            bn.running_var,
            bn.eps,
            x.size(1),
            x.size(2) * x.size(3),
            n,
            BLOCK=256,
        )
        return y
