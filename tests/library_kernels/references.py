"""References of ours in plain torch, for what torch has no function of its own.

table.py copies them into the problems that name them.
"""

from __future__ import annotations

import torch


def rms_normalised(x, weight, eps):
    """Rows of `x` over their root mean square, times `weight`; computed in float32."""
    wide = x.float()
    scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (wide * scale * weight.float()).to(x.dtype)


def rotated_heads(x, table, dim):
    """Rotary embedding of (tokens, heads * dim) by a row of [cos | sin] for each token, the halves of a head as
    pairs.
    """
    cos, sin = table[:, None, : dim // 2], table[:, None, dim // 2 :]
    first, second = x.view(x.shape[0], -1, dim).chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1).reshape(x.shape)


def unpacked(words, bits):
    """Fields of `bits` bits of int32 words, lowest first, as more rows: (rows * 32 / bits, columns)."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32, device=words.device)
    fields = (words[:, None, :] >> shifts[None, :, None]) & (2**bits - 1)
    return fields.reshape(-1, words.shape[1])


def nf4_values(packed):
    """The NF4 values of packed bytes, the high half first (Dettmers et al. 2023, appendix E)."""
    levels = [
        -1.0,
        -0.6961928009986877,
        -0.5250730514526367,
        -0.39491748809814453,
        -0.28444138169288635,
    ]
    levels += [
        -0.18477343022823334,
        -0.09105003625154495,
        0.0,
        0.07958029955625534,
        0.16093020141124725,
    ]
    levels += [0.24611230194568634, 0.33791524171829224, 0.44070982933044434, 0.5626170039176941]
    levels += [0.7229568362236023, 1.0]
    table = torch.tensor(levels, device=packed.device)
    flat = packed.reshape(-1).long()
    return table[torch.stack([flat >> 4, flat & 15], 1).reshape(-1)]


def attention_over_pages(query, keys, values, table, lengths):
    """One query for each sequence over keys and values that lie in pages; heads of keys are shared by groups of
    query heads.
    """
    batch, heads, dim = query.shape
    group = heads // keys.shape[2]
    k = keys[table.long()].reshape(batch, -1, keys.shape[2], dim).repeat_interleave(group, 2)
    v = values[table.long()].reshape(batch, -1, values.shape[2], dim).repeat_interleave(group, 2)
    scores = torch.einsum("bhd,bshd->bhs", query.float(), k.float()) * dim**-0.5
    beyond = torch.arange(k.shape[1], device=query.device)[None, None, :] >= lengths[:, None, None]
    weights = scores.masked_fill(beyond, float("-inf")).softmax(-1)
    return torch.einsum("bhs,bshd->bhd", weights, v.float()).to(query.dtype)


def causal_over_pages(query, keys, values, table, lengths):
    """Queries of equally many tokens for each sequence, the last ones of it, over keys and values in pages:
    (tokens, heads, dim).
    """
    batch, heads, dim = table.shape[0], query.shape[1], query.shape[2]
    q = query.reshape(batch, -1, heads, dim).float()
    k = keys[table.long()].reshape(batch, -1, heads, dim).float()
    v = values[table.long()].reshape(batch, -1, heads, dim).float()
    scores = torch.einsum("bqhd,bshd->bhqs", q, k) * dim**-0.5
    place = torch.arange(q.shape[1], device=query.device)[None, :] + lengths[:, None] - q.shape[1]
    beyond = (
        torch.arange(k.shape[1], device=query.device)[None, None, None, :] > place[:, None, :, None]
    )
    weights = scores.masked_fill(beyond, float("-inf")).softmax(-1)
    return torch.einsum("bhqs,bshd->bqhd", weights, v).reshape(query.shape).to(query.dtype)


def pooled_cells(features, cells, number):
    """Sums of the features of each cell, (1, 1, number, 1, channels). A cell's coordinates are x, y, z and batch."""
    total = torch.zeros(number, features.shape[1], device=features.device, dtype=features.dtype)
    return total.index_add(0, cells[:, 0].long(), features).view(1, 1, number, 1, -1)


