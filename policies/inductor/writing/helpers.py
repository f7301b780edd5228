"""Plain Triton versions of the runtime functions that Inductor's kernels call, under descriptive
names.

These are also fast in Triton's interpreter, unlike `tl.reduce` with a custom function.
"""

from __future__ import annotations

import re

from kernelwright.policies.inductor.refusing import DraftRefused

HELPER_NAMES = {
    "maximum": "maximum", "minimum": "minimum", "max2": "row_maximum", "min2": "row_minimum", "any": "any_of",
    "maximum_with_index": "larger_with_index", "minimum_with_index": "smaller_with_index",
    "max_with_index": "row_maximum_with_index", "min_with_index": "row_minimum_with_index", "prod": "row_product",
    "online_softmax_combine": "running_softmax", "online_softmax_reduce": "row_softmax",
    "online_softmax_combine_with_sum": "joined_softmax",
    "select_one": "select_one", "welford": "welford", "welford_combine": "welford_combine",
    "welford_reduce": "welford_step",
    "bucketize_binary_search": "place_in_sorted",
    "div_floor_integer": "floor_divide", "remainder_integer": "remainder", "promote_to_tensor": "",
    "greatest_common_divisor": "greatest_common_divisor",
}  # fmt: skip
"""Name in Inductor's runtime -> name in drafts; empty for functions without effect."""

BODIES = {
    "maximum": 'maximum(a, b):\n    """The larger one; NaN where there is one."""\n    return tl.where((a > b) | '
    "(a != a), a, b)",
    "minimum": 'minimum(a, b):\n    """The smaller one; NaN where there is one."""\n    return tl.where((a < b) | '
    "(a != a), a, b)",
    "times": "times(a, b):\n    return a * b",
    "row_product": "row_product(x, axis):\n    return tl.reduce(x, axis, times)",
    "any_of": "any_of(x, axis):\n    return tl.max(x.to(tl.int32), axis) > 0",
    "select_one": (
        "select_one(x, mask, dim, keep_dims=False):\n"
        "    return tl.sum(tl.where(mask, x, tl.zeros_like(x)), dim, keep_dims)"
    ),
    "running_softmax": '''running_softmax(largest, total, x, fast: tl.constexpr):
    """One more element for each running maximum, and for the sum of exponents relative to it."""
    new = maximum(largest, x)
    old_part = tl.where(new == -float("inf"), 1.0, tl.exp(largest - new))
    return new, total * old_part + tl.where(new == -float("inf"), 1.0, tl.exp(x - new))''',
    "joined_softmax": '''joined_softmax(largest, total, x, part, fast: tl.constexpr):
    """A maximum and its sum of exponents more for each running one."""
    new = maximum(largest, x)
    old_share = tl.where(new == -float("inf"), 1.0, tl.exp(largest - new))
    return new, total * old_share + part * tl.where(new == -float("inf"), 1.0, tl.exp(x - new))''',
    "row_softmax": '''row_softmax(largest, total, axis, fast: tl.constexpr):
    """Of each row, the maximum and the sum of exponents relative to it."""
    whole = row_maximum(largest, axis)
    wide = tl.expand_dims(whole, axis)
    apart = tl.where(wide == -float("inf"), 0.0, largest - wide)
    return whole, tl.sum(total * tl.exp(apart), axis)''',
    "welford": '''welford(mean, square, count, axis):
    """Mean, sum of squared deviations and count of a row, from those of its parts."""
    total = tl.sum(count, axis)
    whole = tl.where(total > 0, tl.sum(mean * count, axis) / total, 0.0)
    apart = mean - tl.expand_dims(whole, axis)
    return whole, tl.sum(square + apart * apart * count, axis), total''',
    "welford_combine": """welford_combine(mean_a, square_a, count_a, mean_b, square_b, count_b):
    count = count_a + count_b
    part = tl.where(count == 0.0, 0.0, count_b / count)
    apart = mean_b - mean_a
    return mean_a + apart * part, square_a + square_b + apart * apart * count_a * part, count""",
    "welford_step": '''welford_step(x, mean, square, count, first: tl.constexpr):
    """One more element for each running mean."""
    apart = x - mean
    new = mean + apart / (count + 1)
    return new, square + apart * (x - new), count + 1''',
    "place_in_sorted": '''place_in_sorted(
    value, pointer, length, elements, stride, first, kind: tl.constexpr, right: tl.constexpr,
):
    """Before which of the sorted numbers from `first` on each value belongs, found by halving; NaN comes last."""
    low, high = tl.zeros(value.shape, kind), tl.full(value.shape, length, kind)
    left = length + 1
    while left > 1:
        middle = (low + high) // 2
        place = first + stride * middle
        number = tl.load(pointer + place, (low < high) & (place < elements), other=0.0)
        after = number > value if right else number >= value
        low, high = tl.where(after | (low >= high), low, middle + 1), tl.where(after, middle, high)
        left = (left + 1) // 2
    return low''',
    "greatest_common_divisor": '''greatest_common_divisor(a, b):
    """By Euclid's algorithm, for as many steps as the block's last element needs."""
    a, b = tl.abs(a), tl.abs(b)
    while tl.max((b != 0).to(tl.int32)) > 0:
        rest = a % tl.where(b == 0, tl.full(b.shape, 1, b.dtype), b)
        a, b = tl.where(b == 0, a, b), tl.where(b == 0, b, rest)
    return a''',
    "floor_divide": (
        "floor_divide(a, b):\n    return tl.where((a % b != 0) & ((a < 0) != (b < 0)), a // b - 1, a // b)"
    ),
    "remainder": "remainder(a, b):\n    return tl.where((a % b != 0) & ((a % b < 0) != (b < 0)), a % b + b, a % b)",
}
for _word, _sign, _other in (("maximum", ">", "larger"), ("minimum", "<", "smaller")):
    _short = _word[:3]
    BODIES[f"row_{_word}"] = f'''row_{_word}(x, axis):
    """Of each row; NaN where there is one."""
    nans = tl.sum((x != x).to(tl.int32), axis)
    found = tl.{_short}(x, axis)
    return tl.where(nans > 0, float("nan"), found).to(x.dtype) if x.dtype.is_floating() else found'''
    BODIES[f"{_other}_with_index"] = f"""{_other}_with_index(a, i, b, j):
    left = (a {_sign} b) | ((a != a) & (b == b)) | (((a == b) | ((a != a) & (b != b))) & (i < j))
    return tl.where(left, a, b), tl.where(left, i, j)"""
    BODIES[f"row_{_word}_with_index"] = f"""row_{_word}_with_index(x, i, axis):
    best = row_{_word}(x, axis)
    return best, tl.min(tl.where((x == tl.expand_dims(best, axis)) | (x != x), i, 2147483647), axis).to(i.dtype)"""


def helper_name(name: str) -> str:
    """Returns the draft's name for a runtime function of Inductor. Raises DraftRefused for
    unknown functions.
    """
    if name not in HELPER_NAMES:
        raise DraftRefused(f"Inductor calls {name}, which has no plain form here")
    return HELPER_NAMES[name]


def helpers_for(text: str) -> list[str]:
    """The definitions of all helpers a text calls, each before its first use."""
    needed: list[str] = []

    # A helper's own helpers are needed first.
    def want(body: str) -> None:
        for name in BODIES:
            if re.search(rf"(?<![\w.]){name}\b", body) and name not in needed:
                want(BODIES[name].split("\n", 1)[1])
                if name not in needed:
                    needed.append(name)

    want(text)
    return [f"@triton.jit\ndef {BODIES[name]}" for name in needed]
