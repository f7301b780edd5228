"""Which split a program belongs to: by what it is made of, never by chance, so that it is the same for every seed
and on every machine.
"""

from __future__ import annotations

import hashlib
import re
from itertools import pairwise

from kernelwright.rl.data.rows import Split
from kernelwright.rl.data.synth.engine.operations import OPERATIONS

HELD_OUT_FAMILIES = frozenset({"embedding", "quantisation"})
TRAINING_DEPTH = 5
"""Operations of the longest chains in training."""
HELD_OUT_ONE_IN = 11
"""One of so many pairs of neighbouring operations is held out."""

BENCHMARK_OPERATIONS = re.compile(
    r"matmul(_\w+)?|bmm(_\w+)?|matvec\w*|diagonal_matmul|softmax|log_softmax"
    r"|(block_)?(layer|group|instance|batch|rms)_norm|frobenius_norm|(plane|whole)_(mean|sum|max|min)|l[12]_normalise"
    r"|(reverse_|masked_)?cumsum|cumprod|(max|avg)_pool\dd|\w+_conv\dd|attention"
    r"|(mse|smooth_l1|hinge|kl_div|triplet|cosine|cross_entropy)_loss"
)
"""Operations that a benchmark asks for alone. None of them is a whole problem here; compositions contain them."""


def is_single_benchmark_operation(ops: tuple[str, ...]) -> bool:
    """Whether a chain is one operation that a benchmark's problem is, as far as names tell.

    `rl data clean` holds the graphs themselves against them.
    """
    if len(ops) == 2 and ops[1] in ("triu", "tril"):
        return True
    return len(ops) == 1 and (
        BENCHMARK_OPERATIONS.fullmatch(ops[0]) is not None
        or (ops[0] in OPERATIONS and OPERATIONS[ops[0]].plain)
    )


def split_of(family: str, ops: tuple[str, ...]) -> Split:
    """Family first, then depth, then pairs: a program belongs to one split only."""
    if family in HELD_OUT_FAMILIES:
        return Split.HELD_OUT_FAMILY
    if len(ops) > TRAINING_DEPTH:
        return Split.HELD_OUT_DEPTH
    if any(is_held_out_pair(a, b) for a, b in pairwise(ops)):
        return Split.HELD_OUT_COMPOSITION
    return Split.TRAIN


def is_held_out_pair(first: str, second: str) -> bool:
    """Whether training never has `second` right after `first`."""
    digest = hashlib.sha256(f"{first}>{second}".encode()).digest()
    return int.from_bytes(digest[:4], "big") % HELD_OUT_ONE_IN == 0
