"""Parts of the problem's text in a candidate: the constructor of Model, and the definitions that
it needs.
"""

from __future__ import annotations

import ast
import copy
import re

from kernelwright.bindings import bound_names, changed_names
from kernelwright.policies.inductor.syntax import names_in
from kernelwright.policies.inductor.tracing.graph import TracedModel


def model_and_what_it_needs(
    traced: TracedModel, lines: list[str], constants: dict[str, str]
) -> tuple[list[str], str]:
    """Texts of the problem's statements ModelNew needs, in their order; and ModelNew with
    `lines` as its forward.
    """
    tree = ast.parse(traced.text.source)
    by_name = _statements(tree)
    model = by_name["Model"][-1]
    assert isinstance(model, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            _without_computation(node)
    forward = "\n".join(lines)
    _complete_constructor(traced, model, forward, constants)
    needed: list[ast.stmt] = [model]
    called = {
        name
        for name in by_name
        if name != "Model" and re.search(rf"(?<![\w.]){name}\(\w+=", forward)
    }
    needed += _statements_of(called, by_name)
    for top in needed:  # grows
        argument_names = {a.arg for a in ast.walk(top) if isinstance(a, ast.arg)}
        names = names_in(top) - argument_names
        # The list grows while it is traversed: definitions need further definitions.
        needed += [s for s in _statements_of(names, by_name) if s not in needed]
    for name in [n for n in ast.walk(model) if isinstance(n, ast.Name) and n.id == "Model"]:
        name.id = "ModelNew"
    model.name = "ModelNew"
    arguments = traced.text.forward.args
    for argument in [*arguments.args, *arguments.kwonlyargs, arguments.vararg]:
        if argument is not None:
            argument.annotation = None
    arguments.defaults = [_plain_default(value) for value in arguments.defaults]
    arguments.kw_defaults = [value and _plain_default(value) for value in arguments.kw_defaults]
    body = "\n".join("        " + line for line in lines)
    head = ast.unparse(model).removesuffix("\n    pass")
    text = f"{head}\n\n    def forward({ast.unparse(arguments)}):\n{body}"
    return [ast.unparse(s) for s in tree.body if s in needed[1:]], text


def _plain_default(value: ast.expr) -> ast.expr:
    """A default of forward; None for a function or constant of the problem, which is in the kernels already."""
    foreign = any(isinstance(n, ast.Name) and n.id != "torch" for n in ast.walk(value))
    return ast.Constant(None) if foreign else value


def _statements(tree: ast.Module) -> dict[str, list[ast.stmt]]:
    """Returns, per name, the statements that bind the name or modify its value in place, in text
    order.

    Modifications of imported modules are left to the problem: `torch.manual_seed(0)`.
    """
    by_name: dict[str, list[ast.stmt]] = {}
    imported: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            continue
        names = bound_names(node)
        if isinstance(node, ast.Import | ast.ImportFrom):
            imported |= set(names)
        if not isinstance(node, ast.ClassDef | ast.FunctionDef):
            names += sorted(changed_names(node) - imported - set(names))
        for name in names:
            by_name.setdefault(name, []).append(node)
    return by_name


def _statements_of(names: set[str], by_name: dict[str, list[ast.stmt]]) -> list[ast.stmt]:
    """Returns the statements of these names, each once, in the order in which the text first binds the names."""
    return list(
        dict.fromkeys(
            s for name, statements in by_name.items() if name in names for s in statements
        )
    )


def _without_computation(node: ast.ClassDef) -> None:
    """Keeps a class's constructor, the methods called from it, and its fields; drops forward and
    docstrings.
    """
    methods = {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
    kept_methods = {
        n
        for n, f in methods.items()
        if (n.startswith("__") and n != "__call__") or (f.decorator_list and n != "forward")
    }
    # Methods reachable from the constructor, found by repetition until nothing is added.
    growing = True
    while growing:
        reached = {
            a.attr
            for n in kept_methods
            for a in ast.walk(methods[n])
            if isinstance(a, ast.Attribute)
        }
        newly_reached = {
            n for n in methods if n in reached and n not in kept_methods and n != "forward"
        }
        kept_methods |= newly_reached
        growing = bool(newly_reached)
    node.body = [
        n
        for n in node.body
        if (n.name in kept_methods if isinstance(n, ast.FunctionDef) else not _is_docstring(n))
    ] or [ast.Pass()]  # goes where forward is written beside it
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and _is_docstring(method.body[0]):
            method.body = method.body[1:] or [ast.Pass()]


def _is_docstring(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _complete_constructor(
    traced: TracedModel, model: ast.ClassDef, forward: str, constants: dict[str, str]
) -> None:
    """Makes the constructor store arguments forward reads sizes from, and constants written in
    forward.
    """
    init = next(
        (f for f in model.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None
    )
    lines = []
    for attribute, argument in traced.keywords.items():
        is_assigned = init is not None and re.search(rf"\bself\.{attribute}\b", ast.unparse(init))
        if (
            re.search(rf"\bself\.{attribute}\b", forward)
            and not is_assigned
            and attribute.endswith("_")
        ):
            lines.append(f"self.{attribute} = {argument}")
    lines += [f"self.register_buffer({n!r}, {v}, persistent=False)" for n, v in constants.items()]
    if lines and init is None:
        init = _passing_on(traced.text.method("__init__"))
        model.body.insert(0, init)
    if lines and init is not None:
        init.body += ast.parse("\n".join(lines)).body


def _passing_on(inherited: ast.FunctionDef | None) -> ast.FunctionDef:
    """Returns a constructor that passes its arguments on to the inherited constructor."""
    constructor = ast.parse("def __init__(self):\n    super().__init__()").body[0]
    assert isinstance(constructor, ast.FunctionDef)
    if inherited is not None:
        arguments = constructor.args = copy.deepcopy(inherited.args)
        packed = [
            sign + a.arg
            for sign, a in (("*", arguments.vararg), ("**", arguments.kwarg))
            if a is not None
        ]
        words = [a.arg for a in [*arguments.posonlyargs, *arguments.args][1:]]
        words += [*(f"{a.arg}={a.arg}" for a in arguments.kwonlyargs), *packed]
        constructor.body = ast.parse(f"super().__init__({', '.join(words)})").body
    return constructor
