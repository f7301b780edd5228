"""conch-triton-kernels: activations, norms, rotary embedding, quantisation, products with packed weights, paged
attention.
"""

from __future__ import annotations

from tests.library_kernels.table import Library, LibraryKernel, rows

CONCH = Library(
    "conch",
    "conch-triton-kernels",
    "1.3",
    imports={
        "silu_and_mul": "conch.ops.activation.silu_and_mul",
        "gelu_tanh_and_mul": "conch.ops.activation.gelu_tanh_and_mul",
        "rms_norm": "conch.ops.normalization.rms_norm",
        "fused_add_rms_norm": "conch.ops.normalization.rms_norm",
        "gemma_rms_norm": "conch.ops.normalization.gemma_rms_norm",
        "rotary_embedding": "conch.ops.embedding.rotary_embedding",
        "scaled_int8_quant": "conch.ops.quantization.int8",
        "scaled_fp8_quant": "conch.ops.quantization.fp8",
        "mixed_precision_gemm": "conch.ops.quantization.gemm",
        "scaled_gemm": "conch.ops.quantization.gemm",
        "dequantize_blockwise": "conch.ops.quantization.bitsandbytes.functional",
        "dequantize_4bit": "conch.ops.quantization.bitsandbytes.functional",
        "paged_attention": "conch.ops.attention.paged_attention",
        "varlen_attention": "conch.ops.attention.varlen_attention",
        "bev_pool": "conch.ops.vision.bev_pool",
        "reshape_and_cache": "conch.ops.vllm.reshape_and_cache",
    },
)

