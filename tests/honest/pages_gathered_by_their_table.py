# problem: problems/pages_gathered.py
# needs: cpu
# odd: a gather through a block table with the layout of heads turned on the way
import torch
import torch.nn as nn
import triton
import triton.language as tl


@triton.jit
def _gather_pages(
    cache,
    table,
    scale,
    out,
    s_table,
    s_page,
    s_slot,
    s_head,
    o_seq,
    o_head,
    o_slot,
    page_size,
    width,
    SLOTS: tl.constexpr,
    WIDTH: tl.constexpr,
):
    seq, page_index, head = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    page = tl.load(table + seq * s_table + page_index).to(tl.int64)
    d = tl.arange(0, WIDTH)
    factor = tl.load(scale + head * width + d, mask=d < width, other=0.0)
    for first in range(0, page_size, SLOTS):
        slot = first + tl.arange(0, SLOTS)
        mask = (slot[:, None] < page_size) & (d[None, :] < width)
        v = tl.load(cache + page * s_page + slot[:, None] * s_slot + head * s_head + d[None, :], mask=mask, other=0.0)
        place = page_index * page_size + slot[:, None]
        tl.store(out + seq * o_seq + head * o_head + place * o_slot + d[None, :], v * factor[None, :], mask=mask)


class ModelNew(nn.Module):
    def forward(self, cache, table, scale):
        sequences, pages = table.shape
        _, page, heads, width = cache.shape
        out = cache.new_empty((sequences, heads, pages * page, width))
        _gather_pages[(sequences, pages, heads)](
            cache,
            table,
            scale,
            out,
            table.stride(0),
            *cache.stride()[:3],
            *out.stride()[:3],
            page,
            width,
            SLOTS=8,
            WIDTH=triton.next_power_of_2(width),
        )
        return out
