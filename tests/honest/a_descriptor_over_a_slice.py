# problem: fused_softmax
# needs: cpu
# odd: a tensor descriptor made in the kernel, over a buffer padded by the host
import torch
import torch.nn as nn
import triton
import triton.language as tl


def room(size, alignment, stream):
    return torch.empty(size, dtype=torch.int8, device="cuda")


@triton.jit
def softmax_kernel(x_ptr, out_ptr, rows, columns, stride, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    given = tl.make_tensor_descriptor(x_ptr, shape=[rows, columns], strides=[stride, 1], block_shape=[1, BLOCK])
    made = tl.make_tensor_descriptor(out_ptr, shape=[rows, columns], strides=[stride, 1], block_shape=[1, BLOCK])
    offsets = tl.arange(0, BLOCK)[None, :]
    x = tl.where(offsets < columns, given.load([row, 0]), -float("inf"))
    x = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
    made.store([row, 0], x / tl.sum(x, axis=1, keep_dims=True))


class ModelNew(nn.Module):
    def forward(self, x):
        triton.set_allocator(room)
        rows, columns = x.shape
        wide = triton.cdiv(columns, 4) * 4
        padded = x.new_zeros(rows, wide)
        padded[:, :columns].copy_(x)
        out = x.new_empty(rows, wide)
        softmax_kernel[(rows,)](padded, out, rows, columns, wide, BLOCK=max(16, triton.next_power_of_2(columns)))
        return out[:, :columns]
