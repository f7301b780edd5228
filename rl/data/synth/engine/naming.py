"""Names that nobody could guess: a policy that only ever meets a generator's own list learns the list, and not to copy.

Measured before this was here: of 200 drafts for KernelBench's second level, 79 had other arguments than the reference's
constructor, each time near a name that no training row held, and 25 were no Python, broken off inside such a name. Only
the training split has these names; the held-out splits stay the problems that they were.
"""

from __future__ import annotations

import builtins
import keyword
import random
import re

from kernelwright.rl.data.synth.engine.sketch import Sketch

RENAMED_PROGRAMS_SHARE = 0.5
"""The share of the training's programs that are renamed."""
RENAMED_NAMES_SHARE = 0.6
"""The share of the names in such a program that are changed."""
RENAMED_INPUTS_SHARE = 0.25
"""The share of the inputs of such a program that have another name than `x`."""
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
    """Both texts under other names, or as they are: the model's arguments, its layers and parameters, the sizes, at
    times the inputs.
    """
    rng = sketch.style
    if not sketch.wild or rng.random() >= RENAMED_PROGRAMS_SHARE:
        return reference, candidate
    taken = (
        set(re.findall(r"[A-Za-z_]\w*", reference + candidate))
        | set(keyword.kwlist)
        | set(dir(builtins))
    )
    given = {name for name, _ in (*sketch.arguments, *sketch.inputs)}
    for name in _names(sketch, rng):
        new = _fresh(name, taken, rng)
        taken |= {new, f"{new}_ptr"}
        reference = _replaced(reference, name, new)
        if name not in sketch.sizes or name in given:
            candidate = _in_candidate(
                candidate, name, new, any(name == n for n, _ in sketch.inputs)
            )
    return reference, candidate


def _names(sketch: Sketch, rng: random.Random) -> list[str]:
    """Returns the names to replace. A name that the family's kernel uses itself stays."""
    layers = [
        line.split(" = ")[0].removeprefix("self.")
        for line in sketch.reference_init
        if line.startswith("self.")
    ]
    own = list(dict.fromkeys([*(n for n, _ in sketch.arguments), *layers, *sketch.sizes]))
    inputs = [name for name, _ in sketch.inputs if name != "x" and name not in own]
    chosen = [name for name in own if rng.random() < RENAMED_NAMES_SHARE] + [
        name for name in inputs if rng.random() < RENAMED_INPUTS_SHARE
    ]
    return [name for name in chosen if name not in sketch.reserved]


def _fresh(name: str, taken: set[str], rng: random.Random) -> str:
    while True:
        new = rng.choices((_decorated, _words, _syllables), (5, 4, 1))[0](name, rng)
        if new not in taken and f"{new}_ptr" not in taken:
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
    """Everywhere where the kernels are given it; else in the constructor alone, since a kernel may have a word of
    its own that is the same.
    """
    if is_input or f"self.{name}" in text:
        return _replaced(text, name, new)
    start, end = text.find("    def __init__("), text.find("    def forward(")
    return text[:start] + _replaced(text[start:end], name, new) + text[end:] if start >= 0 else text


def _replaced(text: str, name: str, new: str) -> str:
    """The name, as itself, as the model's attribute and as a pointer.

    Not as another object's attribute, and not as a keyword of a call.
    """
    found = re.compile(
        rf"(?:(?<=self\.)|(?<![\w.])){re.escape(name)}(?P<pointer>_ptr)?\b(?P<keyword>=(?!=))?"
    )

    def other(match: re.Match[str]) -> str:
        line = text[text.rfind("\n", 0, match.start()) + 1 : match.start()]
        if match["keyword"] and not line.lstrip().startswith("def "):
            return match[0]
        return f"{new}{match['pointer'] or ''}{match['keyword'] or ''}"

    return found.sub(other, text)
