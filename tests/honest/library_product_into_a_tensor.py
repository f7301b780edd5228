# problem: problems/linear_sigmoid.py
# needs: cpu
# own-work: share:0.01
# odd: a library product writes to a tensor by `out`
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def matmul_sigmoid_kernel(
    linear_bias_pointer,
    tensor_0_pointer,
    matmul_sigmoid_pointer,
    wide: tl.constexpr,
    elements,
    ELEMENT_BLOCK: tl.constexpr,
):
    element = tl.program_id(0) * ELEMENT_BLOCK + tl.arange(0, ELEMENT_BLOCK)
    element_exists = element < elements
    wide_index = element % wide
    linear_bias = tl.load(linear_bias_pointer + wide_index, element_exists)
    tensor_0 = tl.load(tensor_0_pointer + element, element_exists)
    tl.store(matmul_sigmoid_pointer + element, tl.sigmoid(linear_bias + tensor_0) * 2.0, element_exists)


def block_for(extent, most, least=1):
    """A power of two that holds the extent, within bounds."""
    return min(most, max(least, triton.next_power_of_2(extent)))


class ModelNew(nn.Module):
    def __init__(self, columns, wide):
        super().__init__()
        self.linear = nn.Linear(columns, wide)

    def forward(self, x):
        x = x.contiguous()
        device = x.device
        rows, columns = x.shape
        wide = self.linear.weight.shape[0]
        tensor_0 = torch.empty((rows, wide), device=device, dtype=torch.float32)
        torch.mm(x, torch.as_strided(self.linear.weight, (columns, wide), (1, columns)), out=tensor_0)
        matmul_sigmoid = torch.empty((rows, wide), device=device, dtype=torch.float32)
        matmul_sigmoid_kernel[lambda block: (triton.cdiv(wide * rows, block["ELEMENT_BLOCK"]),)](
            self.linear.bias,
            tensor_0,
            matmul_sigmoid,
            wide,
            wide * rows,
            ELEMENT_BLOCK=block_for(wide * rows, 1024),
            num_warps=4,
        )
        return matmul_sigmoid
