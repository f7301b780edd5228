"""Optimizes eight models of installed packages with random weights, and writes a table of what became of each.

    python -m bench.optimize_models --out bench/results/optimize_models.md [--large] [--minutes M] [NAME ...]

Each model is a file for `agent optimize`, which runs in a process of its own within the budget.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HEAD = "import torch\nfrom torch import nn\n\nbatch, tokens = {batch}, {tokens}\n"
TRANSFORMER = "hidden_size={width}, num_hidden_layers={layers}, num_attention_heads={heads}, intermediate_size={inner}"
SMALL = {
    "width": 32,
    "inner": 64,
    "layers": 2,
    "heads": 2,
    "batch": 2,
    "tokens": 8,
    "image": 32,
    "depths": "[1, 1]",
}
LARGE = {
    "width": 768,
    "inner": 3072,
    "layers": 4,
    "heads": 12,
    "batch": 8,
    "tokens": 256,
    "image": 224,
    "depths": "[3, 4]",
}
IDS = "torch.randint(0, 100, (batch, tokens))"
IMAGES = "torch.randn(batch, 3, {image}, {image})"
MODELS = {
    "llama": ("LlamaConfig, LlamaModel", f"LlamaModel(LlamaConfig(vocab_size=100, {TRANSFORMER}, use_cache=False))",
              IDS, "self.model(x, use_cache=False).last_hidden_state"),
    "bert": ("BertConfig, BertModel", f"BertModel(BertConfig(vocab_size=100, {TRANSFORMER}))",
             IDS, "self.model(x).last_hidden_state"),
    "vit": ("ViTConfig, ViTModel", f"ViTModel(ViTConfig({TRANSFORMER}, image_size={{image}}, patch_size=16))",
            IMAGES, "self.model(x).last_hidden_state"),
    "convnext": ("ConvNextConfig, ConvNextModel",
                 "ConvNextModel(ConvNextConfig(hidden_sizes=[{width}, {inner}], depths={depths}, num_stages=2))",
                 IMAGES, "self.model(x).last_hidden_state"),
    "resnet": ("ResNetConfig, ResNetModel",
               "ResNetModel(ResNetConfig(embedding_size={width}, hidden_sizes=[{width}, {inner}], depths={depths}))",
               IMAGES, "self.model(x).last_hidden_state"),
    "whisper": ("WhisperConfig", "WhisperEncoder(WhisperConfig(d_model={width}, encoder_layers={layers}, "
                "encoder_attention_heads={heads}, encoder_ffn_dim={inner}, max_source_positions=tokens))",
                "torch.randn(batch, 80, 2 * tokens)", "self.model(x).last_hidden_state"),
    "mamba": ("MambaConfig, MambaModel", "MambaModel(MambaConfig(vocab_size=100, hidden_size={width}, "
              "num_hidden_layers={layers}, use_cache=False))", IDS, "self.model(x, use_cache=False).last_hidden_state"),
    "unet": ("", "nn.Sequential(*[Block({width}) for _ in range({layers})])",
             "torch.randn(batch, {width}, 8, 8)", "self.model(x)"),
}  # fmt: skip
EXTRA = {
    "whisper": "from transformers.models.whisper.modeling_whisper import WhisperEncoder\n",
    "unet": '''

class Block(nn.Module):
    """A residual block of a diffusion U-Net, with self-attention over the image."""

    def __init__(self, width):
        super().__init__()
        self.norm1, self.norm2, self.norm3 = (nn.GroupNorm(8, width) for _ in range(3))
        self.conv1, self.conv2 = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        h = self.conv1(nn.functional.silu(self.norm1(x)))
        x = x + self.conv2(nn.functional.silu(self.norm2(h)))
        h = self.norm3(x).flatten(2).transpose(1, 2)
        q, k, v = self.qkv(h).chunk(3, -1)
        h = self.out(nn.functional.scaled_dot_product_attention(q, k, v))
        return x + h.transpose(1, 2).reshape(x.shape)
''',
}


def source_of(name: str, sizes: dict[str, Any]) -> str:
    """Returns the text of a model as a problem."""
    imports, built, inputs, called = MODELS[name]
    head = HEAD.format(**sizes) + (f"from transformers import {imports}\n" if imports else "")
    return (
        f"{head}{EXTRA.get(name, '')}\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        f"        self.model = {built.format(**sizes)}\n        self.eval()\n\n    def forward(self, x):\n"
        f"        return {called}\n\n\ndef get_inputs():\n    return [{inputs.format(**sizes)}]\n\n\n"
        "def get_init_inputs():\n    return []\n"
    )


def optimized(name: str, sizes: dict[str, Any], minutes: float, folder: Path) -> dict[str, Any]:
    """Runs the command; returns its result, or {"error": line}."""
    path = folder / f"{name}.py"
    path.write_text(source_of(name, sizes))
    options = ["--budget", str(minutes), "--json", "--out", str(folder / f"{name}_optimized")]
    command = [sys.executable, "-m", "kernelwright.agent", "optimize", str(path), *options]
    start = time.monotonic()
    ended = subprocess.run(
        [*command, "--db", str(folder / "runs.db")], capture_output=True, text=True, check=False
    )
    (folder / f"{name}.log").write_text(ended.stderr)
    try:
        result: dict[str, Any] = json.loads(ended.stdout)
    except json.JSONDecodeError:
        result = {"error": (ended.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    return {**result, "wall": time.monotonic() - start}


def row_of(name: str, result: dict[str, Any]) -> str:
    """Returns a line of the table."""
    if "error" in result:
        return f"| {name} | {result['error'].replace('|', '/')} | | | | | {result['wall']:.0f} |"
    regions, check, times = result["regions"], result["check"], result["times"]
    kept = sum(region["kept"] for region in regions)
    whole = "right" if check["correct"] else ("wrong" if check["done"] else check["note"])
    speed = (
        "not timed"
        if not times.get("best")
        else f"{times['eager']:.3f} / {times['compiled']} / {times['best']:.3f}"
    )
    package = "written" if result["package"] else "none"
    cells = [name, f"{kept} of {len(regions)}", whole, speed, "; ".join(result["notes"]), package]
    return f"| {' | '.join(cells)} | {result['wall']:.0f} |"


def main() -> None:
    """Optimizes the models and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=[])
    parser.add_argument("--large", action="store_true", help="sizes for a GPU")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--folder", type=Path)
    arguments = parser.parse_args()
    folder = arguments.folder or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Optimized models",
        "",
        f"`python -m bench.optimize_models {' '.join(sys.argv[1:])}`, {time.strftime('%Y-%m-%d')}.",
        "",
    ]
    lines += [
        "| model | kernels of regions | whole model | eager / compile / kernels, ms | notes | package | seconds |"
    ]
    lines += ["|---|---|---|---|---|---|---|"]
    for name in arguments.names or MODELS:
        result = optimized(name, LARGE if arguments.large else SMALL, arguments.minutes, folder)
        lines.append(row_of(name, result))
        print(lines[-1], flush=True)
        if arguments.out:
            arguments.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
