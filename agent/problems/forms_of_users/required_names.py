"""Converts every binding of `Model`, `get_inputs` and `get_init_inputs` to a definition.

Text to text: nothing is run.

    get_inputs = lambda: [torch.randn(4, 8)]              def get_inputs(): return [torch.randn(4, 8)]
    get_inputs = functools.partial(draw, rows=4)          def get_inputs(): return draw(rows=4)
    Model = Block                                         class Model(Block): pass

Bindings without an equivalent definition on the same lines (imports, tuple targets, definitions
inside `if`) are renamed, and a definition that uses the new name is added:

    from shapes import draw as get_inputs                 from shapes import draw as bound_get_inputs
                                                          def get_inputs(): return bound_get_inputs()
"""

from __future__ import annotations

import ast

from kernelwright.agent.problems.forms_of_users.text_edits import joined, renamed
from kernelwright.agent.problems.tritonbench_cases import names_loaded_by
from kernelwright.bindings import binding_statement, bound_names
from kernelwright.tools.parsing import with_replacements
from kernelwright.tools.problem import parse

REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")
NEW_NAMES = {
    "Model": "BoundModel",
    "get_inputs": "bound_get_inputs",
    "get_init_inputs": "bound_get_init_inputs",
}
ADDED_FUNCTION = """
def {name}():
    return {bound}()
""".strip()
ADDED_SUBCLASS = """
class Model(BoundModel):
    pass
""".strip()
ADDED_MODULE = """
class Model(torch.nn.Module):
    def __init__(self, *arguments):
        super().__init__()
        is_built = isinstance(BoundModel, torch.nn.Module)
        self.model = copy.deepcopy(BoundModel) if is_built else BoundModel(*arguments)

    def forward(self, *inputs):
        return self.model(*inputs)
""".strip()


def with_definitions(source: str) -> str:
    """Returns the text in which all bound names among the three are functions or classes.

    `Model` is unchanged if the text binds neither function: the text is then not in KernelBench
    form, and `Model` is an arbitrary name. Raises ProblemError if the text is not Python.
    """
    tree = parse(source)
    if not {"get_inputs", "get_init_inputs"} & set(bound_names(tree)):
        return source
    edits: list[tuple[ast.expr | ast.stmt, str]] = []
    wrapped: dict[str, list[str]] = {}
    for name in REQUIRED_NAMES:
        statement = binding_statement(tree, name)
        definition = ast.ClassDef if name == "Model" else ast.FunctionDef
        if statement is None or isinstance(statement, definition):
            continue
        text = _definition(tree, name, statement) if _is_alone(tree, statement) else ""
        if text:
            edits.append((statement, text))
        else:
            wrapped[name] = _added(name, statement)
    source = with_replacements(source, edits)
    for name, added in wrapped.items():
        source = joined(renamed(source, name, NEW_NAMES[name]), added)
    return source


def _is_alone(tree: ast.Module, statement: ast.stmt) -> bool:
    """Returns whether no other statement shares lines with this statement."""
    return sum(_meets(other, statement) for other in tree.body) == 1


def _meets(other: ast.stmt, statement: ast.stmt) -> bool:
    other_end, end = other.end_lineno or other.lineno, statement.end_lineno or statement.lineno
    return other.lineno <= end and statement.lineno <= other_end


def _definition(tree: ast.Module, name: str, statement: ast.stmt) -> str:
    """Returns a one-line definition for `name = value`; empty if there is none."""
    value = _assigned_value(name, statement)
    if value is None or name in names_loaded_by(value):
        return ""
    if name == "Model":
        base = binding_statement(tree, value.id) if isinstance(value, ast.Name) else None
        return f"class Model({ast.unparse(value)}): pass" if isinstance(base, ast.ClassDef) else ""
    match value:
        case ast.Lambda():
            return f"def {name}({ast.unparse(value.args)}): return {ast.unparse(value.body)}"
        case ast.Name() | ast.Attribute():
            return f"def {name}(): return {ast.unparse(value)}()"
        case ast.Call() if value.args and ast.unparse(value.func) in (
            "partial",
            "functools.partial",
        ):
            call = ast.Call(value.args[0], value.args[1:], value.keywords)
            return f"def {name}(): return {ast.unparse(call)}"
    return ""


def _assigned_value(name: str, statement: ast.stmt) -> ast.expr | None:
    """Returns the expression of `name = value` and `name: type = value`; None for other
    statements.
    """
    match statement:
        case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
            return value
        case ast.AnnAssign(target=ast.Name(id=target), value=value) if target == name:
            return value
    return None


def _added(name: str, statement: ast.stmt) -> list[str]:
    """Returns definitions that use the renamed binding."""
    if name != "Model":
        return [ADDED_FUNCTION.format(name=name, bound=NEW_NAMES[name])]
    value = _assigned_value(name, statement)
    is_class = isinstance(statement, ast.Import | ast.ImportFrom | ast.If | ast.Try)
    if is_class or isinstance(value, ast.Name | ast.Attribute):
        return [ADDED_SUBCLASS]
    return ["import copy\n\nimport torch", ADDED_MODULE]
