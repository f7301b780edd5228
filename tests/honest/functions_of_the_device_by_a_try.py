# problem: problems/row_tanh_erf.py
# needs: cpu
# odd: libdevice is imported in a try, functions are aliased at module level
import torch
import torch.nn as nn
import triton
import triton.language as tl


try:
    from triton.language.extra.cuda.libdevice import erf, fast_dividef, pow as _pow, rsqrt
except ImportError:
    try:
        from triton.language.extra.libdevice import erf, pow as _pow, rsqrt
    except ModuleNotFoundError:
        from triton.language.math import erf, rsqrt
from packaging.version import Version

if Version(triton.__version__) >= Version("3.0.0"):
    from triton.language.extra import libdevice

    tanh = libdevice.tanh
else:
    tanh = tl.math.tanh


@triton.jit
def gelu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, offs < n, 0.0)
    y = 0.5 * x * (1 + erf(x * 0.7071067811865476)) + tanh(_pow(x, 3.0))
    tl.store(y_ptr + offs, y, offs < n)


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        gelu_kernel[triton.cdiv(x.numel(), 512),](x, y, x.numel(), BLOCK=512)
        return y
