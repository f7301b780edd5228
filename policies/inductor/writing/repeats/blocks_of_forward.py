"""Turns repeated blocks of launches in forward into functions.

The statements of two blocks are equal except for the layer, the tensors and the sizes, which
become parameters.

    conv_kernel[...](x, self.layer1.weight, conv, ...)       def layer1_block(layer, x):
    relu_kernel[...](conv, relu, ...)                            conv_kernel[...](x, layer.weight, conv, ...)
    conv_kernel[...](relu, self.layer2.weight, conv_2, ...)      relu_kernel[...](conv, relu, ...)
    relu_kernel[...](conv_2, relu_2, ...)                        return relu
                                                             relu = layer1_block(self.layer1, x)
                                                             relu_2 = layer1_block(self.layer2, relu)

Search: the longest runs of statements of equal form are rated by the characters they save; the
best run becomes a
function, and the search is repeated.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from kernelwright.policies.inductor.syntax import names_in, unique_name

MIN_FORWARD_CHARACTERS = 12_000
"""Characters of a forward from which on its repeated blocks become functions."""
MIN_SAVED_CHARACTERS = 1_500
"""Characters a function has to save."""
MAX_BLOCK_FUNCTIONS = 12
MAX_BLOCK_PARAMETERS = 24
"""Maximum number of parameters and results of a function, so that its calls stay readable."""
BLOCK_STATEMENTS = range(4, 160)
"""Range of the number of statements per block."""
MAX_CANDIDATE_BLOCKS = 150
"""Number of candidate blocks examined in detail, those with the largest savings first."""
PATH = re.compile(r"\bself(?:\.\w+\b(?!\()|\[\d+\])+")
"""A parameter, a buffer or a layer: `self.layers[0].conv.weight`."""
COMPONENT = re.compile(r"\.\w+|\[\d+\]")
WORD = re.compile(r"(?<![\w.'\"])[A-Za-z_]\w*\b(?!=[^=]|['\"])")
NUMBER = re.compile(r"(?<![\w.=])(?:1[6-9]|[2-9]\d|\d{3,})(?![\w.])")
"""From 16 on: smaller ones are strides, axes and windows, and those of options are the launch's own."""
LAYER = "layer"
EXTENT = "extent"


@dataclass
class Statement:
    """Statement of forward with its form: the text with placeholders for names and layers."""

    lines: list[str]
    form: str = ""
    names: list[str] = field(default_factory=list)
    """Local names, in the order of the text."""
    paths: list[str] = field(default_factory=list)
    numbers: list[str] = field(default_factory=list)
    stored: set[str] = field(default_factory=set)
    loaded: set[str] = field(default_factory=set)

    @property
    def size(self) -> int:
        """Number of characters of the statement."""
        return sum(map(len, self.lines))


@dataclass
class RepeatedBlock:
    """Statements repeated at several positions."""

    length: int
    starts: list[int]
    names: list[list[str]]
    """For each place, its local names in the order in which they are met."""
    paths: list[list[str]]
    prefixes: list[str]
    """Common layer of all paths, per occurrence; empty if the paths differ by more than a layer."""
    inputs: list[int]
    """Which of the names are there before."""
    outputs: list[int]
    """Which of them are read afterwards."""
    numbers: list[tuple[str, ...]]
    """For each number in the text, its value per occurrence."""
    saved: int = 0

    @property
    def extents(self) -> list[tuple[str, ...]]:
        """Numbers that differ between the positions, each once."""
        return [n for n in dict.fromkeys(self.numbers) if len(set(n)) > 1]


def with_functions(lines: list[str], used_names: set[str]) -> tuple[list[str], list[str]]:
    """Returns forward's lines with calls in place of repeated blocks, and the texts of the
    functions.

    used_names: names that functions and their local variables must avoid; extended by the new
    names.
    """
    functions: list[str] = []
    while sum(map(len, lines)) > MIN_FORWARD_CHARACTERS and len(functions) < MAX_BLOCK_FUNCTIONS:
        statements = _statements(lines)
        block = _best(statements)
        if block is None:
            break
        name = _function_name(block, used_names)
        functions.append(_function(name, block, statements))
        for occurrence in reversed(range(len(block.starts))):
            start = block.starts[occurrence]
            statements[start : start + block.length] = [Statement([_call(name, block, occurrence)])]
        lines = [line for statement in statements for line in statement.lines]
    return lines, functions


def _statements(lines: list[str]) -> list[Statement]:
    tree = ast.parse("\n".join(lines))
    local = names_in(tree) - _callables(tree)
    statements = []
    for node in tree.body:
        statement = Statement(lines[node.lineno - 1 : node.end_lineno])
        names = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in local]
        statement.stored = {n.id for n in names if isinstance(n.ctx, ast.Store)}
        statement.loaded = {n.id for n in names if isinstance(n.ctx, ast.Load)}
        text = "\n".join(statement.lines)
        if isinstance(node, ast.Assign | ast.Expr) and "constant" not in text:
            statement.paths = PATH.findall(text)
            # The form of a statement: paths become @, local names ?, larger numbers #.
            bare = PATH.sub("@", text)
            statement.names = [w for w in WORD.findall(bare) if w in local]
            statement.numbers = NUMBER.findall(bare)
            form = NUMBER.sub("#", WORD.sub(lambda m: "?" if m[0] in local else m[0], bare))
            statement.form = re.sub(r"\s+", "", form)
        statements.append(statement)
    return statements


