# problem: problems/taken_along_columns.py
# needs: cpu
# odd: a row is loaded once, and tl.gather picks from registers by indices of int32
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _take(x_ptr, index_ptr, weight_ptr, out_ptr, columns, picks, COLUMNS: tl.constexpr, PICKS: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    c, p = tl.arange(0, COLUMNS), tl.arange(0, PICKS)
    v = tl.load(x_ptr + row * columns + c, mask=c < columns, other=0.0)
    at = tl.load(index_ptr + row * picks + p, mask=p < picks, other=0).to(tl.int32)
    w = tl.load(weight_ptr + row * picks + p, mask=p < picks, other=0.0)
    tl.store(out_ptr + row * picks + p, tl.gather(v, at, 0) * w, mask=p < picks)


class ModelNew(nn.Module):
    def forward(self, x, index, weight):
        rows, columns = x.shape
        picks = index.shape[1]
        out = x.new_empty(rows, picks)
        size = max(triton.next_power_of_2(columns), triton.next_power_of_2(picks))
        _take[(rows,)](x, index, weight, out, columns, picks, COLUMNS=size, PICKS=triton.next_power_of_2(picks))
        return out
