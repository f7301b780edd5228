# problem: binary_chain
# odd: persistent grid
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def chain_kernel(x_ptr, y_ptr, z_ptr, out_ptr, n, BLOCK: tl.constexpr):
    """Each program walks the blocks with a stride of the grid."""
    step = tl.num_programs(0)
    blocks = tl.cdiv(n, BLOCK)
    for block in range(tl.program_id(0), blocks, step):
        offsets = block * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
        mask = offsets < n
        x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
        y = tl.load(y_ptr + offsets, mask=mask).to(tl.float32)
        z = tl.load(z_ptr + offsets, mask=mask).to(tl.float32)
        out = (x * y + z) / (1.0 + tl.abs(z))
        tl.store(out_ptr + offsets, out.to(out_ptr.dtype.element_ty), mask=mask)


def processors(device: torch.device) -> int:
    """Multiprocessors of the GPU; a stand-in where there is none."""
    return torch.cuda.get_device_properties(device).multi_processor_count if torch.cuda.is_available() else 4


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
        x, y, z = x.contiguous(), y.contiguous(), z.contiguous()
        out = torch.empty_like(x)
        n, block = out.numel(), 1024
        grid = (min(triton.cdiv(n, block), 16 * processors(x.device)),)
        chain_kernel[grid](x, y, z, out, n, BLOCK=block, num_warps=4)
        return out
