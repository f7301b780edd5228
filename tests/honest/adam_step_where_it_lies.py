# problem: problems/adam_step.py
# needs: cpu
# odd: three inputs are updated in place by one launch and given back; numbers of the host by their powers
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _adamw(p_ptr, g_ptr, m_ptr, v_ptr, n, lr, decay, beta1, beta2, correction1, correction2, eps, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n
    p, g = tl.load(p_ptr + i, mask=mask), tl.load(g_ptr + i, mask=mask)
    m = tl.load(m_ptr + i, mask=mask) * beta1 + g * (1 - beta1)
    v = tl.load(v_ptr + i, mask=mask) * beta2 + g * g * (1 - beta2)
    p = p * (1 - lr * decay) - lr * (m / correction1) / (tl.sqrt(v / correction2) + eps)
    tl.store(p_ptr + i, p, mask=mask)
    tl.store(m_ptr + i, m, mask=mask)
    tl.store(v_ptr + i, v, mask=mask)


class ModelNew(nn.Module):
    def forward(self, p, g, m, v, step):
        n = p.numel()
        _adamw[(triton.cdiv(n, 1024),)](
            p,
            g,
            m,
            v,
            n,
            lr=1e-2,
            decay=0.1,
            beta1=0.9,
            beta2=0.99,
            correction1=1 - 0.9**step,
            correction2=1 - 0.99**step,
            eps=1e-6,
            BLOCK=1024,
        )
        return p, m, v
