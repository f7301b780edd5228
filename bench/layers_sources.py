"""The layers of bench.layers as problems: classes of installed packages, built by their constructors, with random
weights.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layer:
    """One layer at two sizes."""

    imports: str
    setup: str
    """Lines of the constructor, which set self.layer; `sizes` names are global."""
    forward: str
    """The expression that forward returns."""
    shape: str
    """The shape of the input, in names of sizes."""
    full: dict[str, int]
    tiny: dict[str, int]
    dtype: str = "bfloat16"

    def source(self, tiny: bool = False) -> str:
        """Returns the text of the problem."""
        sizes = self.tiny if tiny else self.full
        arguments = ", ".join(name for name in sizes if name not in ("batch", "length", "size"))
        setup = "".join(f"        {line}\n" for line in self.setup.strip().splitlines())
        numbers = "".join(f"{name} = {value}\n" for name, value in sizes.items())
        small = {name: self.tiny[name] for name in ("batch", "length") if name in self.tiny}
        return (
            f"import torch\nimport torch.nn as nn\n{self.imports}\n\n{numbers}CPU_SIZES = {small}\n\n\n"
            f"class Model(nn.Module):\n    def __init__(self, {arguments}):\n        super().__init__()\n{setup}"
            f"        self.to(torch.{self.dtype})\n        self.eval()\n\n"
            f"    def forward(self, x):\n        out = {self.forward}\n"
            "        return out[0] if isinstance(out, tuple) else out\n\n\n"
            f"def get_inputs():\n    return [torch.randn({self.shape}, dtype=torch.{self.dtype})]\n\n\n"
            f"def get_init_inputs():\n    return [{arguments}]\n"
        )


DECODER_FORWARD = (
    "self.layer(x, position_embeddings=self.rotary(x, torch.arange(x.shape[1], "
    "device=x.device).unsqueeze(0)))"
)
DECODER_SETUP = """
config = {model}Config(
    hidden_size=hidden, intermediate_size=inner, num_attention_heads=heads, num_key_value_heads=groups,
    head_dim=hidden // heads,
)
config._attn_implementation = "sdpa"
self.layer = {model}DecoderLayer(config, 0)
self.rotary = {model}RotaryEmbedding(config)
"""
ENCODER_SETUP = """
config = {model}Config(hidden_size=hidden, num_attention_heads=heads, intermediate_size=4 * hidden)
config._attn_implementation = "{attention}"
self.layer = {model}Layer(config)
"""
ENCODER_SIZES = {"batch": 16, "length": 512, "hidden": 768, "heads": 12}
TINY_ENCODER = {"batch": 2, "length": 20, "hidden": 64, "heads": 4}
TINY_DECODER = {"batch": 2, "length": 20, "hidden": 64, "inner": 96, "heads": 4, "groups": 2}
CONVOLUTION_SIZES = {"batch": 32, "channels": 96, "size": 56}


def _imports(package: str, *names: str) -> str:
    return f"from transformers.models.{package}.modeling_{package} import {', '.join(names)}"


def _decoder(package: str, model: str, sizes: dict[str, int]) -> Layer:
    names = [f"{model}{part}" for part in ("Config", "DecoderLayer", "RotaryEmbedding")]
    return Layer(
        _imports(package, *names), DECODER_SETUP.format(model=model), DECODER_FORWARD, "batch, length, hidden", sizes,
        TINY_DECODER,
    )  # fmt: skip


def _encoder(package: str, model: str, sizes: dict[str, int], attention: str = "sdpa") -> Layer:
    return Layer(
        _imports(package, f"{model}Config", f"{model}Layer"),
        ENCODER_SETUP.format(model=model, attention=attention), "self.layer(x)", "batch, length, hidden", sizes,
        TINY_ENCODER,
    )  # fmt: skip


LAYERS: dict[str, Layer] = {
    "llama_mlp": Layer(
        _imports("llama", "LlamaConfig", "LlamaMLP", "LlamaRMSNorm"),
        "self.norm = LlamaRMSNorm(hidden)\n"
        "self.layer = LlamaMLP(LlamaConfig(hidden_size=hidden, intermediate_size=inner))",
        "x + self.layer(self.norm(x))", "batch, length, hidden",
        {"batch": 4, "length": 1024, "hidden": 2048, "inner": 8192},
        {"batch": 2, "length": 20, "hidden": 64, "inner": 96},
    ),
    "bert": _encoder("bert", "Bert", ENCODER_SIZES),
    "vit": _encoder("vit", "ViT", {**ENCODER_SIZES, "batch": 64, "length": 197}),
    "llama_decoder": _decoder(
        "llama", "Llama",
        {"batch": 2, "length": 2048, "hidden": 2048, "inner": 8192, "heads": 32, "groups": 8},
    ),
    "qwen3_decoder": _decoder(
        "qwen3", "Qwen3",
        {"batch": 2, "length": 2048, "hidden": 2048, "inner": 6144, "heads": 16, "groups": 8},
    ),
    "gpt2": Layer(
        _imports("gpt2", "GPT2Config", "GPT2Block"),
        "config = GPT2Config(n_embd=hidden, n_head=heads, n_inner=4 * hidden)\n"
        'config._attn_implementation = "sdpa"\nself.layer = GPT2Block(config, layer_idx=0)',
        "self.layer(x)", "batch, length, hidden",
        {"batch": 8, "length": 1024, "hidden": 768, "heads": 12}, TINY_ENCODER,
    ),
    "t5_gated_feed_forward": Layer(
        _imports("t5", "T5Config", "T5LayerFF"),
        "self.layer = T5LayerFF(T5Config(d_model=hidden, d_ff=inner, feed_forward_proj='gated-gelu'))",
        "self.layer(x)", "batch, length, hidden",
        {"batch": 8, "length": 512, "hidden": 1024, "inner": 2816},
        {"batch": 2, "length": 20, "hidden": 64, "inner": 96},
    ),
    "convnext": Layer(
        _imports("convnext", "ConvNextConfig", "ConvNextLayer"),
        "self.layer = ConvNextLayer(ConvNextConfig(), dim=channels)",
        "self.layer(x)", "batch, channels, size, size", CONVOLUTION_SIZES, {"batch": 2, "channels": 8, "size": 9},
        "float32",
    ),
    "bert_written_out": _encoder("bert", "Bert", ENCODER_SIZES, "eager"),
    "encoder_of_torch": Layer(
        "", "self.layer = nn.TransformerEncoderLayer(hidden, heads, 4 * hidden, dropout=0.0, batch_first=True)",
        "self.layer(x)", "batch, length, hidden", ENCODER_SIZES, TINY_ENCODER,
    ),
}  # fmt: skip