ROWS = """
silu_and_mul | silu_and_mul(x) | functional.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1] | x=randn(rows, 2 * inner)
silu_and_mul_half | silu_and_mul(x) | functional.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1] | x=randn(rows, 2 * inner) | dtype=float16
silu_and_mul_3d | silu_and_mul(x) | functional.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1] | x=randn(batch, length, 2 * inner) | length=128/7
gelu_tanh_and_mul | gelu_tanh_and_mul(x) | functional.gelu(x.chunk(2, -1)[0], approximate="tanh") * x.chunk(2, -1)[1] | x=randn(rows, 2 * inner)
gelu_tanh_and_mul_half | gelu_tanh_and_mul(x) | functional.gelu(x.chunk(2, -1)[0], approximate="tanh") * x.chunk(2, -1)[1] | x=randn(rows, 2 * inner) | dtype=float16; left=does not compile: libdevice.tanh takes no half
rms_norm | rms_norm(x, self.weight, 1e-5) | rms_normalised(x, self.weight, 1e-5) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5
rms_norm_half | rms_norm(x, self.weight, 1e-6) | rms_normalised(x, self.weight, 1e-6) | x=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5; dtype=float16
rms_norm_bfloat16 | rms_norm(x, self.weight, 1e-6) | rms_normalised(x, self.weight, 1e-6) | x=randn(rows, hidden) | needs=gpu; init=hidden; parameters=weight=rand(hidden) + 0.5; dtype=bfloat16
fused_add_rms_norm | fused_add_rms_norm(x, residual, self.weight, 1e-5) | residual.add_(x); (x.copy_(rms_normalised(residual, self.weight, 1e-5)), residual) | x=randn(rows, hidden), residual=randn(rows, hidden) | init=hidden; parameters=weight=rand(hidden) + 0.5
gemma_rms_norm | gemma_rms_norm(x, self.weight, 1e-6) | x.copy_(rms_normalised(x, 1 + self.weight, 1e-6)) | x=randn(rows, hidden) | init=hidden; parameters=weight=randn(hidden) * 0.2
gemma_rms_norm_residual | gemma_rms_norm(x, self.weight, 1e-6, residual)[0] | rms_normalised(x + residual, 1 + self.weight, 1e-6) | x=randn(rows, hidden), residual=randn(rows, hidden) | init=hidden; parameters=weight=randn(hidden) * 0.2; own=share:0.5
rotary_embedding | rotary_embedding(positions, query, key, 64, table) | (query.copy_(rotated_heads(query, table[positions], 64)), key.copy_(rotated_heads(key, table[positions], 64))) | positions=randint(0, length, (rows,)), query=randn(rows, heads * 64), key=randn(rows, 4 * 64), table=randn(length, 64) | rows=2048/5
scaled_int8_quant | scaled_int8_quant(x, self.scale)[0] | torch.clamp(x * (1 / self.scale), -128, 127).to(torch.int8) | x=randn(rows, hidden) * 30 | init=hidden; parameters=scale=full((1,), 0.7)
scaled_fp8_quant | scaled_fp8_quant(x, self.scale)[0].view(torch.uint8) | torch.clamp(x * (1 / self.scale), -448, 448).to(torch.float8_e4m3fn).view(torch.uint8) | x=randn(rows, hidden) * 30 | init=hidden; parameters=scale=full((1,), 1.5); needs=gpu
mixed_precision_gemm_4bit | mixed_precision_gemm(x, packed, scales, None, 4, 8, 128) | x @ ((unpacked(packed, 4) - 8).to(x.dtype) * scales.repeat_interleave(128, 0)) | x=randn(rows, inner), packed=randint(-(2**31), 2**31 - 1, (inner // 8, columns), dtype=torch.int32), scales=rand(inner // 128, columns) * 0.1 | dtype=float16; rows=512/5; inner=2048/256; columns=4096/128; if=inner % 128 == 0 and columns % 128 == 0
mixed_precision_gemm_8bit | mixed_precision_gemm(x, packed, scales, None, 8, 128, 128) | x @ ((unpacked(packed, 8) - 128).to(x.dtype) * scales.repeat_interleave(128, 0)) | x=randn(rows, inner), packed=randint(-(2**31), 2**31 - 1, (inner // 4, columns), dtype=torch.int32), scales=rand(inner // 128, columns) * 0.01 | dtype=float16; rows=512/5; inner=2048/256; columns=4096/128; if=inner % 128 == 0 and columns % 128 == 0
scaled_gemm_int8 | scaled_gemm(a, b, scale_a, scale_b, torch.float32) | (a.double() @ b.double()).float() * scale_a * scale_b.t() | a=randint(-128, 128, (rows, inner), dtype=torch.int8), b=randint(-128, 128, (inner, columns), dtype=torch.int8), scale_a=rand(rows, 1) * 0.1, scale_b=rand(columns, 1) * 0.1 | rows=512/5; inner=2048/256; columns=2048/128; if=inner % 128 == 0 and columns % 128 == 0; needs=gpu
dequantize_nf4 | dequantize_blockwise(x, absmax=absmax, out=out, blocksize=64, quant_type="nf4") | out.copy_(nf4_values(x) * absmax.repeat_interleave(64)) | x=randint(0, 256, (blocks * 32, 1), dtype=torch.uint8), absmax=rand(blocks) + 0.1, out=zeros(blocks * 64) | blocks=65536/7
dequantize_fp8_code | dequantize_blockwise(x, absmax=absmax, code=code, out=out, blocksize=64, quant_type="fp8") | out.copy_(code[x.long()] * absmax.repeat_interleave(64)) | x=randint(0, 256, (blocks * 64,), dtype=torch.uint8), absmax=rand(blocks) + 0.1, code=randn(256), out=zeros(blocks * 64) | blocks=65536/7
paged_attention | paged_attention(query, keys, values, table, lengths) | attention_over_pages(query, keys, values, table, lengths) | query=randn(batch, heads, 64), keys=randn(pages, 32, heads, 64), values=randn(pages, 32, heads, 64), table=randint(0, pages, (batch, 8), dtype=torch.int32), lengths=randint(1, 257, (batch,), dtype=torch.int32) | dtype=float16; pages=512/9; batch=64/2
paged_attention_grouped | paged_attention(query, keys, values, table, lengths) | attention_over_pages(query, keys, values, table, lengths) | query=randn(batch, 4 * heads, 128), keys=randn(pages, 16, heads, 128), values=randn(pages, 16, heads, 128), table=randint(0, pages, (batch, 6), dtype=torch.int32), lengths=randint(1, 97, (batch,), dtype=torch.int32) | dtype=float16; pages=512/9; batch=64/2; heads=8/2
varlen_attention | varlen_attention(query, keys, values, starts, query.shape[0] // lengths.shape[0], lengths, 128, table, causal=True) | causal_over_pages(query, keys, values, table, lengths) | query=randn(batch * 128, heads, 64), keys=randn(pages, 32, heads, 64), values=randn(pages, 32, heads, 64), starts=arange(batch + 1, dtype=torch.int32) * 128, lengths=full((batch,), 128, dtype=torch.int32), table=randint(0, pages, (batch, 4), dtype=torch.int32) | dtype=float16; pages=512/9; batch=64/2
bev_pool | bev_pool(features, cells, starts, lengths, 1, 1, starts.shape[0], 1) | pooled_cells(features, cells, starts.shape[0]) | features=randn(cells * 8, channels), cells=torch.stack([arange(cells), zeros(cells), zeros(cells), zeros(cells)], 1).repeat_interleave(8, 0).int(), starts=arange(cells, dtype=torch.int32) * 8, lengths=full((cells,), 8, dtype=torch.int32) | cells=16384/23
reshape_and_cache | reshape_and_cache(key, value, keys, values, slots); (keys, values) | keys.view(-1, *key.shape[1:])[slots] = key; values.view(-1, *value.shape[1:])[slots] = value; (keys, values) | key=randn(rows, heads, 64), value=randn(rows, heads, 64), keys=randn(pages, 16, heads, 64), values=randn(pages, 16, heads, 64), slots=randperm(pages * 16)[:rows] | rows=2048/5; pages=512/9; if=rows <= pages * 16
"""


def conch() -> list[LibraryKernel]:
    """All rows of the library."""
    return rows(CONCH, ROWS)
