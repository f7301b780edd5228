"""Transformer layers of vision models, built by transformers, torchvision and timm."""

from __future__ import annotations

from bench.layer_suite.layer import Family, Layer, transformers_imports

PATCHES = Family(
    inputs={"x": "batch, length, hidden"},
    model={"hidden": 768, "heads": 12}, tiny_model={"hidden": 64, "heads": 4},
    tiny={"batch": 2, "length": 20}, small={"batch": 8, "length": 197}, large={"batch": 64, "length": 197},
)  # fmt: skip
GRID = Family(
    inputs={"x": "batch, size * size, hidden"},
    model={"hidden": 192, "heads": 6}, tiny_model={"hidden": 16, "heads": 2},
    tiny={"batch": 2, "size": 14}, small={"batch": 4, "size": 28}, large={"batch": 32, "size": 28},
)  # fmt: skip
CHANNELS_LAST = {"x": "batch, size, size, hidden"}
SETUP = """
config = {config}(hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden{options})
config._attn_implementation = "sdpa"
self.layer = {layer}(config)
"""


def _patches(
    name: str, module: str, config: str, layer: str, forward: str = "self.layer(x)", options: str = "", dtype: str = "",
    inputs: dict[str, str] | None = None,
) -> Layer:  # fmt: skip
    imports = transformers_imports(module, layer) + f"\nfrom transformers import {config}"
    return PATCHES.layer(
        name, imports, SETUP.format(config=config, layer=layer, options=options), forward, dtype=dtype,
        inputs=inputs or PATCHES.inputs,
    )  # fmt: skip


PATCH_LAYERS = (
    _patches("vit_layer", "vit", "ViTConfig", "ViTLayer"),
    _patches("dinov2_layer", "dinov2", "Dinov2Config", "Dinov2Layer"),
    _patches("clip_layer", "clip", "CLIPVisionConfig", "CLIPEncoderLayer", "self.layer(x, None)", dtype="float16"),
    _patches("siglip_layer", "siglip", "SiglipVisionConfig", "SiglipEncoderLayer", "self.layer(x, None)"),
    _patches(
        "beit_layer", "beit", "BeitConfig", "BeitLayer", "self.layer(x, resolution=(224, 224))",
        ", image_size=224, patch_size=16, use_relative_position_bias=True", inputs={"x": "batch, 197, hidden"},
    ),
    PATCHES.layer(
        "eva_block", "from timm.models.eva import EvaBlock",
        "self.layer = EvaBlock(dim=hidden, num_heads=heads, mlp_ratio=4.0, swiglu_mlp=True, scale_mlp=True)",
        "self.layer(x)", package="timm",
    ),
    PATCHES.layer(
        "mixer_block", "from timm.models.mlp_mixer import MixerBlock",
        "self.layer = MixerBlock(dim=hidden, seq_len=length)", "self.layer(x)", package="timm",
        model={"hidden": 768, "length": 196}, tiny_model={"hidden": 64, "length": 16},
    ),
    PATCHES.layer(
        "talking_heads_block", "from timm.models.cait import LayerScaleBlock",
        "self.layer = LayerScaleBlock(dim=hidden, num_heads=heads)", "self.layer(x)", package="timm",
        model={"hidden": 384, "heads": 8},
    ),
    PATCHES.layer(
        "sam_two_way_block", transformers_imports("sam", "SamMaskDecoderConfig", "SamTwoWayAttentionBlock"),
        "config = SamMaskDecoderConfig(hidden_size=hidden, num_attention_heads=heads, mlp_dim=8 * hidden)\n"
        'config._attn_implementation = "sdpa"\nself.layer = SamTwoWayAttentionBlock(config)',
        "self.layer(queries, keys, queries, positions, None)",
        inputs={"queries": "batch, 1, 7, hidden", "keys": "batch, 1, 4096 if hidden > 64 else 24, hidden",
                "positions": "batch, 1, 4096 if hidden > 64 else 24, hidden"},
        model={"hidden": 256, "heads": 8}, dtype="float32",
    ),
)  # fmt: skip

GRID_LAYERS = (
    GRID.layer(
        "swin_shifted_layer", transformers_imports("swin", "SwinConfig", "SwinLayer"),
        "self.layer = SwinLayer(SwinConfig(window_size=7), dim=hidden, input_resolution=(28, 28), num_heads=heads,\n"
        "    shift_size=3)\nself.side = 28 if hidden > 16 else 14",
        "self.layer(x, (self.side, self.side))", dtype="float16",
    ),
    GRID.layer(
        "swin_v2_block", "from torchvision.models.swin_transformer import SwinTransformerBlockV2",
        "self.layer = SwinTransformerBlockV2(hidden, heads, window_size=[7, 7], shift_size=[3, 3])",
        "self.layer(x)", package="torchvision", inputs=CHANNELS_LAST,
    ),
    GRID.layer(
        "segformer_layer", transformers_imports("segformer", "SegformerConfig", "SegformerLayer"),
        "self.layer = SegformerLayer(SegformerConfig(), hidden_size=hidden, num_attention_heads=heads, drop_path=0.0,\n"
        "    sequence_reduction_ratio=2, mlp_ratio=4)\nself.side = 28 if hidden > 16 else 14",
        "self.layer(x, self.side, self.side)", dtype="float16",
    ),
    GRID.layer(
        "sam_vision_layer", transformers_imports("sam", "SamVisionConfig", "SamVisionLayer"),
        "config = SamVisionConfig(hidden_size=hidden, num_attention_heads=heads, image_size=448, mlp_dim=4 * hidden)\n"
        'config._attn_implementation = "eager"\nself.layer = SamVisionLayer(config, window_size=7)',
        "self.layer(x)", inputs=CHANNELS_LAST,
    ),
    GRID.layer(
        "xcit_block", "from timm.models.xcit import XCABlock",
        "self.layer = XCABlock(dim=hidden, num_heads=heads, eta=1e-5)\nself.side = 28 if hidden > 16 else 14",
        "self.layer(x, self.side, self.side)", package="timm", dtype="float16",
    ),
    GRID.layer(
        "focalnet_block", "from timm.models.focalnet import FocalNetBlock",
        "self.layer = FocalNetBlock(dim=hidden)", "self.layer(x)", package="timm",
        inputs={"x": "batch, hidden, size, size"},
        model={"hidden": 192}, tiny_model={"hidden": 16},
    ),
    GRID.layer(
        "detr_encoder", transformers_imports("detr", "DetrConfig", "DetrEncoderLayer")
        + "\nfrom transformers import ResNetConfig",
        "config = DetrConfig(d_model=hidden, encoder_attention_heads=heads, encoder_ffn_dim=8 * hidden,\n"
        '    backbone_config=ResNetConfig())\nconfig._attn_implementation = "sdpa"\n'
        "self.layer = DetrEncoderLayer(config)",
        "self.layer(x, None, spatial_position_embeddings=positions)",
        inputs={"x": "batch, size * size, hidden", "positions": "batch, size * size, hidden"},
        model={"hidden": 256, "heads": 8}, dtype="float32",
    ),
)  # fmt: skip

VISION: tuple[Layer, ...] = PATCH_LAYERS + GRID_LAYERS
