"""Decoder layers of language models, built by transformers."""

from __future__ import annotations

from bench.layer_suite.layer import Family, Layer, transformers_imports

TOKENS = Family(
    inputs={"x": "batch, length, hidden"},
    model={"hidden": 2048, "inner": 8192, "heads": 32, "groups": 8},
    tiny_model={"hidden": 64, "inner": 96, "heads": 4, "groups": 2},
    tiny={"batch": 2, "length": 20}, small={"batch": 1, "length": 512}, large={"batch": 2, "length": 2048},
)  # fmt: skip
SMALL_DECODER = {"hidden": 1024, "heads": 16}
TINY_DECODER = {"hidden": 64, "heads": 4}
ROTARY_SETUP = """
config = {model}Config(
    hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads, num_key_value_heads=groups,
    {head}{options}
)
config._attn_implementation = "{attention}"
self.layer = {model}{layer}(config, {index})
self.rotary = {model}RotaryEmbedding(config)
"""
POSITIONS = "self.rotary(x, torch.arange(x.shape[1], device=x.device).unsqueeze(0))"
ROTARY_FORWARD = f"self.layer(x, position_embeddings={POSITIONS}, attention_mask={{mask}})"
WINDOW_MASK = """
row = torch.arange(x.shape[1], device=x.device)
distance = row[:, None] - row[None, :]
mask = ((distance >= 0) & (distance < self.layer.self_attn.config.sliding_window))[None, None]
"""
# The least finite number of the input's dtype, also where the layer is compared in float64.
HIDDEN = "mask = torch.zeros(mask.shape, dtype=x.dtype, device=x.device).masked_fill(~mask, torch.finfo(x.dtype).min)"
FLOAT_WINDOW_MASK = WINDOW_MASK + HIDDEN + "\n"
FLOAT_CAUSAL_MASK = f"""
row = torch.arange(x.shape[1], device=x.device)
mask = (row[:, None] >= row[None, :])[None, None]
{HIDDEN}
"""


def _rotary(
    name: str, module: str, model: str, *, config: str = "", layer: str = "DecoderLayer", attention: str = "sdpa",
    options: str = "", before: str = "", mask: str = "None", index: int = 0,
    head: str = "head_dim=hidden // heads, ", sizes: dict[str, int] | None = None,
    tiny_sizes: dict[str, int] | None = None, forward: str = "",
) -> Layer:  # fmt: skip
    """Returns a decoder layer with rotary positions."""
    names = [f"{model}{layer}", f"{model}RotaryEmbedding"]
    setup = ROTARY_SETUP.format(model=model, options=options, attention=attention, layer=layer, index=index,
                                head=head)  # fmt: skip
    if config:
        setup = setup.replace(f"config = {model}Config", f"config = {config}")
    imports = (
        transformers_imports(module, *names)
        + f"\nfrom transformers import {config or model + 'Config'}"
    )
    return TOKENS.layer(
        name, imports, setup, forward or ROTARY_FORWARD.format(mask=mask), before=before, model=sizes,
        tiny_model=tiny_sizes,
    )  # fmt: skip


ROTARY_DECODERS = (
    _rotary("llama_decoder", "llama", "Llama"),
    _rotary("qwen3_decoder", "qwen3", "Qwen3", sizes={"hidden": 2048, "inner": 6144, "heads": 16, "groups": 8}),
    _rotary(
        "mistral_window", "mistral", "Mistral", before=WINDOW_MASK, mask="mask",
        options="sliding_window=256 if hidden > 64 else 8",
    ),
    _rotary(
        "gemma2_soft_cap", "gemma2", "Gemma2", attention="eager", before=FLOAT_WINDOW_MASK, mask="mask",
        options="sliding_window=256 if hidden > 64 else 8, query_pre_attn_scalar=hidden // heads",
        sizes={"hidden": 2304, "inner": 9216, "heads": 8, "groups": 4},
    ),
    _rotary(
        "gemma3_decoder", "gemma3", "Gemma3", config="Gemma3TextConfig", index=5,
        options="query_pre_attn_scalar=hidden // heads",
        sizes={"hidden": 1152, "inner": 6912, "heads": 4, "groups": 1},
        tiny_sizes={"hidden": 64, "inner": 96, "heads": 4, "groups": 1},
        forward="self.layer(x, position_embeddings=self.rotary(x, torch.arange(x.shape[1], device=x.device)"
        ".unsqueeze(0), 'full_attention'))",
    ),
    _rotary("phi_decoder", "phi", "Phi", sizes={"hidden": 2560, "inner": 10240, "heads": 32, "groups": 32}),
    _rotary(
        "falcon_decoder", "falcon", "Falcon", head="", options="alibi=False, "
        "new_decoder_architecture=False, multi_query=True",
        forward=f"self.layer(x, None, None, position_embeddings={POSITIONS})",
        sizes={"hidden": 2048, "inner": 8192, "heads": 32, "groups": 1},
        tiny_sizes={"hidden": 64, "inner": 256, "heads": 4, "groups": 1},
    ),
    _rotary("cohere_decoder", "cohere", "Cohere"),
    _rotary("olmo2_decoder", "olmo2", "Olmo2"),
    _rotary("granite_decoder", "granite", "Granite", options="residual_multiplier=0.22"),
    _rotary(
        "gpt_oss_attention", "gpt_oss", "GptOss", layer="Attention", attention="eager", before=FLOAT_CAUSAL_MASK,
        mask="mask",
    ),
    _rotary(
        "deepseek_v3_attention", "deepseek_v3", "DeepseekV3", layer="Attention", head="head_dim=32, ",
        options="q_lora_rank=inner // 2, kv_lora_rank=hidden // 4, qk_rope_head_dim=32, qk_nope_head_dim=64, "
        "v_head_dim=64",
        sizes={"hidden": 2048, "inner": 1536, "heads": 16, "groups": 16},
        tiny_sizes={"hidden": 64, "inner": 64, "heads": 4, "groups": 4},
    ),
)  # fmt: skip

