# problem: problems/causal_depthwise_step.py
# needs: cpu
# odd: taps unrolled by static_range, the state of the next call written by the programs of the last block
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _conv(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    state_ptr,
    channels,
    steps,
    sxb,
    sxc,
    sxt,
    TAPS: tl.constexpr,
    HAS_BIAS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    block, bc = tl.program_id(0), tl.program_id(1)
    b, c = bc // channels, bc % channels
    t = block * BLOCK + tl.arange(0, BLOCK)
    row = x_ptr + b.to(tl.int64) * sxb + c * sxc
    if HAS_BIAS:
        acc = tl.zeros((BLOCK,), tl.float32) + tl.load(b_ptr + c)
    else:
        acc = tl.zeros((BLOCK,), tl.float32)
    for k in tl.static_range(TAPS):
        at = t - (TAPS - 1) + k
        acc += tl.load(w_ptr + c * TAPS + k) * tl.load(row + at * sxt, mask=(at >= 0) & (at < steps), other=0.0)
    acc = acc * tl.sigmoid(acc)
    tl.store(y_ptr + bc.to(tl.int64) * steps + t, acc, mask=t < steps)
    if block == tl.num_programs(0) - 1:
        for k in tl.static_range(TAPS - 1):
            tl.store(state_ptr + bc * (TAPS - 1) + k, tl.load(row + (steps - (TAPS - 1) + k) * sxt))


class ModelNew(nn.Module):
    def __init__(self, channels, taps):
        super().__init__()
        self.conv = nn.Conv1d(channels, channels, taps, groups=channels, padding=taps - 1)

    def forward(self, x):
        batch, channels, steps = x.shape
        weight, bias = self.conv.weight, self.conv.bias
        taps = weight.shape[-1]
        if steps < taps - 1:
            raise ValueError("the state is that of as many steps as the convolution remembers")
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        state = x.new_empty(batch, channels, taps - 1)
        _conv[(triton.cdiv(steps, 128), batch * channels)](
            x, weight, bias, y, state, channels, steps, *x.stride(), TAPS=taps, HAS_BIAS=bias is not None, BLOCK=128
        )
        return y, state
