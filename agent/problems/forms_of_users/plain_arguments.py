"""Moves constructor arguments that cannot be sent to a candidate's process (configuration
objects, layers, functions) into the constructor of `Model`. Text to text: nothing is run.

    def get_init_inputs():                     def constructor_arguments():
        return [Config(width=64)]                  return [Config(width=64)]

    class Model(nn.Module):                    class ModelOfArguments(nn.Module):
        def __init__(self, config): ...            def __init__(self, config): ...

                                               class Model(ModelOfArguments):
                                                   def __init__(self):
                                                       super().__init__(*constructor_arguments())

                                               def get_init_inputs():
                                                   return []
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Set

from kernelwright.agent.problems.forms_of_users.text_edits import assignments, joined, renamed
from kernelwright.bindings import function_at_top

BASE, ARGUMENTS = "ModelOfArguments", "constructor_arguments"
PLAIN_CALLS = re.compile(
    r"(int|float|bool|str|list|tuple|dict|set|range|len|min|max|sum|abs|round|sorted|pow|slice|zip|enumerate|reversed"
    r"|positional_arguments|(math|np|numpy|random|itertools)\.\w+|torch\.(Size|[a-z]\w*(\.\w+)?))$"
)
"""Functions that return numbers, texts, tensors and nested lists of these."""
PLAIN_ATTRIBUTES = re.compile(
    r"torch\.(b?float|u?int|half|double|long|short|bool|complex|c(float|double|half))\w*$|(math|np|numpy)\.\w+$"
)
"""Attributes of modules that are dtypes or numbers."""
ARGUMENT_MODULES = frozenset({"torch", "nn", "F", "math", "np", "numpy", "random", "itertools"})


def with_plain_arguments(source: str) -> str:
    """Returns the text with such a `Model` if get_init_inputs returns other than plain values;
    otherwise unchanged.
    """
    tree = ast.parse(source)
    function = function_at_top(tree, "get_init_inputs")
    last = function.body[-1] if function is not None else None
    if function is None or not isinstance(last, ast.Return) or last.value is None:
        return source
    if is_plain(last.value, tree, function):
        return source
    text = renamed(renamed(source, "Model", BASE), "get_init_inputs", ARGUMENTS)
    model = (
        f"class Model({BASE}):\n    def __init__(self):\n        super().__init__(*{ARGUMENTS}())"
    )
    return joined(text, [model, "def get_init_inputs():\n    return []"])


def is_plain(value: ast.expr, tree: ast.Module, function: ast.FunctionDef | None = None) -> bool:
    """Returns whether an expression consists of numbers, texts, lists and tensors alone, as far
    as the text shows.

    tree: of the file. function: contains the expression.
    """
    inside = [] if function is None else list(ast.walk(function))
    values: dict[str, ast.expr] = {}
    for node in [*tree.body, *inside]:
        values |= dict(assignments(node))
    return _Plainness(values, _defined_names(tree) - set(values)).holds(value)


def _defined_names(tree: ast.Module) -> set[str]:
    """Returns the names of classes, functions and imports of a file, except imports from `math`
    (numbers).
    """
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.ImportFrom) and node.module != "math":
            names |= {alias.asname or alias.name for alias in node.names}
    return names


class _Plainness:
    """Decides whether expressions are plain, checking each name once."""

    def __init__(self, values: Mapping[str, ast.expr], objects: Set[str]) -> None:
        self._values = values
        self._objects = objects
        self._visited: set[str] = set()

    def holds(self, node: ast.AST) -> bool:
        """Returns whether the value of an expression is plain."""
        match node:
            case ast.Lambda():
                return False
            case ast.Call():
                return self._is_plain_call(node)
            case ast.Attribute():
                return bool(
                    PLAIN_ATTRIBUTES.match(ast.unparse(node))
                ) or self._is_attribute_of_plain(node)
            case ast.Name():
                return self._is_plain_name(node.id)
        return all(self.holds(child) for child in ast.iter_child_nodes(node))

    def _is_plain_call(self, call: ast.Call) -> bool:
        function = ast.unparse(call.func)
        arguments = [*call.args, *(k.value for k in call.keywords)]
        is_plain_function = bool(PLAIN_CALLS.match(function)) and not function.startswith(
            ("torch.nn.", "torch.optim.")
        )
        is_plain_method = isinstance(call.func, ast.Attribute) and self._is_attribute_of_plain(
            call.func
        )
        if function == "positional_arguments":
            arguments = arguments[1:]
        return (is_plain_function or is_plain_method) and all(
            self.holds(argument) for argument in arguments
        )

    def _is_attribute_of_plain(self, node: ast.Attribute) -> bool:
        is_module = isinstance(node.value, ast.Name) and node.value.id in ARGUMENT_MODULES
        return not is_module and self.holds(node.value)

    def _is_plain_name(self, name: str) -> bool:
        # A name in its own expression (`n = n + 1`) adds nothing: decided by the rest.
        if name in self._visited:
            return True
        self._visited.add(name)
        return name not in self._objects and (
            name not in self._values or self.holds(self._values[name])
        )
