"""Draws a program from a seed: a family, a depth, and the family's program."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from kernelwright.rl.data.rows import Split
from kernelwright.rl.data.synth.engine.program import DrawnProgram
from kernelwright.rl.data.synth.engine.sketch import NameTaken, Sketch
from kernelwright.rl.data.synth.engine.splits import (
    HELD_OUT_FAMILIES,
    TRAINING_DEPTH,
    is_single_benchmark_operation,
    split_of,
)
from kernelwright.rl.data.synth.families.attention import attention
from kernelwright.rl.data.synth.families.column_norms import column_norm_program
from kernelwright.rl.data.synth.families.conv import convolution
from kernelwright.rl.data.synth.families.elementwise import elementwise
from kernelwright.rl.data.synth.families.image_norms import image_norm_program
from kernelwright.rl.data.synth.families.linear import linear
from kernelwright.rl.data.synth.families.lookups import embedding, quantisation
from kernelwright.rl.data.synth.families.losses import loss
from kernelwright.rl.data.synth.families.matmul import matmul
from kernelwright.rl.data.synth.families.matvec import gated, matvec
from kernelwright.rl.data.synth.families.normalising import norm, softmax
from kernelwright.rl.data.synth.families.reductions import reduction
from kernelwright.rl.data.synth.families.scans import scan
from kernelwright.rl.data.synth.families.whole_tensor import whole_tensor
from kernelwright.rl.data.synth.families.windows import pooling

MAX_OPERATIONS = 8
"""Number of operations of the longest chains."""


@dataclass(frozen=True)
class Family:
    """A family of problems with its weight."""

    make: Callable[[Sketch, int], DrawnProgram]
    weight: float
    name: str
    deepest: int = MAX_OPERATIONS
    """Largest number of operations of a chain."""


PROGRAM_FAMILIES: tuple[Family, ...] = (
    Family(elementwise, 3.0, "elementwise"),
    Family(reduction, 3.0, "reductions"),
    Family(softmax, 2.0, "softmax"),
    Family(norm, 3.0, "norms"),
    Family(image_norm_program, 2.5, "norms"),
    Family(column_norm_program, 0.7, "norms"),
    Family(whole_tensor, 0.8, "norms", 5),
    Family(scan, 2.0, "scans", 4),
    Family(matmul, 3.0, "matmul"),
    Family(matvec, 0.8, "matmul", 5),
    Family(gated, 0.7, "elementwise", 5),
    Family(linear, 3.5, "linear"),
    Family(convolution, 6.0, "convolution"),
    Family(pooling, 2.5, "pooling", 4),
    Family(loss, 2.0, "losses", 3),
    Family(attention, 0.7, "attention", 3),
    Family(embedding, 1.0, "embedding", 4),
    Family(quantisation, 1.0, "quantisation", 4),
)


TRAINING_WEIGHTS = {"convolution": 1.5, "pooling": 1.4, "losses": 1.5}
"""Factors for families whose programs policies often get wrong, for more draws in training.
Held-out problems are drawn without these factors.
"""


def draw_program(seed: str, split: Split) -> DrawnProgram | None:
    """Returns the program of a seed; None if it belongs to another split or a benchmark, or
    cannot be built.

    Equal seeds give equal programs on every machine.
    """
    # All draws come from this generator; their order is part of the format.
    rng = random.Random(seed)
    family = _family(rng, split)
    depth = min(_depth(rng, split), family.deepest)
    try:
        program = family.make(Sketch(rng, wild=split is Split.TRAIN), depth)
    except NameTaken:
        return None
    if is_single_benchmark_operation(program.ops):
        return None
    return program if split_of(program.family, program.ops) is split else None


def _family(rng: random.Random, split: Split) -> Family:
    held = split is Split.HELD_OUT_FAMILY
    # Held-out families are drawn only for their own split.
    pool = [f for f in PROGRAM_FAMILIES if (f.name in HELD_OUT_FAMILIES) is held]
    # Only families that allow long chains.
    if split is Split.HELD_OUT_DEPTH:
        pool = [f for f in pool if f.deepest > TRAINING_DEPTH]
    factors = TRAINING_WEIGHTS if split is Split.TRAIN else {}
    return rng.choices(pool, [f.weight * factors.get(f.name, 1.0) for f in pool])[0]


def _depth(rng: random.Random, split: Split) -> int:
    if split is Split.HELD_OUT_DEPTH:
        return rng.randint(TRAINING_DEPTH + 1, MAX_OPERATIONS)
    if split is Split.HELD_OUT_COMPOSITION:
        return rng.randint(2, TRAINING_DEPTH)
    return rng.choices(
        (1, 2, 3, 4, 5), (3.5, 3.5, 3, 3, 3) if split is Split.TRAIN else (4, 3.5, 3, 2.5, 2)
    )[0]
