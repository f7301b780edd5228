# problem: problems/running_log_sum_exp.py
# needs: cpu
# odd: a scan over pairs of a maximum and a scaled sum; both outputs of one scan
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _pair(m_a, s_a, m_b, s_b):
    m = tl.maximum(m_a, m_b, propagate_nan=tl.PropagateNan.ALL)
    ea = tl.where(m_a == m, 1.0, tl.exp(m_a - m))
    eb = tl.where(m_b == m, 1.0, tl.exp(m_b - m))
    return m, s_a * ea + s_b * eb


@triton.jit
def _scan(x_ptr, lse_ptr, max_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    m0 = tl.full((), float("-inf"), tl.float32)
    s0 = tl.full((), 0.0, tl.float32)
    for start in range(0, columns, BLOCK):
        c = start + tl.arange(0, BLOCK)
        v = tl.load(x_ptr + row + c, mask=c < columns, other=float("-inf"))
        m, s = tl.associative_scan((v, tl.where(c < columns, 1.0, 0.0)), 0, _pair)
        m, s = _pair(tl.broadcast_to(m0, (BLOCK,)), tl.broadcast_to(s0, (BLOCK,)), m, s)
        tl.store(lse_ptr + row + c, m + tl.log(s), mask=c < columns)
        tl.store(max_ptr + row + c, m, mask=c < columns)
        last = c == start + BLOCK - 1
        m0, s0 = (
            tl.reduce((m, s), 0, _later) if False else (tl.sum(tl.where(last, m, 0.0)), tl.sum(tl.where(last, s, 0.0)))
        )


@triton.jit
def _later(m_a, s_a, m_b, s_b):
    return m_b, s_b


class ModelNew(nn.Module):
    def forward(self, x):
        lse, high = torch.empty_like(x), torch.empty_like(x)
        _scan[(x.shape[0],)](x, lse, high, x.shape[1], BLOCK=128, num_warps=4)
        return lse, high
