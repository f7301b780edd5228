"""Assigns a program to a split by its operations, never by chance: the same for every seed and on
every machine.

    family       operations                             split
    elementwise  scale, relu                            train
    elementwise  relu, selu                             held_out_composition (a held-out pair)
    matmul       matmul, add, relu, scale, abs, exp     held_out_depth (six operations)
    embedding    relu                                   held_out_family
    softmax      softmax                                none: a benchmark's problem as a whole
"""

from __future__ import annotations

import hashlib
import re
from itertools import pairwise

from kernelwright.rl.data.rows import Split
from kernelwright.rl.data.synth.engine.operations import OPERATIONS

HELD_OUT_FAMILIES = frozenset({"embedding", "quantisation"})
TRAINING_DEPTH = 5
"""Number of operations of the longest training chains."""
HELD_OUT_ONE_IN = 11
"""One of this number of pairs of neighbouring operations is held out."""

BENCHMARK_OPERATIONS = re.compile(
    r"matmul(_\w+)?|bmm(_\w+)?|matvec\w*|diagonal_matmul|softmax|log_softmax"
    r"|(block_)?(layer|group|instance|batch|rms)_norm|frobenius_norm|(plane|whole)_(mean|sum|max|min)|l[12]_normalise"
    r"|(reverse_|masked_)?cumsum|cumprod|(max|avg)_pool\dd|\w+_conv\dd|attention"
    r"|(mse|smooth_l1|hinge|kl_div|triplet|cosine|cross_entropy)_loss"
)
"""Operations a benchmark asks for alone. None becomes a whole problem here; compositions contain
them.
"""


def is_single_benchmark_operation(ops: tuple[str, ...]) -> bool:
    """Returns whether a chain is a single operation equal to a benchmark's problem, judged by
    names.

    `rl data clean` compares the graphs themselves.
    """
    # A triangular product is a benchmark's problem as a whole.
    if len(ops) == 2 and ops[1] in ("triu", "tril"):
        return True
    return len(ops) == 1 and (
        BENCHMARK_OPERATIONS.fullmatch(ops[0]) is not None
        or (ops[0] in OPERATIONS and OPERATIONS[ops[0]].plain)
    )


def split_of(family: str, ops: tuple[str, ...]) -> Split:
    """Returns the split by family, then depth, then pairs: exactly one split per program."""
    if family in HELD_OUT_FAMILIES:
        return Split.HELD_OUT_FAMILY
    if len(ops) > TRAINING_DEPTH:
        return Split.HELD_OUT_DEPTH
    if any(is_held_out_pair(a, b) for a, b in pairwise(ops)):
        return Split.HELD_OUT_COMPOSITION
    return Split.TRAIN


def is_held_out_pair(first: str, second: str) -> bool:
    """Returns whether `second` never follows `first` directly in training."""
    # A hash instead of a random draw: independent of seeds and versions.
    digest = hashlib.sha256(f"{first}>{second}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0
