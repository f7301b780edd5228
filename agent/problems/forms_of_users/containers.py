"""Layers of torch that a file builds and calls without a class of its own: `net = nn.Sequential(Block(64), nn.GELU())`
and `net(x)`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernelwright.agent.problems.tritonbench_cases import OffDevice

LAYER = re.compile(r"(torch\.)?nn\.(?!Parameter\b|Buffer\b|functional\b|init\b)\w+(\.\w+)*$")
LOSS = re.compile(r"Loss$")
"""The loss that is computed of a model's output, where the file calls a model too."""


def built_layers(statements: list[ast.stmt]) -> Iterator[tuple[str, ast.expr, list[ast.stmt]]]:
    """Name, value and the statements before it, of each layer of torch that is given a name here; losses last."""
    losses = []
    for place, statement in enumerate(statements):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not isinstance(statement, ast.Assign) or not isinstance(target, ast.Name):
            continue
        kind = ast.unparse(build_of(statement.value))
        if not LAYER.match(kind):
            continue
        found = target.id, OffDevice().visit(statement.value), statements[:place]
        if LOSS.search(kind):
            losses.append(found)
        else:
            yield found
    yield from losses


def build_of(value: ast.expr) -> ast.expr:
    """Returns the innermost call of a chain: `nn.Sequential` of `nn.Sequential(...).half().eval()`; else the value
    itself.
    """
    while isinstance(value, ast.Call):
        inner = value.func.value if isinstance(value.func, ast.Attribute) else None
        if not isinstance(inner, ast.Call):
            return value.func
        value = inner
    return value


def model_of(value: ast.expr, made_before: list[str], call: ast.Call) -> str:
    """The text of a `Model` that builds the layer, and calls it as the file does."""
    given = [a.id if isinstance(a, ast.Name) else "" for a in call.args]
    taken = {*given, *(k.arg or "" for k in call.keywords)}
    names = [n if n and given.count(n) == 1 else _unused(f"input_{i + 1}", taken) for i, n in enumerate(given)]
    words = [k.arg for k in call.keywords if k.arg]
    passed = [*names, *(f"{w}={w}" for w in words)]
    lines = [f"        {line}" for text in made_before for line in text.splitlines()]
    return "\n".join(
        [
            "class Model(torch.nn.Module):", "    def __init__(self):", "        super().__init__()", *lines,
            f"        self.model = {ast.unparse(value)}", "",
            f"    def forward(self, {', '.join([*names, *words])}):", f"        return self.model({', '.join(passed)})",
        ]
    )  # fmt: skip


def _unused(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name
