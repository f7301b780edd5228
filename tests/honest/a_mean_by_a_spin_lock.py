# problem: problems/mean_of_all.py
# needs: cpu
# odd: programs add to one number under a lock that is taken by atomic_cas and freed by atomic_xchg
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mean_kernel(x_ptr, out_ptr, lock_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0).to(tl.float32)
    part = tl.sum(x, axis=0) / n
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    count = tl.load(lock_ptr + 1)
    if count == 0:
        tl.atomic_xchg(lock_ptr + 1, 1)
    else:
        part += tl.load(out_ptr)
    tl.store(out_ptr, part)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr, 0)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty((), device=x.device, dtype=x.dtype)
        locks = torch.zeros(2, dtype=torch.int32, device=x.device)
        n = x.numel()
        BLOCK = max(16, triton.next_power_of_2(triton.cdiv(n, 16)))
        mean_kernel[(triton.cdiv(n, min(BLOCK, 4096)),)](x.reshape(-1), out, locks, n, BLOCK=min(BLOCK, 4096))
        return out
