"""Which problems of the catalogue are most like another one: by the operators of torch that their references call.

Only text is read: torch is not imported and no reference is run.
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
"""Functions of a reference whose calls are no work of it."""
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
"""Names that move, shape or make tensors, or build the module: they say nothing about the computation."""


class Similar(Value):
    """A problem of the catalogue and what it has in common with another."""

    problem: str
    likeness: float
    """Likeness from 0 to 1: the weight of the shared operators over that of all operators of both; a rarer operator
    weighs more.
    """
    shared: tuple[str, ...]
    """The shared operators, the rarest first."""


def operators_of(source: str) -> frozenset[str]:
    """The operators that a reference calls, by torch's names: `nn.LayerNorm`, `F.layer_norm` and `layer_norm_` are
    `layer_norm`. Raises ProblemError where the text is not Python.
    """
    tree = parse(source)
    bodies = [node for node in tree.body if getattr(node, "name", "") not in INPUT_FUNCTIONS]
    found = {name for body in bodies for node in ast.walk(body) for name in _names(node)}
    return frozenset(
        name for name in found if name not in OPERATORS_WITHOUT_WORK and not name.startswith("__")
    )


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
    """`BatchNorm2d` and `batch_norm` are one, as are `GELU` and `gelu`, `add_` and `add`."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z][a-z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    apart = apart if apart.startswith("__") else apart.rstrip("_")
    apart = SYNONYMS.get(apart, apart)
    return re.sub(r"(norm)[123]d$", r"\1", apart)


def most_similar(problem: Problem, among: Iterable[Problem], count: int = 1) -> list[Similar]:
    """Returns the problems that share most with this one's operators, the most similar first; those that share none are
    left out, and so is the problem itself.
    """
    own = _operators(problem)
    others = {other.name: _operators(other) for other in among if other.hash != problem.hash}
    held_by = Counter(name for names in others.values() for name in names)

    def weight(names: Iterable[str]) -> float:
        return sum(math.log((len(others) + 1) / (held_by[name] + 0.5)) for name in names)

    found = []
    for name, names in others.items():
        if shared := own & names:
            told = [
                one
                for one in shared
                if not any(one != other and one in other.split("_") for other in shared)
            ]
            rarest = tuple(sorted(told, key=lambda one: (held_by[one], one)))
            found.append(
                Similar(problem=name, likeness=weight(shared) / weight(own | names), shared=rarest)
            )
    return sorted(found, key=lambda one: (-one.likeness, one.problem))[:count]


def _operators(problem: Problem) -> frozenset[str]:
    """Returns the operators of a text and the words of their names: `log_softmax` has something of `softmax`."""
    try:
        names = operators_of(problem.source)
    except ProblemError:
        return frozenset()
    return names | {word for name in names for word in name.split("_") if len(word) > 3}
