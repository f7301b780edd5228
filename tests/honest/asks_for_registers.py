# problem: fused_softmax
# needs: cpu
# odd: kernel.warmup and its registers decide the number of programs, as in Triton's tutorial
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, columns, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=STAGES):
        offsets = tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(out_ptr + row * columns + offsets, e / tl.sum(e, axis=0), mask=mask)


def programs(x, out, rows, columns, block):
    """As many as are resident at once, where the device says so."""
    if not x.is_cuda or type(softmax_kernel).__name__ != "JITFunction":
        return min(rows, 3)
    properties = torch.cuda.get_device_properties(x.device)
    kernel = softmax_kernel.warmup(x, out, rows, columns, BLOCK=block, STAGES=2, num_warps=8, grid=(1,))
    kernel._init_handles()
    registers = max(kernel.n_regs or 32, 1)
    resident = max(1, 65536 // (registers * 32 * 8))
    return min(rows, properties.multi_processor_count * resident)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        out = torch.empty_like(x)
        block = triton.next_power_of_2(columns)
        softmax_kernel[(programs(x, out, rows, columns, block), 1, 1)](
            x, out, rows, columns, BLOCK=block, STAGES=2, num_warps=8
        )
        return out
