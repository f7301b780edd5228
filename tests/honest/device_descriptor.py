# problem: matmul_fp16
# needs: cpu
# source: shared/redteam
"""Tensor descriptors made on the device, with an allocator set."""

import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def mm(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    a = tl.make_tensor_descriptor(a_ptr, shape=[M, K], strides=[K, 1], block_shape=[BM, BK])
    b = tl.make_tensor_descriptor(b_ptr, shape=[K, N], strides=[N, 1], block_shape=[BK, BN])
    c = tl.make_tensor_descriptor(c_ptr, shape=[M, N], strides=[N, 1], block_shape=[BM, BN])
    m, n = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(a.load([m, k]), b.load([k, n]), acc)
    c.store([m, n], acc.to(tl.float16))


def allocate(size, alignment, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


class ModelNew(nn.Module):
    """Descriptors want rows of a multiple of 16 bytes; other sizes are padded by copies."""

    def forward(self, a, b):
        triton.set_allocator(allocate)
        (M, K), N = a.shape, b.shape[1]
        k8, n8 = -(-K // 8) * 8, -(-N // 8) * 8
        a = nn.functional.pad(a, (0, k8 - K))
        b = nn.functional.pad(b, (0, n8 - N, 0, k8 - K))
        c = torch.empty((M, n8), device=a.device, dtype=torch.float16)
        mm[(triton.cdiv(M, 64), triton.cdiv(n8, 64))](a, b, c, M, n8, k8, BM=64, BN=64, BK=64)
        return c[:, :N].contiguous()
