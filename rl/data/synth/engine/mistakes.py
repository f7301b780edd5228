"""Typical mistakes of people and models in kernels: each is a pattern in the text and its
replacement.

    x = tl.load(x_ptr + offs, mask=offs < n, other=0.0)
    load without its mask   x = tl.load(x_ptr + offs)
    mask one short          x = tl.load(x_ptr + offs, mask=offs < n - 1, other=0.0)
    mask one over           x = tl.load(x_ptr + offs, mask=offs <= n, other=0.0)
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Mistake:
    """A replacement that makes a correct text wrong."""

    name: str
    pattern: str
    """A regular expression over the whole text."""
    instead: str
    weight: float = 1.0


MISTAKES: tuple[Mistake, ...] = (
    # masks
    Mistake("load without its mask", r"(tl\.load\([^\n]*?), mask=[^\n]*?(\)(?:\.to\(tl\.float32\))?\n)", r"\1\2"),
    Mistake("store without its mask", r"(tl\.store\([^\n]*), mask=[^\n]*\)\n", r"\1)\n"),
    Mistake("mask one short", r"\b(offs|cols) < (n|columns|inner)\b", r"\1 < \2 - 1"),
    Mistake("mask one over", r"\b(offs|cols) < (n|columns)\b", r"\1 <= \2"),
    Mistake("mask of the other side", r"\(rows\[:, None\] < M\) & \(cols", r"(rows[:, None] < N) & (cols"),
    Mistake("no other for masked elements", r", other=[^\n]*?\)", r")"),
    # starts and ends of reductions
    Mistake("maximum from zero", r'-float\("inf"\)', "0.0", 2.0),
    Mistake("minimum from zero", r'(?<!-)float\("inf"\)', "0.0", 2.0),
    Mistake("sum from one", r"tl\.zeros\((\([^)]*\)), tl\.float32\)", r"tl.full(\1, 1.0, tl.float32)"),
    Mistake("mean not divided", r" / (columns|length|pixels|count|size)\b", "", 2.0),
    Mistake("one less or more", r" / \((columns|length) - 1\)", r" / \1"),
    Mistake("no epsilon", r" \+ 1e-\d+", ""),
    Mistake("wrong epsilon", r"1e-5", "1e-1"),
    Mistake("wrong axis", r"axis=0", "axis=1"),
    Mistake("overwritten accumulator", r"acc \+= ", "acc = ", 2.0),
    Mistake("accumulator of the last block only", r"tl\.dot\(a, b, acc", "tl.dot(a, b", 2.0),
    Mistake("wrong reduction", r"y = tl\.sum\(acc", "y = tl.max(acc"),
    Mistake("other reduction", r"tl\.max\(acc", "tl.sum(acc"),
    Mistake("no rescaling", r"total \* tl\.exp\(top - new_top\) \+ ", "total + "),
    Mistake("not divided by the sum", r"(tl\.exp\(x - top[^)]*\)) / total(?:\[None, :\])?", r"\1"),
    Mistake("no maximum subtracted", r"tl\.exp\(x - top(?:\[None, :\])?\)", "tl.exp(x)"),
    # names
    Mistake("an undefined name", r"(?<=\n    )(offs|cols|rows) = ", r"\1et = ", 2.0),
    Mistake("an undefined mask", r"(?<=    )mask = ", "masked = "),
    Mistake("libdevice not imported", r"from triton\.language\.extra import libdevice\n", "", 3.0),
    Mistake("tl not imported", r"import triton\.language as tl\n", "", 0.7),
    Mistake("nn not imported", r"import torch\.nn as nn\n", "", 0.5),
    Mistake("self forgotten", r"self\.(linear|gemm|fc|conv|norm|bias|weight|layer_norm|alpha|scale)\b(?=[.,)])", r"\1"),
    Mistake("attribute misspelt", r"\.weight,", ".weights,"),
    Mistake("another kernel's name", r"\b(\w+)_kernel\[", r"\1_fwd_kernel["),
    # functions that do not exist
    Mistake("tl.tanh", r"libdevice\.tanh", "tl.tanh", 3.0),
    Mistake("tl.expm1", r"libdevice\.expm1", "tl.expm1", 2.0),
    Mistake("tl.log1p", r"libdevice\.log1p", "tl.log1p", 2.0),
    Mistake("tl.relu", r"tl\.maximum\((\w+), 0\.0\)", r"tl.relu(\1)", 2.0),
    Mistake("tl.math.sigmoid", r"tl\.sigmoid", "tl.nn.sigmoid"),
    Mistake("tl.fabs", r"tl\.abs", "tl.fabs"),
    Mistake("tl.gelu", r"tl\.erf", "tl.gelu_erf"),
    Mistake("tl.mean", r"tl\.sum\((\w+), axis=0\) / (?:columns|length)", r"tl.mean(\1, axis=0)"),
    Mistake("tl.matmul", r"tl\.dot\(", "tl.matmul("),
    Mistake("torch in a kernel", r"tl\.(exp|sqrt|abs|sin|cos|sigmoid)\(", r"torch.\1("),
    # arithmetic
    Mistake("maximum for minimum", r"tl\.maximum\(x, (?!tl|new)", "tl.minimum(x, "),
    Mistake("minimum for maximum", r"tl\.minimum\((x|acc|y)", r"tl.maximum(\1"),
    Mistake("plus for times", r"(?<=\n    )((x|y|acc) = \2) \* ", r"\1 + "),
    Mistake("minus for plus", r"(?<=\n    )((x|y|acc) = \2) \+ ", r"\1 - "),
    Mistake("sine for cosine", r"tl\.cos", "tl.sin"),
    Mistake("wrong constant of GELU", r"0\.044715", "0.44715"),
    Mistake("wrong root of GELU", r"0\.7071067811865476", "0.7978845608028654"),
    Mistake("wrong side", r"tl\.where\((x|acc|y) > 0,", r"tl.where(\1 < 0,"),
    Mistake("an operation left out", r"\n    (x|acc|y) = (?!tl\.(?:load|zeros|full|dot))[^\n]*", "", 3.0),
    Mistake("bias forgotten", r"\n    acc \+= tl\.load\(bias_ptr[^\n]*", "", 2.0),
    Mistake("tf32 for fp32", r', input_precision="tf32x3"', "", 3.0),
    # places
    Mistake("program not multiplied", r"tl\.program_id\(0\)\.to\(tl\.int64\) \* BLOCK \+",
    "tl.program_id(0).to(tl.int64) +"),
    Mistake("row not multiplied", r"row \* columns \+ cols", "row + cols"),
    Mistake("wrong row stride", r"rows\[:, None\] \* N", "rows[:, None] * M", 2.0),
    Mistake("wrong stride of a", r"rows\[:, None\] \* K", "rows[:, None] * N"),
    Mistake("wrong stride of b", r"k\[:, None\] \* N", "k[:, None] * K"),
    Mistake("weight not transposed", r"k\[:, None\] \+ cols\[None, :\] \* K", "k[:, None] * N + cols[None, :]"),
    Mistake("wrong inner size", r"\) \* inner \+", ") * length +"),
    Mistake("spread along the other axis", r"\[None, :\]", "[:, None]"),
    Mistake("not spread", r"(top|total|mean|factor)\[None, :\]", r"\1", 2.0),
    Mistake("loop without its step", r"range\(0, (columns|length|K), \w+\)", r"range(0, \1)", 0.5),
    Mistake("wrong program axis", r"tl\.program_id\(1\)", "tl.program_id(0)"),
    # the launch
    Mistake("grid rounded down", r"triton\.cdiv\((\w+), (\d+)\)", r"\1 // \2", 2.0),
    Mistake("grid too small", r"\[\(rows,\)\]", "[(rows // 2,)]"),
    Mistake("block of any length", r"BLOCK=(?:1024|2048)\)", "BLOCK=1000)"),
    Mistake("grid of another block", r"(triton\.cdiv\(n, )\d+", r"\g<1>4096"),
    Mistake("grid of one axis", r"(grid = \(triton\.cdiv\(M, \d+\)) \* triton\.cdiv\(N, \d+\)", r"\1", 2.0),
    Mistake("constexpr forgotten", r"(BLOCK\w*): tl\.constexpr", r"\1", 2.0),
    Mistake("an argument forgotten", r"(\)\]|grid\])\((\w+), ", r"\1(", 2.0),
    Mistake("a size forgotten", r", (n|columns|inner|K|N)(?=, BLOCK)", "", 2.0),
    Mistake("an unknown option", r"BLOCK=", "BLOCK_SIZE=", 1.5),
    Mistake("warps of no power of two", r"num_warps=\d", "num_warps=6", 0.5),
    Mistake("jit forgotten", r"@triton\.jit\n", "", 1.0),
    # the host
    Mistake("nothing returned", r"\n        return out\n", "\n"),
    Mistake("the input returned", r"return out\n", "return x\n"),
    Mistake("kept axis", r"x\.shape\[:-1\](?=, device)", "(*x.shape[:-1], 1)", 2.0),
    Mistake("lost axis", r"\(\*x\.shape\[:-1\], 1\)", "x.shape[:-1]", 2.0),
    Mistake("half precision output", r"dtype=\w+\.dtype", "dtype=torch.float16"),
    Mistake("float output", r"dtype=torch\.int64", "dtype=torch.float32", 2.0),
    Mistake("wrong size of the output", r"torch\.empty\(\(M, N\)", "torch.empty((M, K)"),
    Mistake("sizes swapped", r"\(M, K\), N = ", "(K, M), N = "),
    Mistake("no super().__init__", r"        super\(\).__init__\(\)\n", "        pass\n"),
    Mistake("torch computes the rest", r"return out\n", "return torch.relu(out)\n"),
    Mistake("torch computes it all", r"class ModelNew\(nn\.Module\):", "class ModelNew(Model):", 0.5),
    # syntax
    Mistake("a missing parenthesis", r"(tl\.(?:arange|program_id)\([^()\n]*)\)", r"\1", 1.5),
    Mistake("a missing colon", r"(def \w+\([^\n]*\)):\n", r"\1\n"),
    Mistake("wrong indentation", r"\n    (tl\.store)", r"\n      \1"),
    Mistake("a doubled bracket", r"\]\(", "]](", 0.7),
    Mistake("a word cut off", r"import triton\n", "import tritn\n", 0.3),
    Mistake("cut off", r"\n        return out\n", "\n        return out)\n", 0.5),
)  # fmt: skip


def make_mistakes(text: str, rng: random.Random, n: int) -> list[tuple[str, str]]:
    """Returns the name and text of up to `n` versions with a single mistake each, all different
    and unlike the original.
    """
    names: dict[str, str] = {}
    fitting = [mistake for mistake in MISTAKES if re.search(mistake.pattern, text)]
    for _ in range(4 * n):
        if len(names) >= n or not fitting:
            break
        mistake = rng.choices(fitting, [mistake.weight for mistake in fitting])[0]
        fitting.remove(mistake)
        match = rng.choice(list(re.finditer(mistake.pattern, text)))
        broken = text[: match.start()] + match.expand(mistake.instead) + text[match.end() :]
        if broken != text and broken not in names:
            names[broken] = mistake.name
    return [(name, broken) for broken, name in names.items()]
