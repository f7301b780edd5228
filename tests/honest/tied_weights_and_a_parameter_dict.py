# problem: problems/of_tied_weights.py
# needs: cpu
# odd: one weight under two names, and a ParameterDict
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mlp_kernel(x_ptr, w_ptr, scale_ptr, out_ptr, rows, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, WIDTH)
    mask = r[:, None] < rows
    x = tl.load(x_ptr + r[:, None] * WIDTH + c[None, :], mask=mask, other=0.0)
    w = tl.load(w_ptr + c[None, :] * WIDTH + c[:, None])
    hidden = tl.maximum(tl.dot(x, w, input_precision="ieee"), 0.0)
    out = tl.dot(hidden, w, input_precision="ieee") * tl.load(scale_ptr + c)[None, :]
    tl.store(out_ptr + r[:, None] * WIDTH + c[None, :], out, mask=mask)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(64, 64, bias=False)
        self.second = nn.Linear(64, 64, bias=False)
        self.second.weight = self.first.weight
        self.extra = nn.ParameterDict({"scale": torch.full((64,), 1.5)})

    def forward(self, x):
        out = torch.empty_like(x)
        scale = self.extra["scale"]
        mlp_kernel[(triton.cdiv(x.shape[0], 16),)](x, self.second.weight, scale, out, x.shape[0], ROWS=16, WIDTH=64)
        return out
