# problem: problems/transposed_product.py
# needs: cpu
# odd: persistent programs make tensor descriptors on the device; a is transposed in registers
import torch
import torch.nn as nn
import triton
import triton.language as tl


def _allocate(size: int, alignment: int, stream):
    return torch.empty(size, device="cuda", dtype=torch.int8)


@triton.jit
def _descriptor_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    NUM_SMS: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    a_desc = tl.make_tensor_descriptor(a_ptr, shape=[K, M], strides=[M, 1], block_shape=[BLOCK_K, BLOCK_M])
    b_desc = tl.make_tensor_descriptor(b_ptr, shape=[N, K], strides=[K, 1], block_shape=[BLOCK_N, BLOCK_K])
    tiles_n = tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * tiles_n, NUM_SMS, flatten=True):
        m0, n0 = (tile // tiles_n) * BLOCK_M, (tile % tiles_n) * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        for k in range(0, tl.cdiv(K, BLOCK_K)):
            a = a_desc.load([k * BLOCK_K, m0])
            b = b_desc.load([n0, k * BLOCK_K])
            acc = tl.dot(a.T, b.T, acc)
        rm, rn = m0 + tl.arange(0, BLOCK_M), n0 + tl.arange(0, BLOCK_N)
        tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(tl.float16), mask=(rm[:, None] < M) & (rn[None, :] < N))


def _aligned(t):
    """Descriptors ask for strides of whole 16 bytes: rows are padded where they are not."""
    pad = -t.shape[1] % 8
    return torch.nn.functional.pad(t, (0, pad)) if pad else t.contiguous()


@triton.jit
def _plain_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr):
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k0 in range(0, K, BLOCK_K):
        rk = k0 + tl.arange(0, BLOCK_K)
        a = tl.load(a_ptr + rk[None, :] * M + rm[:, None], mask=(rk[None, :] < K) & (rm[:, None] < M), other=0.0)
        b = tl.load(b_ptr + rn[None, :] * K + rk[:, None], mask=(rk[:, None] < K) & (rn[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rm[:, None] * N + rn[None, :], acc.to(tl.float16), mask=(rm[:, None] < M) & (rn[None, :] < N))


class ModelNew(nn.Module):
    def forward(self, a, b):
        K, M = a.shape
        N = b.shape[1]
        a, b = a.contiguous(), b.t().contiguous()
        c = torch.empty((M, N), device=a.device, dtype=a.dtype)
        if M % 8 == 0 and K % 8 == 0:
            triton.set_allocator(_allocate)
            sms = torch.cuda.get_device_properties(a.device).multi_processor_count
            _descriptor_kernel[(sms,)](a, b, c, M, N, K, NUM_SMS=sms, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
        else:
            grid = (triton.cdiv(M, 32), triton.cdiv(N, 32))
            _plain_kernel[grid](a, b, c, M, N, K, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32)
        return c
