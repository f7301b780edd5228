# problem: avg_pool2d
# needs: cpu
# odd: every output finds its window by divisions of a flat number, without a loop over the window
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pool_kernel(
    x,
    out,
    height,
    width,
    out_height,
    out_width,
    n,
    stride,
    padding,
    K: tl.constexpr,
    W: tl.constexpr,
    BLOCK: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    plane = i // (out_height * out_width)
    y, z = i // out_width % out_height, i % out_width
    k = tl.arange(0, W)
    down, across = k // K, k % K
    r = (y * stride - padding)[:, None] + down[None, :]
    c = (z * stride - padding)[:, None] + across[None, :]
    inside = (i < n)[:, None] & (k < K * K)[None, :] & (r >= 0) & (r < height) & (c >= 0) & (c < width)
    values = tl.load(x + (plane[:, None] * height + r) * width + c, mask=inside, other=0.0)
    tl.store(out + i, tl.sum(values, axis=1) / (K * K), mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def forward(self, x):
        b, c, h, w = x.shape
        k, s, p = self.kernel_size, self.stride, self.padding
        oh, ow = (h + 2 * p - k) // s + 1, (w + 2 * p - k) // s + 1
        out = torch.empty(b, c, oh, ow, dtype=x.dtype, device=x.device)
        n = out.numel()
        pool_kernel[(triton.cdiv(n, 64),)](
            x, out, h, w, oh, ow, n, s, p, K=k, W=triton.next_power_of_2(k * k), BLOCK=64
        )
        return out
