# problem: problems/layer_norm_gradients.py
# needs: cpu
# odd: partial sums of weights' gradients by a fixed number of persistent programs, added by a second launch
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _dx(x_ptr, g_ptr, w_ptr, dx_ptr, dw_ptr, db_ptr, rows, columns, eps, BLOCK: tl.constexpr):
    pid, programs = tl.program_id(0), tl.num_programs(0)
    c = tl.arange(0, BLOCK)
    inside = c < columns
    w = tl.load(w_ptr + c, mask=inside, other=0.0)
    dw = tl.zeros((BLOCK,), tl.float32)
    db = tl.zeros((BLOCK,), tl.float32)
    for row in tl.range(pid, rows, programs):
        at = row.to(tl.int64) * columns + c
        x = tl.load(x_ptr + at, mask=inside, other=0.0)
        g = tl.load(g_ptr + at, mask=inside, other=0.0)
        mean = tl.sum(x, axis=0) / columns
        d = tl.where(inside, x - mean, 0.0)
        rstd = 1.0 / tl.sqrt(tl.sum(d * d, axis=0) / columns + eps)
        h = d * rstd
        wg = g * w
        a = tl.sum(wg * h, axis=0) / columns
        b = tl.sum(wg, axis=0) / columns
        tl.store(dx_ptr + at, (wg - b - h * a) * rstd, mask=inside)
        dw += g * h
        db += g
    tl.store(dw_ptr + pid * columns + c, dw, mask=inside)
    tl.store(db_ptr + pid * columns + c, db, mask=inside)


@triton.jit
def _add(dw_ptr, db_ptr, w_ptr, b_ptr, parts, columns, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    c = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    dw = tl.zeros((PARTS, BLOCK), tl.float32)
    db = tl.zeros((PARTS, BLOCK), tl.float32)
    for first in range(0, parts, PARTS):
        p = first + tl.arange(0, PARTS)[:, None]
        mask = (p < parts) & (c < columns)
        dw += tl.load(dw_ptr + p * columns + c, mask=mask, other=0.0)
        db += tl.load(db_ptr + p * columns + c, mask=mask, other=0.0)
    out = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(w_ptr + out, tl.sum(dw, axis=0), mask=out < columns)
    tl.store(b_ptr + out, tl.sum(db, axis=0), mask=out < columns)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x, grad):
        rows, columns = x.shape
        parts = min(rows, torch.cuda.get_device_properties(x.device).multi_processor_count)
        dx = torch.empty_like(x)
        dw, db = x.new_empty(parts, columns), x.new_empty(parts, columns)
        _dx[(parts,)](x, grad, self.weight, dx, dw, db, rows, columns, 1e-5, BLOCK=triton.next_power_of_2(columns))
        w, b = torch.empty_like(self.weight), torch.empty_like(self.weight)
        _add[(triton.cdiv(columns, 64),)](dw, db, w, b, parts, columns, PARTS=8, BLOCK=64)
        return dx, w, b