def _callables(tree: ast.AST) -> set[str]:
    """Returns names of functions, modules and lambda arguments, as opposed to local variables of
    forward.
    """
    called = {
        n.func.id
        for n in ast.walk(tree)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    arguments = {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    launched = {n.value.id for n in ast.walk(tree) if isinstance(n, ast.Subscript) and isinstance(n.value, ast.Name)
        and n.value.id.endswith("_kernel")}  # fmt: skip
    return called | arguments | launched | {"torch", "triton", "tl", "math", "inf", "nan", "self"}


def _best(statements: list[Statement]) -> RepeatedBlock | None:
    """Returns the block that saves most; None if no block saves enough."""
    blocks = [
        block
        for candidate in _candidates(statements)
        if (block := _block(statements, *candidate)) is not None
    ]
    best = max(blocks, key=lambda block: block.saved, default=None)
    return best if best is not None and best.saved >= MIN_SAVED_CHARACTERS else None


def _candidates(statements: list[Statement]) -> list[tuple[int, list[int]]]:
    """Yields lengths and positions of runs of statements of equal form, by decreasing saving."""
    numbers: dict[str, int] = {}
    forms = [
        numbers.setdefault(s.form, len(numbers) + 1) if s.form else -i - 1
        for i, s in enumerate(statements)
    ]
    counted = Counter(forms)
    sizes = [0]
    for statement in statements:
        sizes.append(sizes[-1] + statement.size)
    rated = []
    runs: dict[int, tuple[int, ...]] = dict.fromkeys(range(len(forms)), ())
    # Runs of each length, extended by one statement at a time; a run that occurs once cannot be
    # extended.
    for length in range(1, BLOCK_STATEMENTS.stop):
        groups: dict[tuple[int, int], list[int]] = defaultdict(list)
        for start, run in list(runs.items()):  # a run is repeated only where its beginning is
            last = start + length - 1
            if last >= len(forms) or counted[forms[last]] < 2:
                del runs[start]
            else:
                groups[hash(run), forms[last]].append(start)
        for (before, last), starts in groups.items():
            disjoint = _without_overlaps(starts, length)
            if len(starts) < 2:
                del runs[starts[0]]
                continue
            for start in starts:
                runs[start] = (before, last)
            if len(disjoint) > 1 and length in BLOCK_STATEMENTS:
                saved = (len(disjoint) - 1) * (sizes[starts[0] + length] - sizes[starts[0]])
                rated.append((saved, length, starts))
    # The largest savings first; only those are examined in detail.
    rated.sort(key=lambda candidate: -candidate[0])
    return [
        (length, starts)
        for saved, length, starts in rated[:MAX_CANDIDATE_BLOCKS]
        if saved >= MIN_SAVED_CHARACTERS
    ]


def _without_overlaps(starts: list[int], length: int) -> list[int]:
    """Returns non-overlapping positions, from the first on."""
    disjoint: list[int] = []
    for start in starts:
        if not disjoint or start >= disjoint[-1] + length:
            disjoint.append(start)
    return disjoint


def _block(statements: list[Statement], length: int, starts: list[int]) -> RepeatedBlock | None:
    """Returns a block for the occurrences with equal patterns of names; the pattern that saves
    most is used.
    """
    starts_by_pattern: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = defaultdict(list)
    for start in starts:
        some = statements[start : start + length]
        starts_by_pattern[
            _pattern([n for s in some for n in s.names]),
            _pattern([p for s in some for p in s.paths]),
        ].append(start)
    blocks = [
        _make_block(statements, length, _without_overlaps(group, length))
        for group in starts_by_pattern.values()
    ]
    return max((b for b in blocks if b is not None), key=lambda block: block.saved, default=None)


def _pattern(words: list[str]) -> tuple[int, ...]:
    first: dict[str, int] = {}
    return tuple(first.setdefault(word, len(first)) for word in words)


def _make_block(
    statements: list[Statement], length: int, starts: list[int]
) -> RepeatedBlock | None:
    if len(starts) < 2:
        return None
    windows = [statements[start : start + length] for start in starts]
    names = [_unique_words(window, "names") for window in windows]
    paths = [_unique_words(window, "paths") for window in windows]
    defined: set[str] = set()
    inputs: dict[str, None] = {}
    # Inputs: names read before the block assigns them.
    for statement in windows[0]:
        inputs |= dict.fromkeys(n for n in names[0] if n in statement.loaded and n not in defined)
        defined |= statement.stored
    outputs: set[int] = set()
    # Outputs: names assigned in the block and read after it, at any occurrence.
    for local_names, window, start in zip(names, windows, starts, strict=True):
        stored = set().union(*(s.stored for s in window))
        later = set().union(*(s.loaded for s in statements[start + length :]))
        for index, name in enumerate(local_names):
            if name in stored & later:
                outputs.add(index)
    # Numbers at equal positions of all windows.
    numbers_of_windows: list[list[str]] = []
    for window in windows:
        numbers_of_windows.append([number for s in window for number in s.numbers])
    numbers = list(zip(*numbers_of_windows, strict=True))
    read = [names[0].index(n) for n in inputs]
    block = RepeatedBlock(
        length, starts, names, paths, _prefixes(paths), read, sorted(outputs), numbers
    )
    handed = (
        len(read) + (1 if block.prefixes else len(paths[0]) * 2) + len(outputs) + len(block.extents)
    )
    launches = sum("_kernel[" in s.lines[0] for s in windows[0])
    if launches < 2 or not outputs or handed > MAX_BLOCK_PARAMETERS:
        return None
    size = sum(s.size for s in windows[0])
    # Estimate: each parameter costs about 18 characters in the function and in every call.
    block.saved = (len(starts) - 1) * size - 18 * handed * (len(starts) + 1) - 100
    return block


def _unique_words(window: list[Statement], attribute: str) -> list[str]:
    """Returns the names or paths of some statements, each once, in order."""
    words: dict[str, None] = {}
    for statement in window:
        words |= dict.fromkeys(getattr(statement, attribute))
    return list(words)


def _prefixes(paths: list[list[str]]) -> list[str]:
    """Returns the layer of each occurrence if the remainders of its paths are equal everywhere;
    else nothing.
    """
    layers, suffixes = [], []
    for window_paths in paths:
        parts = [COMPONENT.findall(path) for path in window_paths]
        if not parts:
            return []
        same = 0
        while all(len(p) > same + 1 and p[same] == parts[0][same] for p in parts):
            same += 1
        layers.append("self" + "".join(parts[0][:same]))
        suffixes.append([p[same:] for p in parts])
    return layers if all(r == suffixes[0] for r in suffixes) and "self" not in layers else []


def _function_name(block: RepeatedBlock, used_names: set[str]) -> str:
    """`layer3_block`, after the layer of its first place."""
    words = re.findall(r"\.([A-Za-z]\w*)", block.prefixes[0]) if block.prefixes else []
    return unique_name(f"{words[-1].strip('_')}_block" if words else "block", used_names)


def _function(name: str, block: RepeatedBlock, statements: list[Statement]) -> str:
    """The function's text, with names of its own."""
    positions = range(block.starts[0], block.starts[0] + block.length)
    read = {word for i in positions for line in statements[i].lines for word in WORD.findall(line)}
    reserved = {*(read - set(block.names[0])), name, LAYER, "block", "device"}
    new = {
        n: "device" if n == "device" else unique_name(re.sub(r"(_\d+)+$", "", n), reserved)
        for n in block.names[0]
    }
    paths, extra = block.paths[0], {}
    if block.prefixes:
        extra = {p: LAYER + p[len(block.prefixes[0]) :] for p in paths}
    else:
        extra = {p: unique_name(_path_word(p), reserved) for p in paths}
    extents = {numbers: unique_name(EXTENT, reserved) for numbers in block.extents}
    texts = iter([extents.get(numbers, numbers[0]) for numbers in block.numbers])

    def renamed(text: str) -> str:
        if text in extra:
            return extra[text]
        return NUMBER.sub(lambda _: next(texts), WORD.sub(lambda m: new.get(m[0], m[0]), text))

    lines = []
    for i in positions:
        lines += [
            "".join(map(renamed, re.split(f"({PATH.pattern})", line)))
            for line in statements[i].lines
        ]
    parameters = [LAYER] if block.prefixes else list(extra.values())
    parameters += [*(new[block.names[0][i]] for i in block.inputs), *extents.values()]
    returned = ", ".join(new[block.names[0][i]] for i in block.outputs)
    description = _describe_block(block)
    head = [f"def {name}({', '.join(parameters)}):", f'    """{description}"""']
    return "\n".join([*head, *(f"    {line}" for line in lines), f"    return {returned}"])


def _path_word(path: str) -> str:
    """`conv_weight` of `self.layers[0].conv.weight`, `bn_0_weight` of `self.bn[0].weight`."""
    words = re.findall(r"[A-Za-z_]\w*|\d+", path)
    first = next(
        i
        for i in reversed(range(len(words)))
        if words[i].isidentifier() and (i < len(words) - 1 or i == 0)
    )
    return "_".join(words[first:])


def _describe_block(block: RepeatedBlock) -> str:
    if not block.prefixes:
        return f"What forward does {len(block.starts)} times."
    first, last = (p.removeprefix("self.") for p in (block.prefixes[0], block.prefixes[-1]))
    return f"What forward does for {len(block.starts)} layers, from {first} to {last}."


def _call(name: str, block: RepeatedBlock, occurrence: int) -> str:
    names = block.names[occurrence]
    arguments = [block.prefixes[occurrence]] if block.prefixes else list(block.paths[occurrence])
    arguments += [
        *(names[i] for i in block.inputs),
        *(numbers[occurrence] for numbers in block.extents),
    ]
    return f"{', '.join(names[i] for i in block.outputs)} = {name}({', '.join(arguments)})"
