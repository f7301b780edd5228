"""Writes a graph of dynamo as a problem: its operators, with weights as inputs, at the shapes and dtypes of the call.

    def forward(self, l_self_weight_, l_x_):
        linear = torch.nn.functional.linear(l_x_, l_self_weight_)
        return (linear,)

Equal graphs have equal texts, whatever the values of their tensors.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kernelwright.tools.problem import Problem

if TYPE_CHECKING:
    import torch

MAX_GRAPH_OPERATORS = 64
"""Maximum number of operators of a graph as a problem: drafts of larger graphs take minutes."""
GRAPH_HEADER = (
    "import operator\n\nimport torch\nimport torch.nn as nn\nfrom torch import device, inf, nan\n"
)
KNOWN_GLOBALS = frozenset({"torch", "device", "inf", "nan", "operator"})
"""Names in a graph's code defined by the header."""
ORIGIN = re.compile(r"^[lL]_(self_)?|(?:modules|parameters|buffers)_(?=\w)|_$")
"""Parts of a placeholder's name with its origin in the model:
`L_self_modules_norm_parameters_weight_`.
"""


def graph_problem(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Problem | None:
    """Returns the graph as a problem.

    None for a graph with its own tensors, submodules or numbers, with varying sizes, or with more
    than MAX_OPERATORS operators.
    """
    import torch

    nodes = list(graph.graph.nodes)
    operators = [node for node in nodes if node.op in ("call_function", "call_method")]
    computing_nodes = [node for node in nodes if node.op not in ("placeholder", "output")]
    if len(computing_nodes) != len(operators) or not 1 < len(operators) <= MAX_GRAPH_OPERATORS:
        return None
    if not all(isinstance(value, torch.Tensor) and _is_static(value) for value in inputs):
        return None
    names = _input_names([node.target for node in nodes if node.op == "placeholder"])
    body = _body(graph.graph.python_code("self").src, names)
    if body is None:
        return None
    draws = "\n".join(f"        {_draw(value)}," for value in inputs)
    source = (
        f"{GRAPH_HEADER}\n\nclass Model(nn.Module):\n    def forward(self, {', '.join(names.values())}):\n{body}\n\n\n"
        f"def get_inputs():\n    return [\n{draws}\n    ]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    problem = Problem(name="graph", source=source)
    return problem.model_copy(update={"name": f"graph_{problem.hash[:12]}.py"})


def _is_static(value: torch.Tensor) -> bool:
    extents = (*value.shape, *value.stride())
    return all(isinstance(extent, int) for extent in extents) and value.is_contiguous()


def _input_names(placeholders: Sequence[str]) -> dict[str, str]:
    """Returns the names of the inputs by those of dynamo: `norm_weight`."""
    names: dict[str, str] = {}
    for placeholder in placeholders:
        name = ORIGIN.sub("", placeholder)
        is_usable = (
            name.isidentifier() and not keyword.iskeyword(name) and name not in KNOWN_GLOBALS
        )
        names[placeholder] = name if is_usable and name not in names.values() else placeholder
    return names


def _body(source: str, names: Mapping[str, str]) -> str | None:
    """Returns the statements of a graph's code under the names of the inputs; None if the code
    reads other globals.
    """
    lines: list[str] = []
    for line in source[source.index("def forward") :].splitlines()[1:]:
        # The rest of a line frees tensors: `;  linear = None`.
        code = re.sub(r";  .*= None$", "", line.strip())
        if code and not code.startswith("#"):
            lines.append(code)
    tree = ast.parse("\n".join(lines).replace("return ", "result = "))
    aliases = dict(names)
    for statement in tree.body:
        # The first lines give placeholders Python names: `l_x_ = L_x_`.
        match statement:
            case ast.Assign(targets=[ast.Name(id=alias)], value=ast.Name(id=name)) if name in names:
                aliases[alias] = names[name]
    written = {
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    read = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    is_taken = (set(aliases.values()) - set(aliases)) & written
    if is_taken or read - written - aliases.keys() - KNOWN_GLOBALS - set(dir(builtins)):
        return None
    renamed = [re.sub(r"\b\w+\b", lambda m: aliases.get(m[0], m[0]), line) for line in lines]
    statements = [line for line in renamed if not re.fullmatch(r"(\w+) = \1", line)]
    return "\n".join(f"        {line}" for line in statements)


def _draw(value: torch.Tensor) -> str:
    """Returns an expression of a tensor's shape and dtype: numbers around zero, indices 0 and 1."""
    import torch

    shape = f"({', '.join(f'int({extent})' for extent in value.shape)}{',' if value.dim() == 1 else ''})"
    if value.dtype == torch.bool:
        return f"torch.rand({shape}) > 0.5"
    if value.is_floating_point() or value.is_complex():
        return f"torch.randn({shape}, dtype={value.dtype})"
    return f"torch.randint(0, 2, {shape}, dtype={value.dtype})"
