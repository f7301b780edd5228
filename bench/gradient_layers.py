"""Layers for bench/gradients.py, written for it (bench/gradient_layers.txt).

Half of them, chosen by a seed, are kept back: nothing was mended for these, and they are only counted.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

KEPT_BACK_SEED = 47
HEAD = """import math

import torch
import torch.nn as nn
import torch.nn.functional as F

batch, rows, columns = 3, 6, 24
"""


@dataclass
class GradientLayer:
    """A layer. init: statements of the constructor. input: assignments of the inputs. forward: statements."""

    name: str
    family: str
    init: list[str] = field(default_factory=list)
    input: list[str] = field(default_factory=list)
    forward: list[str] = field(default_factory=list)

    @property
    def source(self) -> str:
        """The layer as a problem."""
        init = "".join(f"        {line}\n" for line in self.init)
        body = "".join(f"        {line}\n" for line in self.forward)
        draws = "".join(f"    {line}\n" for line in self.input)
        names = ", ".join(line.partition(" = ")[0] for line in self.input)
        return (
            f"{HEAD}\n\nclass Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n{init}\n"
            f"    def forward(self, {names}):\n{body}\n\n"
            f"def get_inputs():\n{draws}    return [{names}]\n\n\ndef get_init_inputs():\n    return []\n"
        )


def read_layers() -> list[GradientLayer]:
    """Returns the layers of the file."""
    layers: list[GradientLayer] = []
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "#":
            layers.append(GradientLayer(*rest.split(": ")))
        elif kind:
            getattr(layers[-1], kind).append(rest.strip())
    return layers


def kept_back(layers: list[GradientLayer]) -> frozenset[str]:
    """Returns the names of the layers that are only counted."""
    names = sorted(layer.name for layer in layers)
    return frozenset(random.Random(KEPT_BACK_SEED).sample(names, len(names) // 2))
