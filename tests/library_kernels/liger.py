"""liger-kernel: norms, gated activations, rotary embedding, distances between distributions.

Its cross entropies read values on the host and are left out.
"""

from __future__ import annotations

from tests.library_kernels.table import Library, LibraryKernel, rows

FUNCTIONAL = """
liger_attn_res liger_dyt liger_fused_add_rms_norm liger_fused_linear_jsd liger_fused_linear_kl_div liger_fused_neighborhood_attention liger_geglu
liger_group_norm liger_jsd liger_kl_div liger_layer_norm liger_mhc_post_res liger_mhc_pre liger_modulated_rms_norm liger_multi_token_attention
liger_poly_norm liger_qwen2vl_mrope liger_relu_squared liger_rms_norm liger_rope liger_softmax liger_sparsemax liger_swiglu liger_tvd
"""
LIGER = Library(
    "liger_kernel",
    "liger-kernel",
    "0.8.5",
    imports=dict.fromkeys(FUNCTIONAL.split(), "liger_kernel.transformers.functional")
    | {
        "LigerRMSNorm": "liger_kernel.transformers.rms_norm",
        "LigerLayerNorm": "liger_kernel.transformers.layer_norm",
        "LigerDyT": "liger_kernel.transformers.dyt",
        "LigerGroupNorm": "liger_kernel.transformers.group_norm",
        "LigerEmbeddingFunction": "liger_kernel.ops.experimental.embedding",
        "LigerLlama4RopeFunction": "liger_kernel.ops.llama4_rope",
        "LigerFusedCETVDFunction": "liger_kernel.ops.fused_ce_tvd",
    },
)

