# problem: fused_gelu
# needs: cpu
# odd: configurations are pruned by a function that looks at the size and keeps one
import torch
import torch.nn as nn
import triton
import triton.language as tl


def fitting(configs, named_args, **kwargs):
    n = named_args["n"]
    return [c for c in configs if c.kwargs["BLOCK"] <= max(128, n)] or configs[:1]


@triton.autotune(
    configs=[triton.Config({"BLOCK": b}, num_warps=w) for b in (128, 512, 2048) for w in (2, 4)],
    key=["n"],
    prune_configs_by={"early_config_prune": fitting},
)
@triton.jit
def gelu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, x * tl.sigmoid(2.0 * 0.7978845608028654 * (x + 0.044715 * x * x * x)), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        gelu_kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, out, x.numel())
        return out
