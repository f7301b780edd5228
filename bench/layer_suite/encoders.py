"""Encoder layers of language and speech models, built by transformers."""

from __future__ import annotations

from bench.layer_suite.layer import Family, Layer, transformers_imports

TOKENS = Family(
    inputs={"x": "batch, length, hidden"},
    model={"hidden": 768, "heads": 12}, tiny_model={"hidden": 64, "heads": 4},
    tiny={"batch": 2, "length": 20}, small={"batch": 4, "length": 128}, large={"batch": 16, "length": 512},
)  # fmt: skip
WAVES = Family(
    inputs={"x": "batch, channels, length"},
    model={"channels": 512}, tiny_model={"channels": 8},
    tiny={"batch": 2, "length": 40}, small={"batch": 2, "length": 3200}, large={"batch": 8, "length": 6400},
    dtype="float16",
)  # fmt: skip
SETUP = """
config = {config}(hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden{options})
config._attn_implementation = "{attention}"
self.layer = {layer}(config)
"""


def _encoder(
    name: str, module: str, config: str, layer: str, *, attention: str = "sdpa", options: str = "",
    forward: str = "self.layer(x)", before: str = "", dtype: str = "",
) -> Layer:  # fmt: skip
    setup = SETUP.format(config=config, layer=layer, attention=attention, options=options)
    imports = transformers_imports(module, layer) + f"\nfrom transformers import {config}"
    return TOKENS.layer(name, imports, setup, forward, before=before, dtype=dtype)


LANGUAGE_ENCODERS = (
    _encoder("bert_layer", "bert", "BertConfig", "BertLayer"),
    _encoder("bert_written_out", "bert", "BertConfig", "BertLayer", attention="eager"),
    _encoder("roberta_layer", "roberta", "RobertaConfig", "RobertaLayer", dtype="float16"),
    _encoder("albert_layer", "albert", "AlbertConfig", "AlbertLayer"),
    _encoder(
        "deberta_v2_layer", "deberta_v2", "DebertaV2Config", "DebertaV2Layer", attention="eager",
        options=', relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=16, '
        "max_relative_positions=512, share_att_key=True",
        before="mask = torch.ones(x.shape[0], 1, x.shape[1], x.shape[1], device=x.device, dtype=torch.bool)\n"
        "positions = torch.ones(32, x.shape[2], device=x.device, dtype=x.dtype)",
        forward="self.layer(x, mask, rel_embeddings=positions)",
    ),
    TOKENS.layer(
        "distilbert_block",
        transformers_imports("distilbert", "TransformerBlock") + "\nfrom transformers import DistilBertConfig",
        "config = DistilBertConfig(dim=hidden, n_heads=heads, hidden_dim=4 * hidden)\n"
        'config._attn_implementation = "sdpa"\nself.layer = TransformerBlock(config)',
        "self.layer(x)",
    ),
    _encoder("mpnet_layer", "mpnet", "MPNetConfig", "MPNetLayer", attention="eager"),
    TOKENS.layer(
        "t5_encoder_block", transformers_imports("t5", "T5Config", "T5Block"),
        "config = T5Config(d_model=hidden, d_kv=hidden // heads, num_heads=heads, d_ff=4 * hidden,\n"
        '    feed_forward_proj="gated-gelu")\nconfig._attn_implementation = "eager"\n'
        "self.layer = T5Block(config, has_relative_attention_bias=True, layer_idx=0)",
        "self.layer(x)",
    ),
    TOKENS.layer(
        "torch_encoder_layer", "",
        "self.layer = nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, dropout=0.0, batch_first=True)",
        "self.layer(x)", package="torch",
    ),
)  # fmt: skip

SPEECH_LAYERS = (
    TOKENS.layer(
        "whisper_encoder", transformers_imports("whisper", "WhisperConfig", "WhisperEncoderLayer"),
        "config = WhisperConfig(d_model=hidden, encoder_attention_heads=heads, encoder_ffn_dim=4 * hidden)\n"
        'config._attn_implementation = "sdpa"\nself.layer = WhisperEncoderLayer(config)',
        "self.layer(x, None)", dtype="float16",
    ),
    _encoder("wav2vec2_encoder", "wav2vec2", "Wav2Vec2Config", "Wav2Vec2EncoderLayer", dtype="float16"),
    _encoder(
        "conformer_layer", "wav2vec2_conformer", "Wav2Vec2ConformerConfig", "Wav2Vec2ConformerEncoderLayer",
        options=", position_embeddings_type=None", dtype="float16",
    ),
    WAVES.layer(
        "wav2vec2_group_norm_convolution",
        transformers_imports("wav2vec2", "Wav2Vec2Config", "Wav2Vec2GroupNormConvLayer"),
        "config = Wav2Vec2Config(conv_dim=(channels,) * 2, conv_stride=(2, 2), conv_kernel=(3, 3),\n"
        "    num_feat_extract_layers=2)\nself.layer = Wav2Vec2GroupNormConvLayer(config, layer_id=1)",
        "self.layer(x)",
    ),
)  # fmt: skip

ENCODERS: tuple[Layer, ...] = LANGUAGE_ENCODERS + SPEECH_LAYERS
