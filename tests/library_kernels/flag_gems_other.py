"""flag-gems: reductions, norms, losses, products, indices, padding and pooling, attention."""

from __future__ import annotations

from tests.library_kernels.flag_gems_pointwise import FLAG_GEMS
from tests.library_kernels.table import LibraryKernel, rows

REDUCTIONS = """
all | . | . | x=randint(0, 2, (rows, columns)).bool()
all_dim | flag_gems.all_dim(x, 1) | torch.all(x, 1) | x=rand(rows, columns) > 0.01
any | . | . | x=rand(rows, columns) > 0.999
any_dim | flag_gems.any_dim(x, 1) | torch.any(x, 1) | x=rand(rows, columns) > 0.98
amax | flag_gems.amax(x, [1]) | torch.amax(x, 1)
amax_first | flag_gems.amax(x, [0]) | torch.amax(x, 0)
aminmax | flag_gems.aminmax(x, dim=1) | torch.aminmax(x, dim=1)
argmax | flag_gems.argmax(x, 1) | torch.argmax(x, 1)
argmin | flag_gems.argmin(x, 1) | torch.argmin(x, 1) | . | left=gives indices beyond the row where the row is shorter than its block
argmax_first | flag_gems.argmax(x, 0) | torch.argmax(x, 0) | . | left=does not compile with Triton 3.6
count_nonzero | flag_gems.count_nonzero(x, 1) | torch.count_nonzero(x, 1) | x=randint(0, 3, (rows, columns))
cummax | flag_gems.cummax(x, 1) | torch.cummax(x, 1) | . | left=NaN is lost where a row takes several blocks
cummin | flag_gems.cummin(x, 1) | torch.cummin(x, 1) | . | left=NaN is lost where a row takes several blocks
cumsum | flag_gems.cumsum(x, 1) | torch.cumsum(x, 1) | . | left=its kernel calls a plain Python function while it is compiled
cumsum_first | flag_gems.cumsum(x, 0) | torch.cumsum(x, 0)
max
max_dim | flag_gems.max_dim(x, 1) | torch.max(x, 1)
mean
mean_dim | flag_gems.mean_dim(x, [1]) | torch.mean(x, 1)
mean_first | flag_gems.mean_dim(x, [0]) | torch.mean(x, 0)
min
min_dim | flag_gems.min_dim(x, 1) | torch.min(x, 1)
prod | . | . | x=rand(columns) * 0.2 + 0.9 | columns=1000/67
prod_dim | flag_gems.prod_dim(x, 1) | torch.prod(x, 1) | x=rand(rows, columns) * 0.2 + 0.9 | columns=1000/67
quantile | flag_gems.quantile(x, q, 1) | torch.quantile(x, q, 1) | x=randn(rows, columns), q=rand(3) | rows=256/5; columns=1000/67; left=its host code reads q, and its indices lie outside of the row
std | flag_gems.std(x, [1], correction=1) | torch.std(x, 1, correction=1)
sum
sum_dim | flag_gems.sum_dim(x, [1]) | torch.sum(x, 1)
sum_first | flag_gems.sum_dim(x, [0]) | torch.sum(x, 0)
sum_keepdim | flag_gems.sum_dim(x, [1], keepdim=True) | torch.sum(x, 1, keepdim=True)
sum_middle | flag_gems.sum_dim(x, [1]) | torch.sum(x, 1) | x=randn(batch, rows, columns) | rows=512/5; columns=1025/67
sum_half | flag_gems.sum_dim(x, [1]) | torch.sum(x, 1) | . | dtype=float16
trace | . | . | x=randn(rows, rows)
var | flag_gems.var(x, [1], correction=0) | torch.var(x, 1, correction=0) | . | left=the variance of equal numbers is not 0 but a rounding of their square
var_mean | flag_gems.var_mean(x, [1], correction=1) | torch.var_mean(x, 1, correction=1) | . | left=the variance of equal numbers is not 0 but a rounding of their square
vector_norm | flag_gems.vector_norm(x, 2, [1]) | torch.linalg.vector_norm(x, 2, 1)
vector_norm_1 | flag_gems.vector_norm(x, 1, [1]) | torch.linalg.vector_norm(x, 1, 1)
vector_norm_max | flag_gems.vector_norm(x, math.inf, [1]) | torch.linalg.vector_norm(x, math.inf, 1)
sort | flag_gems.sort(x, 1)[0] | torch.sort(x, 1)[0] | . | rows=512/5; columns=1000/67; own=share:0.3; left=its kernel calls a plain Python function while it is compiled
topk | flag_gems.topk(x, 5) | torch.topk(x, 5) | . | if=columns >= 5; left=gives indices and values of its own padding for rows of equal numbers
topk_smallest | flag_gems.topk(x, 3, largest=False) | torch.topk(x, 3, largest=False) | . | if=columns >= 5; left=gives indices and values of its own padding for rows of equal numbers
dot | . | . | x=randn(size), y=randn(size)
vdot | . | . | x=randn(size), y=randn(size)
"""

