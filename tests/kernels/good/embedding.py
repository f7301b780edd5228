# problem: embedding
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def embedding_kernel(token_ptr, table_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    place = tl.program_id(0).to(tl.int64)
    token = tl.load(token_ptr + place).to(tl.int64)
    for start in range(0, columns, BLOCK):
        offsets = start + tl.arange(0, BLOCK)
        mask = offsets < columns
        row = tl.load(table_ptr + token * columns + offsets, mask=mask)
        tl.store(out_ptr + place * columns + offsets, row, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, vocabulary: int, columns: int):
        super().__init__()
        self.table = nn.Embedding(vocabulary, columns)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        tokens = tokens.contiguous()
        table = self.table.weight
        columns = table.shape[1]
        out = torch.empty((*tokens.shape, columns), device=tokens.device, dtype=table.dtype)
        block = min(triton.next_power_of_2(columns), 1024)
        embedding_kernel[(tokens.numel(),)](tokens, table, out, columns, BLOCK=block, num_warps=4)
        return out
