"""Arguments of a constructor that cannot be sent to a candidate's process (a configuration object, a layer, a function)
are made by the constructor of `Model` itself. Text to text: nothing runs.

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
import io
import re
import tokenize

BASE, ARGUMENTS = "ModelOfArguments", "constructor_arguments"
_FUNCTIONS = re.compile(r"(nn|F|torch\.nn|torch\.optim)\.|torch\.(?!b?float|u?int|half|double|long|short|bool|c)\w+$")
"""Attributes that name functions and classes of torch, where they are not called: the others are types of elements."""


def with_plain_arguments(source: str) -> str:
    """The text, where get_init_inputs gives what is no plain value with such a `Model`; else as it is."""
    tree = ast.parse(source)
    function = next((n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "get_init_inputs"), None)
    last = function.body[-1] if function is not None else None
    if function is None or not isinstance(last, ast.Return) or last.value is None:
        return source
    kinds = {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    values = {t.id: n.value for n in [*tree.body, *ast.walk(function)] if isinstance(n, ast.Assign)
              for t in n.targets if isinstance(t, ast.Name)}  # fmt: skip
    if _is_plain(last.value, values, kinds, set()):
        return source
    text = renamed(renamed(source, "Model", BASE), "get_init_inputs", ARGUMENTS)
    star = "**" if isinstance(last.value, ast.Dict) else "*"
    return (
        text.rstrip()
        + f"""


class Model({BASE}):
    def __init__(self):
        super().__init__({star}{ARGUMENTS}())


def get_init_inputs():
    return []
"""
    )


def _is_plain(value: ast.expr, values: dict[str, ast.expr], kinds: set[str], seen: set[str]) -> bool:
    """Whether an expression is made of numbers, texts, lists and tensors alone, as far as the text tells.

    values: what names stand for. kinds: classes and functions of the file.
    """
    called = {id(node.func): ast.unparse(node.func) for node in ast.walk(value) if isinstance(node, ast.Call)}
    for node in ast.walk(value):
        if isinstance(node, ast.Lambda):
            return False
        function = called.get(id(node), "")
        makes_tensor = function.startswith("torch.") and "nn." not in function
        if isinstance(node, ast.Attribute) and _FUNCTIONS.match(ast.unparse(node)) and not makes_tensor:
            return False
        if isinstance(node, ast.Name):
            if node.id in kinds and node.id not in values:
                return False
            known = values.get(node.id) if node.id not in seen else None
            if known is not None and not _is_plain(known, values, kinds, seen | {node.id}):
                return False
    return True


def renamed(text: str, name: str, new: str) -> str:
    """The class or function under a new name, wherever the text names it."""
    lines = text.splitlines(keepends=True)
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.type == tokenize.NAME]
    for token in reversed([t for t in tokens if t.string == name]):
        row, column = token.start[0] - 1, token.start[1]
        lines[row] = lines[row][:column] + new + lines[row][column + len(name) :]
    return "".join(lines)