NORMS = """
softmax | flag_gems.softmax(x, -1) | x.softmax(-1)
softmax_half | flag_gems.softmax(x, -1) | x.softmax(-1) | . | dtype=float16
softmax_first | flag_gems.softmax(x, 0) | x.softmax(0)
softmax_middle | flag_gems.softmax(x, 1) | x.softmax(1) | x=randn(batch, channels, columns)
log_softmax | flag_gems.log_softmax(x, -1) | x.log_softmax(-1)
log_softmax_middle | flag_gems.log_softmax(x, 1) | x.log_softmax(1) | x=randn(batch, channels, columns)
safe_softmax | flag_gems._safe_softmax(x, -1) | x.softmax(-1) | . | left=writes no more than the first 4,096 columns
scaled_softmax | flag_gems.scaled_softmax_forward(x, 0.3) | (x * 0.3).softmax(-1) | x=randn(batch, heads, length, length) | batch=2/2; length=512/40; dtype=float16; if=length % 8 == 0
layer_norm | flag_gems.layer_norm(x, x.shape[-1:], self.weight, self.bias)[0] | functional.layer_norm(x, x.shape[-1:], self.weight, self.bias) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5, bias=randn(hidden)
layer_norm_half | flag_gems.layer_norm(x, x.shape[-1:], self.weight, self.bias)[0] | functional.layer_norm(x, x.shape[-1:], self.weight, self.bias) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5, bias=randn(hidden); dtype=float16
layer_norm_plain | flag_gems.layer_norm(x, x.shape[-1:])[0] | functional.layer_norm(x, x.shape[-1:]) | x=randn(rows, hidden)
rms_norm | flag_gems.rms_norm(x, x.shape[-1:], self.weight, 1e-5) | rms_normalised(x, self.weight, 1e-5) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5
rms_norm_half | flag_gems.rms_norm(x, x.shape[-1:], self.weight, 1e-5) | rms_normalised(x, self.weight, 1e-5) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5; dtype=float16
skip_layer_norm | flag_gems.skip_layer_norm(x, residual, x.shape[-1:], self.weight, self.bias) | functional.layer_norm(x + residual, x.shape[-1:], self.weight, self.bias) | x=randn(rows, hidden), residual=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5, bias=randn(hidden)
fused_add_rms_norm | flag_gems.fused_add_rms_norm(x, residual, x.shape[-1:], self.weight, 1e-5) | residual.add_(x); (x.copy_(rms_normalised(residual, self.weight, 1e-5)), residual) | x=randn(rows, hidden), residual=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5
group_norm | flag_gems.group_norm(x, self.weight, self.bias, x.shape[0], x.shape[1], x.shape[2], 2)[0] | functional.group_norm(x, 2, self.weight, self.bias) | x=randn(batch, channels, columns) | channels=64/8; init=channels; parameters=weight=rand(channels) + 0.5, bias=randn(channels); if=channels in (8, 16, 32, 64, 128)
instance_norm | flag_gems.instance_norm(x, self.weight, self.bias) | functional.instance_norm(x, weight=self.weight, bias=self.bias) | x=randn(batch, channels, columns) | init=channels; parameters=weight=rand(channels) + 0.5, bias=randn(channels)
batch_norm | flag_gems.batch_norm(x, self.weight, self.bias, mean, variance, False)[0] | functional.batch_norm(x, mean, variance, self.weight, self.bias) | x=randn(batch, channels, columns), mean=randn(channels), variance=rand(channels) + 0.5 | init=channels; parameters=weight=rand(channels) + 0.5, bias=randn(channels)
weight_norm | flag_gems.weight_norm_interface(x, g, 0)[0] | x * (g / torch.linalg.vector_norm(x, 2, 1, keepdim=True)) | x=randn(rows, columns), g=rand(rows, 1) + 0.5 | rows=1024/5
geglu | . | functional.gelu(x.chunk(2, -1)[0], approximate="tanh") * x.chunk(2, -1)[1] | x=randn(rows, 2 * inner)
swiglu | . | functional.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1] | x=randn(rows, 2 * inner)
reglu | . | functional.relu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1] | x=randn(rows, 2 * inner)
mse_loss | . | functional.mse_loss(x, y) | x=randn(rows, columns), y=randn(rows, columns)
mse_loss_none | flag_gems.mse_loss(x, y, 0) | functional.mse_loss(x, y, reduction="none") | x=randn(rows, columns), y=randn(rows, columns)
soft_margin_loss | flag_gems.soft_margin_loss(x, y, "none") | functional.soft_margin_loss(x, y, reduction="none") | x=randn(rows, columns), y=randint(0, 2, (rows, columns)) * 2.0 - 1 | left=an infinite input gives a number
nll_loss | flag_gems.nll_loss_forward(x, target, None, 0)[0] | functional.nll_loss(x, target, reduction="none") | x=randn(rows, vocabulary).log_softmax(-1), target=randint(0, vocabulary, (rows,)) | rows=512/5
cross_entropy | flag_gems.cross_entropy_loss(x, target, reduction="none") | functional.cross_entropy(x, target, reduction="none") | x=randn(rows, vocabulary), target=randint(0, vocabulary, (rows,)) | rows=512/5; left=its maximum begins at 0: infinity for logits that are all under -100
cross_entropy_sum | flag_gems.cross_entropy_loss(x, target, reduction="sum") | functional.cross_entropy(x, target, reduction="sum") | x=randn(rows, vocabulary), target=randint(0, vocabulary, (rows,)) | rows=512/5; left=its maximum begins at 0: infinity for logits that are all under -100
cross_entropy_smooth | flag_gems.cross_entropy_loss(x, target, reduction="none", label_smoothing=0.1) | functional.cross_entropy(x, target, reduction="none", label_smoothing=0.1) | x=randn(rows, vocabulary), target=randint(0, vocabulary, (rows,)) | rows=512/5; left=its maximum begins at 0: infinity for logits that are all under -100
topk_softmax | weights = torch.empty(x.shape[0], 4, device=x.device); indices = torch.empty(x.shape[0], 4, dtype=torch.int32, device=x.device); flag_gems.topk_softmax(weights, indices, torch.empty_like(indices), x); weights | x.softmax(-1).topk(4).values | x=randn(rows, experts) | needs=gpu; if=experts >= 4 and experts <= 1024
moe_sum | out = torch.empty(x.shape[0], x.shape[2], device=x.device); flag_gems.moe_sum(x, out); out | x.sum(1) | x=randn(rows, 4, hidden) | rows=1024/5; hidden=2048/70
repetition_penalties | flag_gems.apply_repetition_penalties(x, prompt, said, penalty.abs()); x | x.copy_(torch.where(prompt.logical_or(said), torch.where(x > 0, x / penalty.abs()[:, None], x * penalty.abs()[:, None]), x)) | x=randn(rows, vocabulary), prompt=rand(rows, vocabulary) > 0.9, said=rand(rows, vocabulary) > 0.9, penalty=rand(rows) + 1 | rows=256/5; own=share:0.5
rotary | flag_gems.apply_rotary_pos_emb(q, k, cos, sin) | (rotated_by_row(q, cos, sin), rotated_by_row(k, cos, sin)) | q=randn(batch, length, heads, dim), k=randn(batch, length, 2, dim), cos=randn(length, dim // 2), sin=randn(length, dim // 2) | batch=4/2; length=512/9; if=dim % 2 == 0
rotary_pairs | flag_gems.apply_rotary_pos_emb(q, k, cos, sin, positions, rotary_interleaved=True) | (turned_pairs(q, torch.stack([cos, sin], -1)[positions.view(-1)].view(*q.shape[:2], -1, 2)), turned_pairs(k, torch.stack([cos, sin], -1)[positions.view(-1)].view(*q.shape[:2], -1, 2))) | q=randn(batch, length, heads, dim), k=randn(batch, length, heads, dim), cos=randn(length, dim // 2), sin=randn(length, dim // 2), positions=randint(0, length, (batch, length)) | batch=4/2; length=512/9; if=dim % 2 == 0
hadamard | flag_gems.hadamard_transform(x, 0.125) | hadamard(x) * 0.125 | x=randn(rows, 64) | rows=65536/5
"""

