# problem: problems/conv_relu_bias.py
# needs: cpu
# odd: holds an nn.Conv2d for its weights, which is never called; bias_shape is a tuple argument
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def conv_relu_bias_kernel(
    x_ptr, w_ptr, cb_ptr, b_ptr, y_ptr, C, H, W, O, OH, OW, KH: tl.constexpr, KW: tl.constexpr, BLOCK: tl.constexpr
):
    pid_bo = tl.program_id(0)
    b = pid_bo // O
    o = pid_bo % O
    offs = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    oh = offs // OW
    ow = offs % OW
    mask = offs < OH * OW
    acc = tl.zeros((BLOCK,), dtype=tl.float32) + tl.load(cb_ptr + o)
    for c in range(C):
        for kh in tl.static_range(KH):
            for kw in tl.static_range(KW):
                w = tl.load(w_ptr + ((o * C + c) * KH + kh) * KW + kw)
                acc += w * tl.load(x_ptr + ((b * C + c) * H + oh + kh) * W + ow + kw, mask=mask, other=0.0)
    acc = tl.maximum(acc, 0.0) + tl.load(b_ptr + o)
    tl.store(y_ptr + pid_bo * OH * OW + offs, acc, mask=mask)


class ModelNew(nn.Module):
    """
    Optimized Model using a custom Triton kernel.
    """

    def __init__(self, in_channels, out_channels, kernel_size, bias_shape):
        super(ModelNew, self).__init__()
        self.conv = nn.Conv2d(in_channels, out_channels, kernel_size)
        self.bias = nn.Parameter(torch.randn(bias_shape))

    def forward(self, x):
        B, C, H, W = x.shape
        O, _, KH, KW = self.conv.weight.shape
        OH, OW = H - KH + 1, W - KW + 1
        x = x.contiguous()
        y = torch.empty((B, O, OH, OW), device=x.device, dtype=x.dtype)
        grid = lambda meta: (B * O, triton.cdiv(OH * OW, meta["BLOCK"]))
        conv_relu_bias_kernel[grid](
            x,
            self.conv.weight,
            self.conv.bias,
            self.bias.view(-1),
            y,
            C,
            H,
            W,
            O,
            OH,
            OW,
            KH=KH,
            KW=KW,
            BLOCK=128,
            num_warps=4,
        )
        return y


batch_size = 128


def get_inputs():
    return [torch.rand(batch_size, 3, 32, 32).cuda()]


if __name__ == "__main__":
    print(ModelNew(3, 16, 3, (16, 1, 1)).cuda()(get_inputs()[0]).shape)
