# problem: problems/selective_scan.py
# needs: cpu
# odd: a state in registers over a loop of all steps; softplus with its threshold
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _softplus(x):
    return tl.where(
        x > 20.0, x, tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL) + tl.log(1.0 + tl.exp(-tl.abs(x)))
    )


@triton.jit
def _scan(x, delta, b, c, log_a, skip, y, last, steps, channels, states, CH: tl.constexpr, ST: tl.constexpr):
    batch = tl.program_id(0)
    ch = tl.program_id(1) * CH + tl.arange(0, CH)
    st = tl.arange(0, ST)
    inside = ch < channels
    both = inside[:, None] & (st < states)[None, :]
    a = -tl.exp(tl.load(log_a + ch[:, None] * states + st[None, :], mask=both, other=0.0))
    skipped = tl.load(skip + ch, mask=inside, other=0.0)
    h = tl.zeros((CH, ST), tl.float32)
    for t in range(steps):
        row = batch * steps + t
        xt = tl.load(x + row * channels + ch, mask=inside, other=0.0)
        dt = _softplus(tl.load(delta + row * channels + ch, mask=inside, other=0.0))
        bt = tl.load(b + row * states + st, mask=st < states, other=0.0)
        ct = tl.load(c + row * states + st, mask=st < states, other=0.0)
        h = h * tl.exp(dt[:, None] * a) + (dt * xt)[:, None] * bt[None, :]
        tl.store(y + row * channels + ch, tl.sum(h * ct[None, :], axis=1) + xt * skipped, mask=inside)
    tl.store(last + (batch * channels + ch[:, None]) * states + st[None, :], h, mask=both)


class ModelNew(nn.Module):
    def __init__(self, channels, states):
        super().__init__()
        self.log_a = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(channels, 1))
        self.skip = nn.Parameter(torch.ones(channels))

    def forward(self, x, delta, b, c):
        batch, steps, channels = x.shape
        states = b.shape[-1]
        y, last = torch.empty_like(x), x.new_empty(batch, channels, states)
        _scan[(batch, triton.cdiv(channels, 16))](
            x,
            delta,
            b,
            c,
            self.log_a,
            self.skip,
            y,
            last,
            steps,
            channels,
            states,
            CH=16,
            ST=triton.next_power_of_2(states),
        )
        return y, last