def poly_normalised(x, weight, bias, eps):
    """A weighted sum of the normalised third, second and first powers of a row (PolyNorm, arXiv:2411.03884)."""
    powers = (x**3, x**2, x)
    scaled = (p * torch.rsqrt(p.square().mean(-1, keepdim=True) + eps) for p in powers)
    return sum(w * p for w, p in zip(weight, scaled, strict=True)) + bias


def depth_attention(x, query, norm, eps):
    """Softmax attention over the first dimension: (blocks, batch, length, hidden) -> (batch, length, hidden)."""
    keys = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * norm
    weights = (keys * query).sum(-1).softmax(0)
    return (weights[..., None] * x).sum(0)


def sparse_maximum(x):
    """The projection of each row onto the simplex (Martins and Astudillo 2016)."""
    ordered = x.sort(-1, descending=True).values
    total = ordered.cumsum(-1) - 1
    count = torch.arange(1, x.shape[-1] + 1, device=x.device, dtype=x.dtype)
    inside = ordered * count > total
    size = inside.sum(-1, keepdim=True).clamp(min=1)
    threshold = total.gather(-1, size - 1) / size.to(x.dtype)
    return torch.clamp(x - threshold, min=0)


def rotated_halves(x, cos, sin):
    """Rotary embedding of (batch, heads, length, dim) by cos and sin of (batch or 1, length, dim), the halves as
    pairs.
    """
    first, second = x.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return x * cos.unsqueeze(1) + turned * sin.unsqueeze(1)


def sections(table):
    """Of three tables (3, batch, length, dim) the first eighth of the half dimension, the second, and the rest from
    the third.
    """
    half = table.shape[-1] // 2
    part = half // 4
    mixed = torch.cat(
        [table[0, ..., :part], table[1, ..., part : 2 * part], table[2, ..., 2 * part : half]], -1
    )
    return torch.cat([mixed, mixed], -1)


def streams(x):
    """(batch, length, streams, hidden), of which the streams are a power of two. Raises ValueError for others."""
    if x.shape[2] & (x.shape[2] - 1):
        raise ValueError(f"{x.shape[2]} streams are no power of two")
    return x


def turned_pairs(x, turns):
    """(batch, length, heads, dim) as complex numbers of neighbouring elements, times the numbers (length, dim / 2,
    real and imaginary). Raises ValueError where these are not pairs.
    """
    if turns.shape[-1] != 2:
        raise ValueError("a turn has a real and an imaginary part")
    real, imaginary = x[..., 0::2], x[..., 1::2]
    rows = turns if turns.dim() == 4 else turns[None]
    c, s = rows[:, :, None, :, 0], rows[:, :, None, :, 1]
    return torch.stack([real * c - imaginary * s, real * s + imaginary * c], -1).flatten(-2)


def jensen_shannon(x, y, beta):
    """The generalised divergence of log probabilities, the sum over all divided by the number of rows."""
    p, q = y.exp(), x.exp()
    middle = (beta * p + (1 - beta) * q).log()
    return (beta * p * (y - middle) + (1 - beta) * q * (x - middle)).sum() / x.shape[0]


def multi_token(scores, weight, bias):
    """Causal softmax, a convolution over the weights, zero above the diagonal again (arXiv:2504.00927)."""
    above = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
    weights = scores.masked_fill(above, -1e9).softmax(-1)
    mixed = torch.nn.functional.conv2d(weights, weight, bias, padding=1)
    return mixed.masked_fill(above, 0.0)


def neighbours(q, k, v, size):
    """Attention of each position to those at most size // 2 away: (batch, heads, length, dim)."""
    place = torch.arange(q.shape[2], device=q.device)
    far = (place[:, None] - place[None, :]).abs() > size // 2
    scores = (q @ k.transpose(-1, -2)) * q.shape[-1] ** -0.5
    return scores.masked_fill(far, float("-inf")).softmax(-1) @ v


def rotated_by_row(x, cos, sin):
    """Rotary embedding of (batch, length, heads, dim) by cos and sin of (length, dim / 2), the halves as pairs."""
    first, second = x.chunk(2, -1)
    c, s = cos[None, :, None], sin[None, :, None]
    return torch.cat([first * c - second * s, second * c + first * s], -1)


