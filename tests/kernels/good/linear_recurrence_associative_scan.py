# problem: linear_recurrence
# odd: associative scan with a function of its own
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def compose(left_decay, left_x, right_decay, right_x):
    """First left, then right: h -> right_decay * (left_decay * h + left_x) + right_x."""
    return left_decay * right_decay, right_decay * left_x + right_x


@triton.jit
def scan_kernel(decay_ptr, x_ptr, out_ptr, length, channels, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    sequence = tl.program_id(0).to(tl.int64)
    channel = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    state = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, length, STEPS):
        step = start + tl.arange(0, STEPS)
        mask = (step[:, None] < length) & (channel[None, :] < channels)
        places = (sequence * length + step[:, None]) * channels + channel[None, :]
        decay = tl.load(decay_ptr + places, mask=mask, other=1.0).to(tl.float32)
        x = tl.load(x_ptr + places, mask=mask, other=0.0).to(tl.float32)
        whole_decay, whole_x = tl.associative_scan((decay, x), 0, compose)
        states = whole_decay * state[None, :] + whole_x
        tl.store(out_ptr + places, states.to(out_ptr.dtype.element_ty), mask=mask)
        state = tl.sum(tl.where(tl.arange(0, STEPS)[:, None] == STEPS - 1, states, 0.0), axis=0)


class ModelNew(nn.Module):
    def forward(self, decay: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        decay, x = decay.contiguous(), x.contiguous()
        batch, length, channels = x.shape
        out = torch.empty_like(x)
        grid = (batch, triton.cdiv(channels, 64))
        scan_kernel[grid](decay, x, out, length, channels, STEPS=16, BLOCK=64, num_warps=4)
        return out