OTHER_DECODERS = (
    TOKENS.layer(
        "llama_mlp", transformers_imports("llama", "LlamaConfig", "LlamaMLP", "LlamaRMSNorm"),
        "self.norm = LlamaRMSNorm(hidden)\n"
        "self.layer = LlamaMLP(LlamaConfig(hidden_size=hidden, intermediate_size=inner))",
        "x + self.layer(self.norm(x))", model={"hidden": 2048, "inner": 8192}, tiny_model={"hidden": 64, "inner": 96},
    ),
    TOKENS.layer(
        "qwen2_moe_batched", transformers_imports("qwen2_moe", "Qwen2MoeConfig", "Qwen2MoeSparseMoeBlock"),
        "config = Qwen2MoeConfig(hidden_size=hidden, moe_intermediate_size=inner, num_experts=experts,\n"
        "    shared_expert_intermediate_size=4 * inner, num_experts_per_tok=chosen)\n"
        'config._experts_implementation = "batched_mm"\nself.layer = Qwen2MoeSparseMoeBlock(config)\n'
        "for parameter in self.parameters():\n    nn.init.normal_(parameter, std=0.05)",
        "self.layer(x)", inputs={"x": "batch, 4, hidden"},
        model={"hidden": 2048, "inner": 1408, "experts": 60, "chosen": 4},
        tiny_model={"hidden": 64, "inner": 32, "experts": 6, "chosen": 2},
    ),
    TOKENS.layer(
        "gpt2_block", transformers_imports("gpt2", "GPT2Config", "GPT2Block"),
        "config = GPT2Config(n_embd=hidden, n_head=heads, n_inner=4 * hidden)\n"
        'config._attn_implementation = "sdpa"\nself.layer = GPT2Block(config, layer_idx=0)',
        "self.layer(x)", model={"hidden": 768, "heads": 12}, tiny_model=TINY_DECODER,
    ),
    TOKENS.layer(
        "gpt_neox_layer", transformers_imports("gpt_neox", "GPTNeoXConfig", "GPTNeoXLayer", "GPTNeoXRotaryEmbedding"),
        "config = GPTNeoXConfig(hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden)\n"
        'config._attn_implementation = "sdpa"\nself.layer = GPTNeoXLayer(config, 0)\n'
        "self.rotary = GPTNeoXRotaryEmbedding(config)",
        f"self.layer(x, position_embeddings={POSITIONS})", model=SMALL_DECODER, tiny_model=TINY_DECODER,
    ),
    TOKENS.layer(
        "bloom_block", transformers_imports("bloom", "BloomConfig", "BloomBlock", "build_alibi_tensor"),
        "config = BloomConfig(hidden_size=hidden, n_head=heads)\nself.heads = heads\n"
        "self.layer = BloomBlock(config, layer_idx=0)",
        "self.layer(x, build_alibi_tensor(torch.ones(x.shape[:2], device=x.device), self.heads, x.dtype), mask)",
        before=FLOAT_CAUSAL_MASK, model=SMALL_DECODER, tiny_model=TINY_DECODER, dtype="float16",
    ),
    TOKENS.layer(
        "opt_decoder", transformers_imports("opt", "OPTConfig", "OPTDecoderLayer"),
        "config = OPTConfig(hidden_size=hidden, num_attention_heads=heads, ffn_dim=4 * hidden)\n"
        'config._attn_implementation = "sdpa"\nself.layer = OPTDecoderLayer(config, 0)',
        "self.layer(x)", model=SMALL_DECODER, tiny_model=TINY_DECODER, dtype="float16",
    ),
    TOKENS.layer(
        "bart_decoder", transformers_imports("bart", "BartConfig", "BartDecoderLayer"),
        "config = BartConfig(d_model=hidden, decoder_attention_heads=heads, decoder_ffn_dim=4 * hidden)\n"
        'config._attn_implementation = "sdpa"\nself.layer = BartDecoderLayer(config, 0)',
        "self.layer(x, encoder_hidden_states=memory)",
        inputs={"x": "batch, length, hidden", "memory": "batch, 384 if hidden > 64 else 12, hidden"},
        model=SMALL_DECODER, tiny_model=TINY_DECODER,
    ),
    TOKENS.layer(
        "whisper_decoder", transformers_imports("whisper", "WhisperConfig", "WhisperDecoderLayer"),
        "config = WhisperConfig(d_model=hidden, decoder_attention_heads=heads, decoder_ffn_dim=4 * hidden)\n"
        'config._attn_implementation = "sdpa"\nself.layer = WhisperDecoderLayer(config, 0)',
        "self.layer(x, encoder_hidden_states=memory)",
        inputs={"x": "batch, length, hidden", "memory": "batch, 1500 if hidden > 64 else 12, hidden"},
        model=SMALL_DECODER, tiny_model=TINY_DECODER, dtype="float16",
    ),
)  # fmt: skip

DECODERS: tuple[Layer, ...] = ROTARY_DECODERS + OTHER_DECODERS