def hadamard(x):
    """The Hadamard transform of rows whose length is a power of two."""
    rows, size, step = x.shape[0], x.shape[1], 1
    while step < size:
        pairs = x.view(rows, -1, 2, step)
        x = torch.stack([pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]], 2).view(
            rows, size
        )
        step *= 2
    return x


def causal_ratios(g):
    """exp of the sum of g from after s up to t for s <= t, 0 above: (batch, length, heads, ...) -> (batch, heads,
    t, s, ...).
    """
    total = g.float().cumsum(1).transpose(1, 2)
    gap = total[:, :, :, None] - total[:, :, None, :]
    shape = (1, 1, g.shape[1], g.shape[1], *[1] * (g.dim() - 3))
    above = (
        torch.ones(g.shape[1], g.shape[1], dtype=torch.bool, device=g.device).triu(1).view(shape)
    )
    return gap.masked_fill(above, float("-inf")).exp()


def decayed_attention(q, k, v, g=None):
    """Linear attention without a softmax, each earlier step decayed by exp of the sum of g since: (batch, length,
    heads, dim).
    """
    scores = torch.einsum("bthk,bshk->bhts", q, k) * q.shape[-1] ** -0.5
    ratios = scores.new_ones(scores.shape).tril() if g is None else causal_ratios(g)
    return torch.einsum("bhts,bshv->bthv", (scores * ratios).to(v.dtype), v)


def retention_decay(q):
    """log(1 - 2^(-5 - head)) at every step (Sun et al. 2023): (batch, length, heads)."""
    heads = torch.arange(q.shape[2], device=q.device, dtype=torch.float32)
    return torch.log(1 - 2.0 ** (-5 - heads)).expand(q.shape[:3])


def lightning_decay(q, layer, layers):
    """The slopes of lightning attention at every step: (batch, length, heads)."""
    heads = torch.arange(q.shape[2], device=q.device, dtype=torch.float32)
    return (-8 / q.shape[2] * (1 - layer / layers) * heads).expand(q.shape[:3])


def gated_attention(q, k, v, g, scale=None):
    """Linear attention with a decay of its own for each element of the keys: g is (batch, length, heads, dim)."""
    scores = torch.einsum("bthk,bshk,bhtsk->bhts", q.float(), k.float(), causal_ratios(g))
    scaled = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    return torch.einsum("bhts,bshv->bthv", scaled, v.float()).to(v.dtype)


def unit(x):
    """Rows over their length, in float32."""
    return x.float() * torch.rsqrt(x.float().square().sum(-1, keepdim=True) + 1e-6)


def delta_rule(q, k, v, beta, g):
    """The (gated) delta rule by one triangular system (Yang et al. 2024): what is written at a step is what its key
    does not yet hold.
    """
    q, k = unit(q), unit(k)
    ratios = torch.ones_like(causal_ratios(beta)).tril() if g is None else causal_ratios(g)
    strength = beta.float().transpose(1, 2)[..., None]
    mixed = (torch.einsum("bthk,bshk->bhts", k, k) * ratios * strength).tril(-1)
    written = torch.linalg.solve_triangular(
        mixed, strength * v.float().transpose(1, 2), upper=False, unitriangular=True
    )
    scores = torch.einsum("bthk,bshk->bhts", q, k) * ratios * q.shape[-1] ** -0.5
    return (scores @ written).transpose(1, 2).to(v.dtype)


def kimi_delta(q, k, v, beta, g):
    """The delta rule with a decay of its own for each element of the keys (Kimi Delta Attention)."""
    q, k = unit(q), unit(k)
    ratios = causal_ratios(g)
    strength = beta.float().transpose(1, 2)[..., None]
    mixed = (torch.einsum("bthk,bshk,bhtsk->bhts", k, k, ratios) * strength).tril(-1)
    written = torch.linalg.solve_triangular(
        mixed, strength * v.float().transpose(1, 2), upper=False, unitriangular=True
    )
    scores = torch.einsum("bthk,bshk,bhtsk->bhts", q, k, ratios) * q.shape[-1] ** -0.5
    return (scores @ written).transpose(1, 2).to(v.dtype)


