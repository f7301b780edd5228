# problem: problems/bags_of_tokens.py
# needs: cpu
# odd: the last bag ends where the tokens end; an empty bag is zero
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _bag(tokens, offsets, weight, out, count, bags, width, BLOCK: tl.constexpr):
    bag = tl.program_id(0)
    d = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    begin = tl.load(offsets + bag)
    end = tl.load(offsets + bag + 1, mask=bag + 1 < bags, other=count)
    acc = tl.zeros((BLOCK,), tl.float32)
    for i in range(begin, end):
        token = tl.load(tokens + i)
        acc += tl.load(weight + token * width + d, mask=d < width, other=0.0)
    n = tl.maximum(end - begin, 1).to(tl.float32)
    tl.store(out + bag * width + d, acc / n, mask=d < width)


class ModelNew(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.bag = nn.EmbeddingBag(vocabulary, width, mode="mean")

    def forward(self, tokens, offsets):
        weight = self.bag.weight
        bags, width = offsets.shape[0], weight.shape[1]
        out = weight.new_empty(bags, width)
        _bag[(bags, triton.cdiv(width, 128))](tokens, offsets, weight, out, tokens.shape[0], bags, width, BLOCK=128)
        return out
