"""Renames identifiers to unpredictable names: a policy trained on a generator's own names learns
the list, and not to copy.

Measured without renaming: of 200 drafts for KernelBench's second level, 79 had other arguments
than the reference's constructor, each near a name absent from the training rows, and 25 were not
Python, broken off inside such a name. Only the training split is renamed; held-out splits stay
unchanged.

    reference: def __init__(self, scale)       candidate: def __init__(self, scale)
    renamed:   def __init__(self, pre_scale)              def __init__(self, pre_scale)
"""

from __future__ import annotations

import builtins
import keyword
import random
import re

from kernelwright.rl.data.synth.engine.sketch import Sketch

RENAMED_PROGRAMS_SHARE = 0.5
"""Share of the training programs with renamed identifiers."""
RENAMED_NAMES_SHARE = 0.6
"""Share of renamed identifiers in such a program."""
RENAMED_INPUTS_SHARE = 0.25
"""Share of renamed inputs (other than `x`) in such a program."""
PREFIXES = ("bn", "gn", "pool", "conv", "init", "base", "fc", "post", "pre", "main", "extra", "final", "first", "inner",
    "proj", "act", "norm", "my", "new", "total")  # fmt: skip
SUFFIXES = ("value", "val", "factor", "size", "dim", "param", "arg", "coef", "level", "1", "2", "3", "a", "b", "x", "t",
    "count", "rate", "term", "input")  # fmt: skip
NAME_WORDS = (
    "add", "subtract", "multiply", "divide", "scaling", "shift", "bias", "norm", "kernel", "pool", "stride", "min",
    "max", "anchor", "band", "bank", "basis", "batch", "beam", "bin", "blend", "block", "bottom", "bound", "branch",
    "budget", "buffer", "cap", "carry", "cell",
    "center", "chunk", "clip", "code", "coefficient", "core", "cost", "cut", "cutoff", "decay", "degree", "delta",
    "density", "depth", "drop", "edge",
    "embed", "energy", "entry", "epoch", "exponent", "extent", "fade", "feature", "field", "filter", "floor", "fold",
    "frame", "gain", "gap", "grid",
    "group", "half", "head", "height", "hidden", "index", "initial", "input", "interval", "item", "jump", "key",
    "label", "lane", "layer", "left",
    "level", "limit", "line", "link", "load", "local", "lower", "margin", "mass", "maximum", "mean", "memory", "merge",
    "mid", "minimum", "mix", "mode",
    "momentum", "negative", "node", "noise", "number", "offset", "order", "outer", "output", "pad", "part", "patch",
    "path", "peak", "period", "phase",
    "pivot", "point", "power", "prior", "probability", "query", "radius", "range", "rank", "ratio", "region",
    "residual", "right", "root", "round",
    "row", "sample", "scale", "score", "seed", "segment", "shape", "share", "side", "sigma", "signal", "slice", "slope",
    "slot", "source", "span",
    "spread", "stage", "start", "state", "step", "stop", "sum", "target", "temp", "tensor", "threshold", "time",
    "token", "top", "track", "unit",
    "upper", "value", "vector", "view", "volume", "weight", "width", "window", "zero",
)  # fmt: skip
SYLLABLES = ("ba", "ko", "ri", "tu", "ve", "lo", "sha", "ne", "mi", "qu", "zo", "fa", "de", "pi", "wu", "xe", "gr",
    "th", "y", "os")  # fmt: skip


def rename_identifiers(sketch: Sketch, reference: str, candidate: str) -> tuple[str, str]:
    """Returns both texts, possibly with other names for the model's arguments, layers,
    parameters, sizes and some inputs.
    """
    rng = sketch.style
    if not sketch.wild or rng.random() >= RENAMED_PROGRAMS_SHARE:
        return reference, candidate
    used_names = set(re.findall(r"[A-Za-z_]\w*", reference + candidate))
    used_names |= set(keyword.kwlist) | set(dir(builtins))
    inputs = {name for name, _ in sketch.inputs}
    parameters = {name for name, _ in sketch.arguments} | inputs
    for name in _names(sketch, rng):
        new = _fresh(name, used_names, rng)
        used_names |= {new, f"{new}_ptr"}
        reference = _replaced(reference, name, new)
        # Sizes that are no parameter exist in the reference alone.
        if name not in sketch.sizes or name in parameters:
            candidate = _in_candidate(candidate, name, new, name in inputs)
    return reference, candidate


def _names(sketch: Sketch, rng: random.Random) -> list[str]:
    """Returns the names to replace. A name used by the family's own kernel stays."""
    names = [name for name, _ in sketch.arguments]
    for line in sketch.reference_init:
        if line.startswith("self."):
            names.append(line.split(" = ")[0].removeprefix("self."))
    own_names = list(dict.fromkeys([*names, *sketch.sizes]))
    inputs = [name for name, _ in sketch.inputs if name != "x" and name not in own_names]
    chosen = [name for name in own_names if rng.random() < RENAMED_NAMES_SHARE]
    chosen += [name for name in inputs if rng.random() < RENAMED_INPUTS_SHARE]
    return [name for name in chosen if name not in sketch.reserved]


def _fresh(name: str, used_names: set[str], rng: random.Random) -> str:
    """Draws an unused name: the name with additions, English words, or syllables."""
    while True:
        new = rng.choices((_decorated, _words, _syllables), (5, 4, 1))[0](name, rng)
        if new not in used_names and f"{new}_ptr" not in used_names:
            return new


def _decorated(name: str, rng: random.Random) -> str:
    parts = [name]
    if rng.random() < 0.5:
        parts.insert(0, rng.choice(PREFIXES))
    if len(parts) == 1 or rng.random() < 0.5:
        parts.append(rng.choice(SUFFIXES))
    return "_".join(parts)


def _words(_: str, rng: random.Random) -> str:
    return "_".join(rng.sample(NAME_WORDS, rng.choices((1, 2, 3), (2, 4, 1))[0]))


def _syllables(_: str, rng: random.Random) -> str:
    word = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(2, 4)))
    return word + (f"_{rng.randint(0, 99)}" if rng.random() < 0.3 else "")


def _in_candidate(text: str, name: str, new: str, is_input: bool) -> str:
    """Replaces a name in the whole candidate if the kernels use it; else in the constructor
    alone, since a kernel may have an equal name of its own.
    """
    if is_input or f"self.{name}" in text:
        return _replaced(text, name, new)
    # Otherwise only the constructor may use the name.
    start, end = text.find("    def __init__("), text.find("    def forward(")
    return text[:start] + _replaced(text[start:end], name, new) + text[end:] if start >= 0 else text


def _replaced(text: str, name: str, new: str) -> str:
    """Replaces the name by itself, as the model's attribute and as a pointer.

    Attributes of other objects and keywords of calls stay.
    """
    occurrences = re.compile(
        rf"(?:(?<=self\.)|(?<![\w.])){re.escape(name)}(?P<pointer>_ptr)?\b(?P<keyword>=(?!=))?"
    )

    # A keyword of a call belongs to the called function, but the name in `def f(name=1)` is ours.
    def other(match: re.Match[str]) -> str:
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if match["keyword"] and not line.lstrip().startswith("def "):
            return match[0]
        return f"{new}{match['pointer'] or ''}{match['keyword'] or ''}"

    return occurrences.sub(other, text)