def receptance(q, k, v, w, u):
    """RWKV-6: the state before a step decays after it is read, and the step itself counts by u: (batch, length,
    heads, dim).
    """
    before = torch.cat([torch.zeros_like(w[:, :1]), w], 1).cumsum(1).transpose(1, 2)
    read, kept = before[:, :, :-1], before[:, :, 1:]
    above = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).triu()[:, :, None]
    ratios = (read[:, :, :, None] - kept[:, :, None]).masked_fill(above, float("-inf")).exp()
    scores = torch.einsum("bthk,bshk,bhtsk->bhts", q, k, ratios)
    now = (q * u * k).sum(-1, keepdim=True) * v
    return (torch.einsum("bhts,bshv->bthv", scores, v) + now) * q.shape[-1] ** -0.5


def slot_attention(q, k, v, s, g):
    """Gated slot attention: two passes of linear attention over slots with a softmax between them (Zhang et al.
    2024).
    """
    ratios = causal_ratios(g)
    read = torch.einsum("bthk,bshk,bhtsm,bshm->bthm", q, k, ratios, s) * q.shape[-1] ** -0.5
    return torch.einsum("bthm,bhtsm,bshm,bshv->bthv", read.softmax(-1), ratios, s, v)


def decayed_sum(x, g):
    """Sums of x along the second dimension, each earlier step decayed by exp of the sum of g since: (batch, length,
    dim).
    """
    ratios = causal_ratios(g[:, :, None])[:, 0]
    return (ratios * x[:, None]).sum(2)


def causal_attention(q, k, v, window=None, g=None):
    """Softmax attention to earlier steps, at most `window` of them, log decays g added to the scores: (batch,
    length, heads, dim).
    """
    scores = torch.einsum("bthk,bshk->bhts", q, k).float() * q.shape[-1] ** -0.5
    if g is not None:
        total = g.float().cumsum(1).transpose(1, 2)
        scores = scores + total[..., None] - total[..., None, :]
    hidden = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).triu(1)
    if window is not None:
        hidden = hidden | torch.ones_like(hidden).tril(-window)
    weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
    return torch.einsum("bhts,bshv->bthv", weights.to(v.dtype), v)


def stick_breaking(q, k, v):
    """Stick-breaking attention to earlier steps, the nearest first (Tan et al. 2024): (batch, length, heads, dim)."""
    scores = torch.einsum("bthk,bshk->bhts", q, k).float() * q.shape[-1] ** -0.5
    hidden = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).triu()
    left = torch.nn.functional.logsigmoid(-scores).masked_fill(hidden, 0.0)
    after = left.flip(-1).cumsum(-1).flip(-1) - left
    weights = (
        (torch.nn.functional.logsigmoid(scores) + after).masked_fill(hidden, float("-inf")).exp()
    )
    return torch.einsum("bhts,bshv->bthv", weights.to(v.dtype), v)


def channel_convolution(x, weight, bias):
    """A convolution of each channel over this and earlier steps: (batch, length, channels), weight (channels,
    width).
    """
    padded = torch.nn.functional.pad(x.transpose(1, 2), [weight.shape[1] - 1, 0])
    return torch.nn.functional.conv1d(
        padded, weight[:, None], bias, groups=weight.shape[0]
    ).transpose(1, 2)


def chunk_sums(x, size):
    """Running sums along the second dimension that begin anew every `size` steps."""
    chunks = torch.nn.functional.pad(x.movedim(1, -1), [0, -x.shape[1] % size]).unflatten(
        -1, (-1, size)
    )
    return chunks.cumsum(-1).flatten(-2)[..., : x.shape[1]].movedim(-1, 1)


def pooled_chunks(x, size):
    """Means over chunks of `size` steps along the second dimension, the last one over what is left."""
    total = (
        torch.nn.functional.pad(x.movedim(1, -1), [0, -x.shape[1] % size])
        .unflatten(-1, (-1, size))
        .sum(-1)
    )
    counts = torch.clamp(
        x.shape[1] - torch.arange(total.shape[-1], device=x.device) * size, max=size
    )
    return (total / counts).movedim(-1, 1).to(x.dtype)
