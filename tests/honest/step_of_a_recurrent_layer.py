# problem: problems/recurrent_step.py
# needs: cpu
# odd: the weights of an nn.RNN, whose constructor calls cuDNN where there is a GPU
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def step_kernel(
    x, weight, input_bias, hidden_bias, out, rows, features, hidden, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for step in range(features):
        values = tl.load(x + row * features + step, mask=row < rows, other=0.0)
        weights = tl.load(weight + column * features + step, mask=column < hidden, other=0.0)
        total += values[:, None] * weights[None, :]
    total += (
        tl.load(input_bias + column, mask=column < hidden, other=0.0)
        + tl.load(hidden_bias + column, mask=column < hidden, other=0.0)
    )[None, :]
    growth = tl.exp(-2.0 * tl.abs(total))
    result = tl.where(total < 0, -1.0, 1.0) * (1.0 - growth) / (1.0 + growth)
    tl.store(
        out + row[:, None] * hidden + column[None, :], result, mask=(row < rows)[:, None] & (column < hidden)[None, :]
    )


class ModelNew(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.layer = nn.RNN(features, hidden, batch_first=True)

    def forward(self, x):
        x = x.contiguous()
        (rows, features), hidden = x.shape, self.layer.hidden_size
        out = torch.empty((rows, hidden), device=x.device, dtype=x.dtype)
        step_kernel[(triton.cdiv(rows, 32), triton.cdiv(hidden, 32))](
            x,
            self.layer.weight_ih_l0,
            self.layer.bias_ih_l0,
            self.layer.bias_hh_l0,
            out,
            rows,
            features,
            hidden,
            ROWS=32,
            COLUMNS=32,
        )
        return out
