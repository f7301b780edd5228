# problem: problems/cache_updated_at_slots.py
# needs: cpu
# odd: programs of padded tokens leave at once; the cache is an input that is changed and given back
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _write(cache, key, places, n, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    place = tl.load(places + token)
    if place < 0:
        return
    for start in range(0, n, BLOCK):
        i = start + tl.arange(0, BLOCK)
        tl.store(cache + place * n + i, tl.load(key + token.to(tl.int64) * n + i, mask=i < n), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, cache, key, places):
        _write[(places.shape[0],)](cache, key.contiguous(), places, cache[0].numel(), BLOCK=128)
        return cache