ROWS = """
rms_norm | liger_rms_norm(x, self.weight, 1e-6) | rms_normalised(x, self.weight, 1e-6) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5
rms_norm_gemma | liger_rms_norm(x, self.weight, 1e-6, 1.0, "gemma") | rms_normalised(x, 1 + self.weight, 1e-6) | x=randn(rows, hidden) | init=hidden; parameters=weight=randn(hidden) * 0.2
rms_norm_half | liger_rms_norm(x, self.weight, 1e-6) | rms_normalised(x, self.weight, 1e-6) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5; dtype=float16
rms_norm_bfloat16 | liger_rms_norm(x, self.weight, 1e-6, 0.0, "gemma") | rms_normalised(x, self.weight, 1e-6) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5; dtype=bfloat16
rms_norm_3d | liger_rms_norm(x, self.weight, 1e-5) | rms_normalised(x, self.weight, 1e-5) | x=randn(batch, length, hidden) | length=256/7; init=hidden; parameters=weight=rand(hidden) + 0.5
rms_norm_module | self.norm(x) | rms_normalised(x, self.weight, 1e-6) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5; module=self.norm = LigerRMSNorm(hidden, eps=1e-6)
layer_norm | liger_layer_norm(x, self.weight, self.bias, 1e-5) | functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-5) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5, bias=randn(hidden)
layer_norm_half | liger_layer_norm(x, self.weight, self.bias, 1e-5) | functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-5) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5, bias=randn(hidden); dtype=float16
layer_norm_module | self.norm(x) | functional.layer_norm(x, x.shape[-1:], self.weight, self.bias, 1e-6) | x=randn(batch, length, hidden) | length=256/7; init=hidden; parameters=weight=rand(hidden) + 0.5, bias=randn(hidden); module=self.norm = LigerLayerNorm(hidden, eps=1e-6, bias=True)
group_norm | liger_group_norm(x, self.weight, self.bias, x.shape[1], 2, 1e-5) | functional.group_norm(x, 2, self.weight, self.bias, 1e-5) | x=randn(batch, channels, columns) | init=channels; parameters=weight=rand(channels) + 0.5, bias=randn(channels); if=channels % 2 == 0
group_norm_image | liger_group_norm(x.flatten(2), self.weight, self.bias, x.shape[1], 3, 1e-5).view_as(x) | functional.group_norm(x, 3, self.weight, self.bias, 1e-5) | x=randn(batch, channels, height, width) | channels=48/6; init=channels; parameters=weight=rand(channels) + 0.5, bias=randn(channels); if=channels % 3 == 0
fused_add_rms_norm | liger_fused_add_rms_norm(x, residual, self.weight, 1e-6) | (rms_normalised(x + residual, self.weight, 1e-6), x + residual) | x=randn(rows, hidden), residual=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5
modulated_rms_norm | liger_modulated_rms_norm(x, self.weight, scale, shift, 1e-6) | rms_normalised(x, self.weight, 1e-6) * (1 + scale) + shift | x=randn(rows, hidden), scale=randn(rows, hidden) * 0.2, shift=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5
modulated_rms_norm_batch | liger_modulated_rms_norm(x, self.weight, scale, shift, 1e-6) | rms_normalised(x, self.weight, 1e-6) * (1 + scale) + shift | x=randn(batch, length, hidden), scale=randn(batch, 1, hidden) * 0.2, shift=randn(batch, 1, hidden) | length=256/7; init=hidden; parameters=weight=rand(hidden) + 0.5
poly_norm | liger_poly_norm(x, self.weight, self.bias, 1e-6) | poly_normalised(x, self.weight, self.bias, 1e-6) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(3), bias=randn(1)
attn_res | liger_attn_res(x, self.query, self.norm) | depth_attention(x, self.query, self.norm, 1e-6) | x=randn(6, batch, length, hidden) | batch=4/2; length=128/7; init=hidden; parameters=query=randn(hidden) * 0.1, norm=rand(hidden) + 0.5
dyt | liger_dyt(x, self.alpha, self.gamma, self.beta) | torch.tanh(self.alpha * x) * self.gamma + self.beta | x=randn(rows, hidden) | init=hidden; parameters=alpha=rand(1) + 0.5, gamma=rand(hidden) + 0.5, beta=randn(hidden)
dyt_module | self.dyt(x) | torch.tanh(self.alpha * x) * self.gamma + self.beta | x=randn(rows, hidden) | init=hidden; parameters=alpha=rand(1) + 0.5, gamma=rand(hidden) + 0.5, beta=randn(hidden); module=self.dyt = LigerDyT(hidden, beta=True)
swiglu | liger_swiglu(x, y) | functional.silu(x) * y | x=randn(rows, columns), y=randn(rows, columns)
swiglu_half | liger_swiglu(x, y) | functional.silu(x) * y | x=randn(rows, columns), y=randn(rows, columns) | dtype=float16
swiglu_3d | liger_swiglu(x, y) | functional.silu(x) * y | x=randn(batch, length, hidden), y=randn(batch, length, hidden) | length=256/7
geglu | liger_geglu(x, y) | functional.gelu(x, approximate="tanh") * y | x=randn(rows, columns), y=randn(rows, columns)
geglu_half | liger_geglu(x, y) | functional.gelu(x, approximate="tanh") * y | x=randn(rows, columns), y=randn(rows, columns) | dtype=float16
relu_squared | liger_relu_squared(x) | functional.relu(x).square() | x=randn(rows, columns) | left=gives 0 for NaN
softmax | liger_softmax(x) | x.softmax(-1) | x=randn(rows, columns)
softmax_4d | liger_softmax(x) | x.softmax(-1) | x=randn(batch, heads, height, columns) | batch=2/2; height=64/5
softmax_half | liger_softmax(x) | x.softmax(-1) | x=randn(rows, columns) | dtype=float16
sparsemax | liger_sparsemax(x, -1) | sparse_maximum(x) | x=randn(rows, columns) | rows=512/5; own=share:0.3; left=a row with an infinity is not projected as by sorting
rope | liger_rope(q, k, cos, sin) | (rotated_halves(q, cos, sin), rotated_halves(k, cos, sin)) | q=randn(batch, heads, length, dim), k=randn(batch, 2, length, dim), cos=randn(1, length, dim // 2).repeat(1, 1, 2), sin=randn(1, length, dim // 2).repeat(1, 1, 2) | batch=4/2; length=512/9; if=dim % 2 == 0
rope_half | liger_rope(q, k, cos, sin) | (rotated_halves(q, cos, sin), rotated_halves(k, cos, sin)) | q=randn(batch, heads, length, dim), k=randn(batch, heads, length, dim), cos=randn(1, length, dim // 2).repeat(1, 1, 2), sin=randn(1, length, dim // 2).repeat(1, 1, 2) | batch=4/2; length=512/9; dtype=float16; if=dim % 2 == 0
qwen2vl_mrope | liger_qwen2vl_mrope(q, k, cos, sin, [q.shape[-1] // 8, q.shape[-1] // 8, q.shape[-1] // 4]) | (rotated_halves(q, sections(cos), sections(sin)), rotated_halves(k, sections(cos), sections(sin))) | q=randn(batch, heads, length, dim), k=randn(batch, 2, length, dim), cos=randn(3, batch, length, dim // 2).repeat(1, 1, 1, 2), sin=randn(3, batch, length, dim // 2).repeat(1, 1, 1, 2) | batch=4/2; length=512/9; if=dim % 8 == 0
llama4_rope | LigerLlama4RopeFunction.apply(q, k, turns) | (q.copy_(turned_pairs(q, turns)), k.copy_(turned_pairs(k, turns))) | q=randn(batch, length, heads, dim), k=randn(batch, length, 2, dim), turns=randn(length, dim // 2, 2) | batch=4/2; length=512/9; if=dim % 2 == 0
embedding | LigerEmbeddingFunction.apply(self.weight, tokens) | self.weight[tokens] | tokens=randint(0, vocabulary, (batch, length)) | init=vocabulary, hidden; parameters=weight=randn(vocabulary, hidden); hidden=1024/70
kl_div | liger_kl_div(x, y, reduction="batchmean") | functional.kl_div(x, y, reduction="batchmean") | x=randn(rows, vocabulary).log_softmax(-1), y=rand(rows, vocabulary).softmax(-1) | rows=512/5; own=share:0.3
kl_div_none | liger_kl_div(x, y, reduction="none", log_target=True) | functional.kl_div(x, y, reduction="none", log_target=True) | x=randn(rows, vocabulary).log_softmax(-1), y=randn(rows, vocabulary).log_softmax(-1) | rows=512/5
jsd | liger_jsd(x, y) | jensen_shannon(x, y, 0.5) | x=randn(rows, vocabulary).log_softmax(-1), y=randn(rows, vocabulary).log_softmax(-1) | rows=512/5; own=share:0.3
jsd_beta | liger_jsd(x, y, None, 0.1) | jensen_shannon(x, y, 0.1) | x=randn(rows, vocabulary).log_softmax(-1), y=randn(rows, vocabulary).log_softmax(-1) | rows=512/5; own=share:0.3
tvd | liger_tvd(x, y, reduction="batchmean") | (x - y).abs().sum() * 0.5 / x.shape[0] | x=rand(rows, vocabulary).softmax(-1), y=rand(rows, vocabulary).softmax(-1) | rows=512/5; own=share:0.3
tvd_none | liger_tvd(x, y, reduction="none") | (x - y).abs() * 0.5 | x=rand(rows, vocabulary).softmax(-1), y=rand(rows, vocabulary).softmax(-1) | rows=512/5
fused_ce_tvd | LigerFusedCETVDFunction.apply(x, y, target) | (functional.cross_entropy(x, target, reduction="none"), 0.5 * (x.softmax(-1) - y.softmax(-1)).abs().sum(-1)) | x=randn(rows, vocabulary), y=randn(rows, vocabulary), target=randint(0, vocabulary, (rows,)) | rows=512/5
fused_linear_jsd | liger_fused_linear_jsd(x, weight, y, teacher) | jensen_shannon((x @ weight.t()).log_softmax(-1), (y @ teacher.t()).log_softmax(-1), 0.5) | x=randn(rows, hidden), weight=randn(vocabulary, hidden) * 0.1, y=randn(rows, hidden), teacher=randn(vocabulary, hidden) * 0.1 | rows=512/5; hidden=256/35; vocabulary=8192/131; own=report
mhc_pre | liger_mhc_pre(x, mix) | (x * mix[..., None]).sum(-2) | x=randn(batch, length, 4, hidden), mix=rand(batch, length, 4) | length=128/7; hidden=1024/70
mhc_post_res | liger_mhc_post_res(x, out, post, mix) | torch.einsum("btij,btjc->btic", mix, streams(x)) + post[..., None] * out[:, :, None] | x=randn(batch, length, 4, hidden), out=randn(batch, length, hidden), post=rand(batch, length, 4), mix=rand(batch, length, 4, 4) | length=128/7; hidden=1024/70
multi_token_attention | liger_multi_token_attention(scores, self.weight, self.bias, 1, 1) | multi_token(scores, self.weight, self.bias) | scores=randn(batch, 4, length, length) | batch=2/2; length=256/9; init=length; parameters=weight=randn(4, 4, 3, 3) * 0.2, bias=randn(4); own=report; left=its host code makes a tensor of a number and reads it back
neighborhood_attention | liger_fused_neighborhood_attention(q, k, v, 7) | neighbours(q, k, v, 7) | q=randn(batch, heads, length, dim), k=randn(batch, heads, length, dim), v=randn(batch, heads, length, dim) | batch=2/2; heads=4/2; length=256/33; dtype=float16
"""


def liger() -> list[LibraryKernel]:
    """All rows of the library."""
    return rows(LIGER, ROWS)
