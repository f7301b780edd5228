# problem: quantize_rows_int8
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def quantize_rows_kernel(x_ptr, out_ptr, scale_ptr, columns, BLOCK: tl.constexpr):
    """Division is IEEE (`/` is approximate for fp32): a last bit moves a half to the other side."""
    row = tl.program_id(0).to(tl.int64)
    largest = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + offsets, mask=offsets < columns, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.abs(x))
    scale = tl.div_rn(tl.max(largest, axis=0), 127.0)
    tl.store(scale_ptr + row, scale)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=0.0).to(tl.float32)
        ratio = tl.div_rn(x, tl.zeros((BLOCK,), dtype=tl.float32) + scale)
        low = tl.floor(ratio)
        part = ratio - low
        odd = low - 2.0 * tl.floor(low * 0.5)
        up = (part > 0.5) | ((part == 0.5) & (odd == 1.0))
        tl.store(out_ptr + row * columns + offsets, tl.where(up, low + 1.0, low).to(tl.int8), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.contiguous()
        rows, columns = x.shape
        out = torch.empty((rows, columns), dtype=torch.int8, device=x.device)
        scale = torch.empty((rows, 1), dtype=torch.float32, device=x.device)
        block = min(triton.next_power_of_2(columns), 4096)
        quantize_rows_kernel[(rows,)](x, out, scale, columns, BLOCK=block, num_warps=8)
        return out, scale
