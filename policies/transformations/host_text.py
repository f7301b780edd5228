"""Host code around a kernel: the graph's views, slices and copies as Python, and the text of a
whole candidate.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.tracing.problem_text import ProblemText
from kernelwright.policies.inductor.writing.kept_definitions import model_and_what_it_needs
from kernelwright.policies.transformations.exporting import (
    ExportedModel,
    NotTransformed,
    is_node,
    name_of,
)

if TYPE_CHECKING:
    from kernelwright.policies.inductor.graph_types import GraphNode

_SIGNS = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.floordiv: "//", operator.truediv: "/",
    operator.pow: "**", operator.mod: "%",
}  # fmt: skip
_METHODS = {
    "view": "reshape", "reshape": "reshape", "transpose": "transpose", "permute": "permute", "contiguous": "contiguous",
    "clone": "clone", "split": "split", "split_with_sizes": "split", "chunk": "chunk", "unbind": "unbind",
    "select": "select", "unsqueeze": "unsqueeze", "squeeze": "squeeze", "expand": "expand", "flatten": "flatten",
    "unflatten": "unflatten", "narrow": "narrow", "movedim": "movedim", "detach": "detach", "_unsafe_view": "reshape",
}  # fmt: skip
"""View operators -> the tensor method with the same effect."""

_TRANSPOSES = ("numpy_T", "t", "mT")


class HostText:
    """Lines that give the values of nodes, each node once, in order."""

    def __init__(self, names: dict[Any, str], replaced: dict[Any, str]) -> None:
        """Prepares the writer. names: expressions of nodes already computed. replaced:
        expressions that replace nodes.
        """
        self._names, self._replaced = names, replaced
        self.lines: list[str] = []

    def of(self, value: object) -> str:
        """Returns an expression for a node, a number or a list of them. Raises NotTransformed for a node
        that computes.
        """
        if isinstance(value, list | tuple):
            inner = ", ".join(self.of(element) for element in value)
            return f"[{inner}]" if isinstance(value, list) else f"({inner},)"
        if not is_node(value):
            return repr(value)
        if value in self._names:
            return self._names[value]
        name = str(value.name)
        self.lines.append(f"{name} = {self._expression(value)}")
        self._names[value] = name
        return name

    def _expression(self, node: GraphNode) -> str:
        if node in self._replaced:
            return self._replaced[node]
        name, target = name_of(node), node.target
        if target in _SIGNS:
            return f"{self.of(node.args[0])} {_SIGNS[target]} {self.of(node.args[1])}"
        if target is operator.getitem:
            return f"{self.of(node.args[0])}[{self.of(node.args[1])}]"
        if name == "sym_size":
            return f"{self.of(node.args[0])}.shape[{node.args[1]}]"
        if name == "sym_float":
            return f"float({self.of(node.args[0])})"
        if name == "slice" and len(node.args) >= 4:
            return self._slice(node)
        if name in _TRANSPOSES and node.args[0].meta["val"].dim() == 2:
            return f"{self.of(node.args[0])}.transpose(0, 1)"
        if name in _METHODS:
            arguments = ", ".join(self.of(argument) for argument in node.args[1:])
            return f"{self.of(node.args[0])}.{_METHODS[name]}({arguments})"
        raise NotTransformed(f"{name or target} is neither part of the pattern nor a view")

    def _slice(self, node: GraphNode) -> str:
        tensor, axis, first, last = node.args[:4]
        step = node.args[4] if len(node.args) > 4 else 1
        # torch.export writes an open end as 2**63 - 1.
        end = "" if isinstance(last, int) and last > 1 << 60 else self.of(last)
        start = "" if first in (0, None) else self.of(first)
        cut = f"{start}:{end}" + (f":{self.of(step)}" if step != 1 else "")
        return f"{self.of(tensor)}[{', '.join([':'] * axis + [cut])}]"


def candidate_text(
    exported: ExportedModel, head: str, definitions: Sequence[str], lines: list[str]
) -> str:
    """Returns a candidate's text: imports, definitions, and ModelNew with `lines` as its forward.

    Includes the statements of the problem that the constructor needs.
    """
    problem = SimpleNamespace(text=ProblemText(exported.source), keywords={})
    needed, model = model_and_what_it_needs(problem, lines, {})  # type: ignore[arg-type]
    imports = [n for n in needed if n.startswith(("import ", "from "))]
    problem_definitions = [n for n in needed if n not in imports]
    head += "".join(f"{n}\n" for n in imports if n not in head)
    return "\n\n".join([head, *definitions, *problem_definitions, model]) + "\n"
