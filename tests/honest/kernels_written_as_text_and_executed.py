# problem: fused_silu
# needs: cpu
# odd: the kernel's text is built with a string and loaded from a file that the module writes, as code generators do
import torch
import torch.nn as nn
import triton
import triton.language as tl


import importlib.util
import os
import tempfile

TEMPLATE = """
import triton
import triton.language as tl

@triton.jit
def {name}(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    x = tl.load(x_ptr + offs, mask=mask).to(tl.float32)
    tl.store(y_ptr + offs, ({expr}).to(y_ptr.dtype.element_ty), mask=mask)
"""


def generate(name, expr):
    folder = tempfile.mkdtemp()
    path = os.path.join(folder, f"{name}.py")
    with open(path, "w") as f:
        f.write(TEMPLATE.format(name=name, expr=expr))
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


silu_kernel = generate("silu_kernel", "x * tl.sigmoid(x)")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        silu_kernel[(triton.cdiv(n, 1024), 1, 1)](x, y, n, BLOCK=1024)
        return y
