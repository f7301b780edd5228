"""The layers of the suite, and the two halves that a seed chooses."""

from __future__ import annotations

import random
from enum import StrEnum

from bench.layer_suite.convolutions import CONVOLUTIONS
from bench.layer_suite.decoders import DECODERS
from bench.layer_suite.encoders import ENCODERS
from bench.layer_suite.layer import Layer
from bench.layer_suite.recurrences import RECURRENCES
from bench.layer_suite.vision import VISION

HALVES_SEED = 46
"""Seed of the halves; it was fixed before any layer of the suite was drafted."""


class Half(StrEnum):
    """Half of the suite."""

    DEVELOPMENT = "dev"
    """Layers whose failures are examined and mended."""
    KEPT = "kept"
    """Layers whose results are only reported."""


LAYERS: dict[str, Layer] = {
    layer.name: layer for layer in (*DECODERS, *ENCODERS, *VISION, *CONVOLUTIONS, *RECURRENCES)
}


def half_of_layers() -> dict[str, Half]:
    """Returns the half of every layer."""
    names = sorted(LAYERS)
    development = set(random.Random(HALVES_SEED).sample(names, len(names) // 2))
    return {name: Half.DEVELOPMENT if name in development else Half.KEPT for name in names}