PRODUCTS = """
mm_half | flag_gems.mm(x, y) | x @ y | x=randn(rows, inner), y=randn(inner, columns) | dtype=float16; rows=2048/5
mm_half_transposed | flag_gems.mm(x, y.t()) | x @ y.t() | x=randn(rows, inner), y=randn(columns, inner) | dtype=float16; rows=2048/5
mm_bfloat16 | flag_gems.mm(x, y) | x @ y | x=randn(rows, inner), y=randn(inner, columns) | dtype=bfloat16; rows=2048/5
bmm_half | flag_gems.bmm(x, y) | x @ y | x=randn(batch, rows, inner), y=randn(batch, inner, columns) | dtype=float16; rows=512/5; columns=513/67; inner=256/35
addmm_half | flag_gems.addmm(z, x, y, beta=0.5, alpha=2.0) | torch.addmm(z, x, y, beta=0.5, alpha=2.0) | z=randn(columns), x=randn(rows, inner), y=randn(inner, columns) | dtype=float16; rows=2048/5
baddbmm_half | flag_gems.baddbmm(z, x, y) | torch.baddbmm(z, x, y) | z=randn(batch, rows, columns), x=randn(batch, rows, inner), y=randn(batch, inner, columns) | dtype=float16; rows=512/5; columns=513/67; inner=256/35
mv | . | . | x=randn(rows, columns), y=randn(columns)
addmv | . | . | z=randn(rows), x=randn(rows, columns), y=randn(columns)
addr | . | . | z=randn(rows, columns), x=randn(rows), y=randn(columns)
outer | . | . | x=randn(rows), y=randn(columns)
kron | . | . | x=randn(rows, 7), y=randn(5, columns) | rows=64/5; columns=513/67
conv1d_half | flag_gems.conv1d(x, self.weight, self.bias, 1, 1) | functional.conv1d(x, self.weight, self.bias, 1, 1) | x=randn(batch, channels, columns) | init=channels; parameters=weight=randn(32, channels, 3) * 0.1, bias=randn(32); dtype=float16
conv2d_half | flag_gems.conv2d(x, self.weight, self.bias, 1, 1) | functional.conv2d(x, self.weight, self.bias, 1, 1) | x=randn(batch, channels, height, width) | init=channels; parameters=weight=randn(32, channels, 3, 3) * 0.1, bias=randn(32); dtype=float16
conv2d_stride_half | flag_gems.conv2d(x, self.weight, None, 2, 0) | functional.conv2d(x, self.weight, None, 2, 0) | x=randn(batch, channels, height, width) | init=channels; parameters=weight=randn(16, channels, 5, 5) * 0.1; dtype=float16
conv3d_half | flag_gems.conv3d(x, self.weight, self.bias, 1, 1) | functional.conv3d(x, self.weight, self.bias, 1, 1) | x=randn(batch, channels, 8, height, width) | init=channels; parameters=weight=randn(16, channels, 3, 3, 3) * 0.1, bias=randn(16); dtype=float16; batch=2/2; channels=16/3; height=64/7; width=65/6
attention_half | flag_gems.scaled_dot_product_attention(q, k, v) | functional.scaled_dot_product_attention(q, k, v) | q=randn(batch, heads, length, 64), k=randn(batch, heads, length, 64), v=randn(batch, heads, length, 64) | dtype=float16; batch=2/2; length=1024/33; needs=gpu
attention_causal_half | flag_gems.scaled_dot_product_attention(q, k, v, is_causal=True) | functional.scaled_dot_product_attention(q, k, v, is_causal=True) | q=randn(batch, heads, length, 64), k=randn(batch, heads, length, 64), v=randn(batch, heads, length, 64) | dtype=float16; batch=2/2; length=1024/33; needs=gpu
"""

