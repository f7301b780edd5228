"""fla-core: linear attention in its recurrent, chunked and parallel forms, and the modules that its layers are made
of.
"""

from __future__ import annotations

from tests.library_kernels.table import Library, LibraryKernel, rows

MODULES = {
    "fla.ops.linear_attn": "fused_recurrent_linear_attn chunk_linear_attn fused_chunk_linear_attn",
    "fla.ops.retention": "fused_recurrent_retention chunk_retention fused_chunk_retention parallel_retention",
    "fla.ops.simple_gla": "fused_recurrent_simple_gla chunk_simple_gla fused_chunk_simple_gla parallel_simple_gla",
    "fla.ops.lightning_attn": "fused_recurrent_lightning_attn chunk_lightning_attn",
    "fla.ops.gla": "fused_recurrent_gla chunk_gla",
    "fla.ops.delta_rule": "fused_recurrent_delta_rule chunk_delta_rule",
    "fla.ops.gated_delta_rule": "fused_recurrent_gated_delta_rule chunk_gated_delta_rule",
    "fla.ops.kda": "fused_recurrent_kda chunk_kda",
    "fla.ops.rwkv6": "fused_recurrent_rwkv6",
    "fla.ops.gsa": "fused_recurrent_gsa",
    "fla.ops.hgrn": "fused_recurrent_hgrn",
    "fla.ops.based": "parallel_based",
    "fla.ops.attn": "parallel_attn",
    "fla.ops.forgetting_attn": "parallel_forgetting_attn",
    "fla.ops.stickbreaking_attn": "parallel_stickbreaking_attn",
    "fla.ops.utils.cumsum": "chunk_local_cumsum chunk_global_cumsum",
    "fla.ops.utils.softmax": "softmax_fwd",
    "fla.ops.utils.logsumexp": "logsumexp_fwd",
    "fla.ops.utils.matmul": "matmul addmm",
    "fla.ops.utils.pooling": "mean_pooling",
    "fla.modules.activations": "sigmoid logsigmoid swish elu_p1 swiglu sigmoidglu powglu",
    "fla.modules.norm.layernorm": "layer_norm rms_norm group_norm RMSNorm",
    "fla.modules.norm.fused_norm_gate": "layer_norm_gated rms_norm_gated",
    "fla.modules.norm.layernorm_gated": "rmsnorm_fn layernorm_fn",
    "fla.modules.norm.l2norm": "l2norm",
    "fla.modules.rotary": "rotary_embedding",
    "fla.modules.token_shift": "token_shift",
    "fla.modules.causal_conv1d": "causal_conv1d",
    "fla.modules.fused_cross_entropy": "cross_entropy_loss",
}
FLA = Library(
    "fla",
    "fla-core",
    "0.6.0",
    imports={n: module for module, names in MODULES.items() for n in names.split()},
)

QKV = "q=randn(batch, length, heads, dim), k=randn(batch, length, heads, dim), v=randn(batch, length, heads, dim)"
SEQUENCES = "batch=2/1; heads=4/2; dim=64/32; if=dim in (32, 64, 128)"

