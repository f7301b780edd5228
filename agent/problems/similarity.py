"""Ranks catalogue problems by similarity to another problem, using the torch operators called by
their references.

Only text is read: torch is not imported and no reference is run. Example: `torch.softmax(x @ x.T,
-1) * 2` has the operators matmul, mul and softmax. A problem with matmul and softmax shares two of
the three; operators of few problems weigh more (inverse document frequency).
"""

from __future__ import annotations

import ast
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from kernelwright.policies.base import Value
from kernelwright.tools.problem import Problem, ProblemError, parse

INPUT_FUNCTIONS = frozenset({"get_inputs", "get_init_inputs"})
"""Functions of a reference whose calls are not part of the computation."""
ARITHMETIC_OPERATORS = {
    ast.MatMult: "matmul",
    ast.Pow: "pow",
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
}
SYNONYMS = {
    "layernorm": "layer_norm",
    "rmsnorm": "rms_norm",
    **dict.fromkeys(("mm", "bmm", "mv", "addmm"), "matmul"),
}
OPERATORS_WITHOUT_WORK = frozenset([
    "append", "arange", "bool", "buffer", "clone", "contiguous", "copy", "detach", "device", "dim", "double",
    "empty", "empty_like", "expand", "extend", "eye", "flatten", "float", "format", "full", "full_like", "half",
    "init_weights", "int", "items", "kaiming_normal", "kaiming_uniform", "keys", "len", "long", "manual_seed",
    "module", "module_list", "no_grad", "normal", "numel", "ones", "ones_like", "parameter", "parameter_list",
    "permute", "rand", "randint", "randn", "range", "register_buffer", "reshape", "sequential", "shape", "size",
    "squeeze", "stride", "super", "tensor", "to", "transpose", "type", "unflatten", "uniform", "unsqueeze",
    "values", "view", "xavier_normal", "xavier_uniform", "zeros", "zeros_like",
])  # fmt: skip
"""Names of functions moving, shaping or creating tensors, or building modules: not part of the
computation.
"""


class Similar(Value):
    """Catalogue problem and its common operators with another problem."""

    problem: str
    likeness: float
    """Weighted Jaccard similarity from 0 to 1: weight of shared operators over weight of all
    operators. Rare operators weigh more.
    """
    shared: tuple[str, ...]
    """Operators shared by both problems, rarest first."""


def operators_of(source: str) -> frozenset[str]:
    """Returns the operators called by a reference, by torch's names: `nn.LayerNorm`,
    `F.layer_norm` and `layer_norm_` are `layer_norm`.

    Raises ProblemError if the text is not Python.
    """
    tree = parse(source)
    bodies = [node for node in tree.body if getattr(node, "name", "") not in INPUT_FUNCTIONS]
    names: set[str] = set()
    for body in bodies:
        for node in ast.walk(body):
            names.update(_names(node))
    names -= OPERATORS_WITHOUT_WORK
    return frozenset(name for name in names if not name.startswith("__"))


def _names(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC_OPERATORS:
        yield ARITHMETIC_OPERATORS[type(node.op)]
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return
    root = node.func.value
    while isinstance(root, ast.Attribute):
        root = root.value
    if isinstance(root, ast.Name) and root.id == "self":
        return  # a layer of its own, which its construction names
    yield _plain_operator_name(node.func.attr)


def _plain_operator_name(name: str) -> str:
    """Returns the canonical operator name: `BatchNorm2d` is `batch_norm`, `GELU` is `gelu`,
    `add_` is `add`.
    """
    plain_name = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    plain_name = plain_name if plain_name.startswith("__") else plain_name.rstrip("_")
    plain_name = SYNONYMS.get(plain_name, plain_name)
    return re.sub(r"(norm)[123]d$", r"\1", plain_name)


def most_similar(problem: Problem, among: Iterable[Problem], count: int = 1) -> list[Similar]:
    """Returns the problems with the most shared operators, most similar first.

    Problems without shared operators and the problem itself are omitted.
    """
    operators = _operators(problem)
    operators_by_problem = {
        other.name: _operators(other) for other in among if other.hash != problem.hash
    }
    held_by = Counter(name for names in operators_by_problem.values() for name in names)

    def weight(names: Iterable[str]) -> float:
        # Inverse document frequency: an operator of few problems weighs more.
        total = len(operators_by_problem) + 1
        return sum(math.log(total / (held_by[name] + 0.5)) for name in names)

    matches: list[Similar] = []
    for name, names in operators_by_problem.items():
        shared = operators & names
        if not shared:
            continue
        whole_names = [operator for operator in shared if not _is_word_of_another(operator, shared)]
        rarest_first = tuple(
            sorted(whole_names, key=lambda operator: (held_by[operator], operator))
        )
        likeness = weight(shared) / weight(operators | names)
        matches.append(Similar(problem=name, likeness=likeness, shared=rarest_first))
    return sorted(matches, key=lambda match: (-match.likeness, match.problem))[:count]


def _is_word_of_another(operator: str, operators: Iterable[str]) -> bool:
    """Returns whether an operator is a word of another: `softmax` of `log_softmax`."""
    return any(operator != other and operator in other.split("_") for other in operators)


def _operators(problem: Problem) -> frozenset[str]:
    """Returns the operators of a problem and the words of their names: `log_softmax` resembles
    `softmax`.
    """
    try:
        names = operators_of(problem.source)
    except ProblemError:
        return frozenset()
    # Words of up to three letters (max, dim) say too little.
    words = {word for name in names for word in name.split("_") if len(word) > 3}
    return names | words
