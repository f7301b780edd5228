# problem: row_sum
# needs: cpu
# odd: the configurations to be timed are chosen by a model of their speed
import torch
import torch.nn as nn
import triton
import triton.language as tl


def predicted(x, out, columns, BLOCK, num_warps, **_):
    return columns / BLOCK + 0.1 * num_warps


def fitting(configs, named_args, **kwargs):
    return [c for c in configs if c.kwargs["BLOCK"] <= 4 * triton.next_power_of_2(named_args["columns"])] or configs[:1]


@triton.autotune(
    configs=[
        triton.Config({"BLOCK": b}, num_warps=w, num_stages=s) for b in (256, 512, 1024) for w in (2, 4) for s in (1, 3)
    ],
    key=["columns"],
    prune_configs_by={"early_config_prune": fitting, "perf_model": predicted, "top_k": 3},
)
@triton.heuristics({"EVEN": lambda args: args["columns"] % args["BLOCK"] == 0})
@triton.jit
def sum_kernel(x, out, columns, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        o = start + tl.arange(0, BLOCK)
        if EVEN:
            total += tl.load(x + row * columns + o)
        else:
            total += tl.load(x + row * columns + o, mask=o < columns, other=0.0)
    tl.store(out + row, tl.sum(total, axis=0))


class ModelNew(nn.Module):
    def forward(self, x):
        out = x.new_empty(x.shape[0])
        sum_kernel[(x.shape[0],)](x, out, x.shape[1])
        return out