INDICES = """
gather | flag_gems.gather(x, 1, index) | torch.gather(x, 1, index) | x=randn(rows, columns), index=randint(0, columns, (rows, 33))
index_select | flag_gems.index_select(x, 0, index) | torch.index_select(x, 0, index) | x=randn(rows, columns), index=randint(0, rows, (77,))
index_select_columns | flag_gems.index_select(x, 1, index) | torch.index_select(x, 1, index) | x=randn(rows, columns), index=randint(0, columns, (77,))
embedding | flag_gems.embedding(self.weight, tokens) | self.weight[tokens] | tokens=randint(0, vocabulary, (batch, length)) | init=vocabulary, hidden; parameters=weight=randn(vocabulary, hidden); hidden=1024/70
scatter | flag_gems.scatter(x, 1, index, source) | torch.scatter(x, 1, index, source) | x=randn(rows, columns), index=rand(rows, columns).argsort(1), source=randn(rows, columns)
scatter_add_ | flag_gems.scatter_add_(x, 1, index, source) | x.scatter_add_(1, index, source) | x=randn(rows, columns), index=randint(0, columns, (rows, columns)), source=randn(rows, columns)
select_scatter | flag_gems.select_scatter(x, y, 0, 2) | torch.select_scatter(x, y, 0, 2) | x=randn(rows, columns), y=randn(columns) | if=rows > 2
slice_scatter | flag_gems.slice_scatter(x, y, 0, 1, 3) | torch.slice_scatter(x, y, 0, 1, 3) | x=randn(rows, columns), y=randn(2, columns) | if=rows > 2
flip | flag_gems.flip(x, [1]) | torch.flip(x, [1])
flip_both | flag_gems.flip(x, [0, 1]) | torch.flip(x, [0, 1])
roll | flag_gems.roll(x, 3, 1) | torch.roll(x, 3, 1)
tile | flag_gems.tile(x, (2, 3)) | torch.tile(x, (2, 3)) | . | rows=1024/5; columns=1025/67
repeat | flag_gems.repeat(x, (2, 3)) | x.repeat(2, 3) | . | rows=1024/5; columns=1025/67
repeat_interleave | flag_gems.repeat_interleave_self_int(x, 3, 1) | torch.repeat_interleave(x, 3, 1) | . | rows=1024/5; columns=1025/67
cat | flag_gems.cat([x, y], 1) | torch.cat([x, y], 1) | x=randn(rows, columns), y=randn(rows, inner)
stack | flag_gems.stack([x, y], 1) | torch.stack([x, y], 1) | x=randn(rows, columns), y=randn(rows, columns)
hstack | flag_gems.hstack([x, y]) | torch.hstack([x, y]) | x=randn(rows, columns), y=randn(rows, inner)
vstack | flag_gems.vstack([x, y]) | torch.vstack([x, y]) | x=randn(rows, columns), y=randn(inner, columns)
diag | . | . | x=randn(columns)
diag_embed | . | . | x=randn(batch, columns) | columns=513/67
tril | . | . | x=randn(rows, columns)
tril_offset | flag_gems.tril(x, -3) | torch.tril(x, -3)
triu | . | . | x=randn(rows, columns)
triu_offset | flag_gems.triu(x, 2) | torch.triu(x, 2) | x=randn(batch, rows, columns) | rows=512/5; columns=513/67
t_copy | . | x.t().clone()
pad | flag_gems.pad(x, [1, 2, 3, 4]) | functional.pad(x, [1, 2, 3, 4])
pad_value | flag_gems.constant_pad_nd(x, [2, 0], 1.5) | functional.pad(x, [2, 0], value=1.5)
pad_reflect | flag_gems.pad(x, [2, 3], mode="reflect") | functional.pad(x, [2, 3], mode="reflect") | x=randn(batch, channels, columns) | if=columns > 3
reflection_pad1d | flag_gems.reflection_pad1d(x, [2, 3]) | functional.pad(x, [2, 3], mode="reflect") | x=randn(batch, channels, columns) | if=columns > 3
reflection_pad2d | flag_gems.reflection_pad2d(x, [1, 2, 2, 1]) | functional.pad(x, [1, 2, 2, 1], mode="reflect") | x=randn(batch, channels, height, width) | if=height > 3 and width > 3
replication_pad1d | flag_gems.replication_pad1d(x, [2, 3]) | functional.pad(x, [2, 3], mode="replicate") | x=randn(batch, channels, columns)
replication_pad3d | flag_gems.replication_pad3d(x, [1, 2, 2, 1, 1, 0]) | functional.pad(x, [1, 2, 2, 1, 1, 0], mode="replicate") | x=randn(batch, channels, 5, height, width) | batch=2/2; channels=16/3
pixel_unshuffle | flag_gems.pixel_unshuffle(x, 2) | functional.pixel_unshuffle(x, 2) | x=randn(batch, channels, 2 * height, 2 * width) | height=64/5; width=65/6
one_hot | flag_gems.one_hot(x, 37) | functional.one_hot(x, 37) | x=randint(0, 37, (rows, 9))
isin | flag_gems.isin(x, y) | torch.isin(x, y) | x=randint(0, 1000, (rows, columns)), y=randint(0, 1000, (77,)) | left=torch sorts for it
where_compared | flag_gems.where_self(flag_gems.gt_scalar(x, 0), x, y) | torch.where(x > 0, x, y) | x=randn(rows, columns), y=randn(columns)
avg_pool2d | flag_gems.avg_pool2d(x, 3, 2, 1) | functional.avg_pool2d(x, 3, 2, 1) | x=randn(batch, channels, height, width)
max_pool2d | flag_gems.max_pool2d_with_indices(x, 3, 2, 1)[0] | functional.max_pool2d(x, 3, 2, 1) | x=randn(batch, channels, height, width)
upsample_nearest1d | flag_gems.upsample_nearest1d(x, [2 * x.shape[2]]) | functional.interpolate(x, scale_factor=2, mode="nearest") | x=randn(batch, channels, columns) | columns=1025/67; left=its host code makes a tensor of a number and reads it back
upsample_nearest2d | flag_gems.upsample_nearest2d(x, [2 * x.shape[2], 3 * x.shape[3]]) | functional.interpolate(x, scale_factor=(2, 3), mode="nearest") | x=randn(batch, channels, height, width) | height=64/5; width=65/6
upsample_linear1d | flag_gems.upsample_linear1d(x, [2 * x.shape[2]], False) | functional.interpolate(x, scale_factor=2, mode="linear") | x=randn(batch, channels, columns) | columns=1025/67
upsample_bicubic2d | flag_gems.upsample_bicubic2d(x, [2 * x.shape[2], 2 * x.shape[3]]) | functional.interpolate(x, scale_factor=2, mode="bicubic") | x=randn(batch, channels, height, width) | height=64/5; width=65/6
"""


def other() -> list[LibraryKernel]:
    """All of them."""
    return [
        kernel
        for text in (REDUCTIONS, NORMS, PRODUCTS, INDICES)
        for kernel in rows(FLAG_GEMS, text)
    ]