RECURRENT = f"""
recurrent_linear_attn | fused_recurrent_linear_attn(q, k, v)[0] | decayed_attention(q, k, v) | {QKV}
recurrent_retention | fused_recurrent_retention(q, k, v)[0] | decayed_attention(q, k, v, retention_decay(q)) | {QKV} | own=share:0.5
recurrent_lightning_attn | fused_recurrent_lightning_attn(q, k, v, 2, 8)[0] | decayed_attention(q, k, v, lightning_decay(q, 2, 8)) | {QKV} | own=share:0.5
recurrent_simple_gla | fused_recurrent_simple_gla(q, k, v, functional.logsigmoid(g))[0] | decayed_attention(q, k, v, functional.logsigmoid(g)) | {QKV}, g=randn(batch, length, heads) | own=share:0.5
recurrent_gla | fused_recurrent_gla(q, k, v, functional.logsigmoid(g))[0] | gated_attention(q, k, v, functional.logsigmoid(g)) | {QKV}, g=randn(batch, length, heads, dim) | own=share:0.5
recurrent_delta_rule | fused_recurrent_delta_rule(q, k, v, torch.sigmoid(beta), use_qk_l2norm_in_kernel=True)[0] | delta_rule(q, k, v, torch.sigmoid(beta), None) | {QKV}, beta=randn(batch, length, heads) | own=share:0.5
recurrent_gated_delta_rule | fused_recurrent_gated_delta_rule(q, k, v, functional.logsigmoid(g), beta=torch.sigmoid(beta), use_qk_l2norm_in_kernel=True)[0] | delta_rule(q, k, v, torch.sigmoid(beta), functional.logsigmoid(g)) | {QKV}, g=randn(batch, length, heads), beta=randn(batch, length, heads) | own=share:0.5
recurrent_kda | fused_recurrent_kda(q, k, v, functional.logsigmoid(g), torch.sigmoid(beta), use_qk_l2norm_in_kernel=True)[0] | kimi_delta(q, k, v, torch.sigmoid(beta), functional.logsigmoid(g)) | {QKV}, g=randn(batch, length, heads, dim), beta=randn(batch, length, heads) | own=share:0.5
recurrent_rwkv6 | fused_recurrent_rwkv6(q, k, v, functional.logsigmoid(w), u)[0] | receptance(q, k, v, functional.logsigmoid(w), u) | {QKV}, w=randn(batch, length, heads, dim), u=randn(heads, dim) | own=share:0.5
recurrent_gsa | fused_recurrent_gsa(q, k, v, s, functional.logsigmoid(g))[0] | slot_attention(q, k, v, s, functional.logsigmoid(g)) | {QKV}, s=randn(batch, length, heads, 16), g=randn(batch, length, heads, 16) | own=share:0.3
recurrent_hgrn | fused_recurrent_hgrn(x, functional.logsigmoid(g))[0] | decayed_sum(x, functional.logsigmoid(g)) | x=randn(batch, length, dim), g=randn(batch, length, dim) | own=share:0.3
"""

CHUNKED = f"""
chunk_linear_attn | chunk_linear_attn(q, k, v, normalize=False)[0] | decayed_attention(q, k, v) | {QKV}
fused_chunk_linear_attn | fused_chunk_linear_attn(q, k, v, normalize=False)[0] | decayed_attention(q, k, v) | {QKV} | own=share:0.5
chunk_retention | chunk_retention(q, k, v)[0] | decayed_attention(q, k, v, retention_decay(q)) | {QKV} | own=share:0.5
fused_chunk_retention | fused_chunk_retention(q, k, v)[0] | decayed_attention(q, k, v, retention_decay(q)) | {QKV} | own=share:0.5
parallel_retention | parallel_retention(q, k, v)[0] | decayed_attention(q, k, v, retention_decay(q)) | {QKV} | own=share:0.5
chunk_lightning_attn | chunk_lightning_attn(q, k, v, 2, 8)[0] | decayed_attention(q, k, v, lightning_decay(q, 2, 8)) | {QKV} | own=share:0.5
chunk_simple_gla | chunk_simple_gla(q, k, v, functional.logsigmoid(g))[0] | decayed_attention(q, k, v, functional.logsigmoid(g)) | {QKV}, g=randn(batch, length, heads) | own=share:0.5
parallel_simple_gla | parallel_simple_gla(q, k, v, functional.logsigmoid(g))[0] | decayed_attention(q, k, v, functional.logsigmoid(g)) | {QKV}, g=randn(batch, length, heads) | own=share:0.5
chunk_gla | chunk_gla(q, k, v, functional.logsigmoid(g))[0] | gated_attention(q, k, v, functional.logsigmoid(g)) | {QKV}, g=randn(batch, length, heads, dim) | own=share:0.5
chunk_delta_rule | chunk_delta_rule(q, k, v, torch.sigmoid(beta), use_qk_l2norm_in_kernel=True)[0] | delta_rule(q, k, v, torch.sigmoid(beta), None) | {QKV}, beta=randn(batch, length, heads) | own=share:0.5
chunk_gated_delta_rule | chunk_gated_delta_rule(q, k, v, functional.logsigmoid(g), torch.sigmoid(beta), use_qk_l2norm_in_kernel=True)[0] | delta_rule(q, k, v, torch.sigmoid(beta), functional.logsigmoid(g)) | {QKV}, g=randn(batch, length, heads), beta=randn(batch, length, heads) | own=share:0.5
chunk_kda | chunk_kda(q, k, v, functional.logsigmoid(g), torch.sigmoid(beta), use_qk_l2norm_in_kernel=True)[0] | kimi_delta(q, k, v, torch.sigmoid(beta), functional.logsigmoid(g)) | {QKV}, g=randn(batch, length, heads, dim), beta=randn(batch, length, heads) | own=share:0.5
parallel_attn | parallel_attn(q, k, v) | causal_attention(q, k, v) | {QKV}
parallel_attn_window | parallel_attn(q, k, v, window_size=20) | causal_attention(q, k, v, 20) | {QKV}
parallel_forgetting_attn | parallel_forgetting_attn(q, k, v, functional.logsigmoid(g)) | causal_attention(q, k, v, None, functional.logsigmoid(g)) | {QKV}, g=randn(batch, length, heads) | own=share:0.5
parallel_stickbreaking_attn | parallel_stickbreaking_attn(q, k, v)[0] | stick_breaking(q, k, v) | {QKV} | needs=gpu
"""

