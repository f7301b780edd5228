# problem: embedding
# needs: cpu
# odd: sixteen tokens a program, their rows gathered as a block of two dimensions
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def pick_kernel(tokens, table, out, count, columns, PLACES: tl.constexpr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * PLACES + tl.arange(0, PLACES)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(tokens + place, mask=place < count, other=0)
    inside = (place < count)[:, None] & (at < columns)[None, :]
    rows = tl.load(table + token[:, None] * columns + at[None, :], mask=inside)
    tl.store(out + place[:, None].to(tl.int64) * columns + at[None, :], rows, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, vocabulary, columns):
        super().__init__()
        self.table = nn.Embedding(vocabulary, columns)

    def forward(self, tokens):
        columns = self.table.weight.shape[1]
        out = torch.empty((*tokens.shape, columns), device=tokens.device)
        grid = (triton.cdiv(tokens.numel(), 16), triton.cdiv(columns, 64))
        pick_kernel[grid](tokens, self.table.weight, out, tokens.numel(), columns, PLACES=16, BLOCK=64)
        return out