ELEMENTS = """
sigmoid | sigmoid(x) | torch.sigmoid(x)
logsigmoid | logsigmoid(x) | functional.logsigmoid(x)
logsigmoid_temperature | logsigmoid(x, 4.0) | functional.logsigmoid(x) / 4.0
swish | swish(x) | functional.silu(x)
swish_half | swish(x) | functional.silu(x) | . | dtype=float16
elu_p1 | elu_p1(x) | functional.elu(x) + 1
swiglu | swiglu(x, y) | functional.silu(x) * y | x=randn(rows, columns), y=randn(rows, columns)
swiglu_half | swiglu(x, y) | functional.silu(x) * y | x=randn(rows, columns), y=randn(rows, columns) | dtype=float16
sigmoidglu | sigmoidglu(x, y) | torch.sigmoid(x) * y | x=randn(rows, columns), y=randn(rows, columns)
layer_norm | layer_norm(x, self.weight, self.bias) | functional.layer_norm(x, x.shape[-1:], self.weight, self.bias) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5, bias=randn(hidden); hidden=2048/70
layer_norm_residual | layer_norm(x, self.weight, self.bias, residual, prenorm=True) | (functional.layer_norm(x + residual, x.shape[-1:], self.weight, self.bias), x + residual) | x=randn(rows, hidden), residual=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5, bias=randn(hidden); hidden=2048/70
rms_norm | rms_norm(x, self.weight, None) | rms_normalised(x, self.weight, 1e-5) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5; hidden=2048/70
rms_norm_half | rms_norm(x, self.weight, None) | rms_normalised(x, self.weight, 1e-5) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5; dtype=float16; hidden=2048/70
rms_norm_module | self.norm(x) | rms_normalised(x, self.weight, 1e-5) | x=randn(batch, length, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5; module=self.norm = RMSNorm(hidden); hidden=1024/70; length=256/7
group_norm | group_norm(x, self.weight, self.bias, num_groups=2) | functional.group_norm(x, 2, self.weight, self.bias) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5, bias=randn(hidden); hidden=2048/70; if=hidden % 2 == 0
layer_norm_gated | layer_norm_gated(x, g, self.weight, self.bias) | functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-6) * functional.silu(g) | x=randn(rows, hidden), g=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5, bias=randn(hidden); hidden=1024/70
rms_norm_gated | rms_norm_gated(x, g, self.weight, None) | rms_normalised(x, self.weight, 1e-6) * functional.silu(g) | x=randn(rows, hidden), g=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5; hidden=1024/70
rms_norm_gated_sigmoid | rms_norm_gated(x, g, self.weight, None, "sigmoid") | rms_normalised(x, self.weight, 1e-6) * torch.sigmoid(g) | x=randn(rows, hidden), g=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5; hidden=1024/70
gate_then_rms_norm | rmsnorm_fn(x, self.weight, None, z, norm_before_gate=False) | rms_normalised(x * functional.silu(z), self.weight, 1e-6) | x=randn(rows, hidden), z=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5; hidden=1024/70
l2norm | l2norm(x) | x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6) | x=randn(batch, length, heads, dim)
rotary_embedding | rotary_embedding(x, cos, sin) | rotated_by_row(x, cos, sin) | x=randn(batch, length, heads, dim), cos=randn(length, dim // 2), sin=randn(length, dim // 2) | batch=4/2; length=512/9; if=dim % 2 == 0
rotary_embedding_pairs | rotary_embedding(x, cos, sin, interleaved=True) | turned_pairs(x, torch.stack([cos, sin], -1)) | x=randn(batch, length, heads, dim), cos=randn(length, dim // 2), sin=randn(length, dim // 2) | batch=4/2; length=512/9; if=dim % 2 == 0
token_shift | token_shift(x) | functional.pad(x, [0, 0, 1, 0])[:, :-1] - x | x=randn(batch, length, hidden) | hidden=1024/70; length=512/9
causal_conv1d | causal_conv1d(x, self.weight, self.bias, activation="swish")[0] | functional.silu(channel_convolution(x, self.weight, self.bias)) | x=randn(batch, length, hidden) | init=hidden; parameters=weight=randn(hidden, 4), bias=randn(hidden); hidden=1024/70; length=512/9
causal_conv1d_plain | causal_conv1d(x, self.weight)[0] | channel_convolution(x, self.weight, None) | x=randn(batch, length, hidden) | init=hidden; parameters=weight=randn(hidden, 3); hidden=1024/70; length=512/9
local_cumsum | chunk_local_cumsum(x, 64) | chunk_sums(x, 64) | x=randn(batch, length, heads) | length=2048/150
local_cumsum_vector | chunk_local_cumsum(x, 64) | chunk_sums(x, 64) | x=randn(batch, length, heads, dim) | length=1024/150; batch=4/1
global_cumsum | chunk_global_cumsum(x) | x.cumsum(1) | x=randn(batch, length, heads) | length=2048/150
global_cumsum_vector | chunk_global_cumsum(x) | x.cumsum(1) | x=randn(batch, length, heads, dim) | length=1024/150; batch=4/1
softmax | softmax_fwd(x) | x.softmax(-1)
logsumexp | logsumexp_fwd(x) | x.logsumexp(-1) | . | own=share:0.5
matmul_half | matmul(x, y) | x @ y | x=randn(rows, inner), y=randn(inner, columns) | dtype=float16; rows=1024/5
matmul_sigmoid_half | matmul(x, y, "sigmoid") | torch.sigmoid(x @ y) | x=randn(rows, inner), y=randn(inner, columns) | dtype=float16; rows=1024/5
addmm_half | addmm(z, x, y) | z + x @ y | z=randn(rows, columns), x=randn(rows, inner), y=randn(inner, columns) | dtype=float16; rows=1024/5
mean_pooling | mean_pooling(x, 32) | pooled_chunks(x, 32) | x=randn(batch, length, heads, dim) | length=1024/75
cross_entropy | cross_entropy_loss(x, target)[0] | functional.cross_entropy(x, target, reduction="none") | x=randn(rows, vocabulary), target=randint(0, vocabulary, (rows,)) | rows=512/5
cross_entropy_smooth | cross_entropy_loss(x, target, 0.1)[0] | functional.cross_entropy(x, target, reduction="none", label_smoothing=0.1) | x=randn(rows, vocabulary), target=randint(0, vocabulary, (rows,)) | rows=512/5
"""


def fla() -> list[LibraryKernel]:
    """All rows of the library."""
    recurrent = rows(FLA, RECURRENT, f"{SEQUENCES}; length=256/19")
    chunked = rows(FLA, CHUNKED, f"{SEQUENCES}; length=512/80; dtype=float16")
    return [*recurrent, *chunked, *rows(FLA, ELEMENTS)]
