"""The parts of a user's file: classes, functions, and the runs of statements that may build and call them."""

from __future__ import annotations

import ast
import copy
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from kernelwright.agent.problems.forms_of_users.import_time_code import makes_calls
from kernelwright.agent.problems.forms_of_users.parameter_values import (
    has_all_values,
    parameter_values,
)
from kernelwright.agent.problems.forms_of_users.signatures import inherited_method
from kernelwright.agent.problems.forms_of_users.text_edits import unparsed_lines
from kernelwright.agent.problems.tritonbench_cases import (
    OffDevice,
    names_loaded_by,
    names_stored_by,
)
from kernelwright.bindings import changed_names

Run = list[ast.stmt]


@dataclass(frozen=True)
class CallSite:
    """One call in a run, with the statements before it."""

    run: Run
    node: ast.Call
    before: Run


@dataclass
class FileParts:
    """A user's file, taken apart."""

    tree: ast.Module
    runs: list[Run] = field(default_factory=list)
    """Statements in order: of `__main__`, of the top, of each test, of each function that needs no arguments."""
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    modules: dict[str, ast.ClassDef] = field(default_factory=dict)
    """Classes with a forward, their own or of a base class in the file."""

    def calls(self, names: Collection[str], builds: Sequence[ast.Call] = ()) -> Iterator[CallSite]:
        """Yields the calls of these names, and of what these calls build (`Block(64).eval()(x)`), in every run."""
        for run in self.runs:
            for node, before in calls_in(run, names, builds):
                yield CallSite(run, node, before)

    def aliases(self, names: Collection[str]) -> set[str]:
        """Returns these names and the names of what is made of them: `fast = torch.compile(model)`."""
        known = set(names)
        for run in self.runs:
            for statement in run:
                if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
                    arguments = {a.id for a in statement.value.args if isinstance(a, ast.Name)}
                    if arguments & known and isinstance(statement.targets[0], ast.Name):
                        known.add(statement.targets[0].id)
        return known


def parts_of(tree: ast.Module) -> FileParts:
    """Takes a file apart."""
    parts = FileParts(tree)
    top = top_statements(tree)
    mains: list[Run] = []
    tests: list[ast.FunctionDef] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            if inherited_method(tree, node, "forward") is not None:
                parts.modules[node.name] = node
            tests += [
                n for n in node.body if isinstance(n, ast.FunctionDef) and n.name.startswith("test")
            ]
        elif isinstance(node, ast.FunctionDef):
            parts.functions[node.name] = node
        elif isinstance(node, ast.If) and _is_main(node):
            mains.append([*top, *node.body])
    tests += [f for name, f in parts.functions.items() if name.startswith("test") or name == "main"]
    others = [f for f in parts.functions.values() if has_all_values(f) and f not in tests]
    parts.runs = [*mains, top, *([*top, *parameter_values(f), *f.body] for f in [*tests, *others])]
    return parts


def top_statements(tree: ast.Module) -> Run:
    """Returns the statements of a file outside of classes and functions, without `if __name__ == "__main__"`."""
    return [
        n
        for n in tree.body
        if not isinstance(n, ast.ClassDef | ast.FunctionDef) and not _is_main(n)
    ]


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def indented_statements(run: str) -> Run:
    """Returns statements that are no part of the file: as those of a block, nothing of them stays at the top."""
    block = ast.parse(f"if True:\n{textwrap.indent(run, '    ')}").body[0]
    return [_at_line(s, 0) for s in block.body] if isinstance(block, ast.If) else []


def _at_line(statement: ast.stmt, number: int) -> ast.stmt:
    """Returns the statement with all its parts at one line; 0 is no line of the file."""
    for node in ast.walk(statement):
        if isinstance(node, ast.stmt | ast.expr):
            node.lineno = node.end_lineno = number
    return statement


def calls_in(
    statements: Sequence[ast.stmt], names: Collection[str], builds: Sequence[ast.Call] = ()
) -> Iterator[tuple[ast.Call, Run]]:
    """Yields the calls of these names with the statements before each, also inside of with, for, if and try."""
    before: Run = []
    for statement in statements:
        for body in _bodies(statement):
            for call, inside in calls_in(body, names, builds):
                yield call, [*before, *inside]
        if isinstance(
            statement,
            ast.Assign | ast.Expr | ast.AnnAssign | ast.AugAssign | ast.Return | ast.Assert,
        ):
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and _is_called(node.func, names, builds):
                    yield node, list(before)
        before.append(statement)


def _bodies(statement: ast.stmt) -> list[Run]:
    """Returns the blocks inside of a statement; a loop's begins with the first value of its variable."""
    match statement:
        case ast.With() | ast.Try():
            return [statement.body]
        case ast.If():
            return [statement.body, statement.orelse]
        case ast.For():
            first = ast.parse(
                f"{ast.unparse(statement.target)} = next(iter({ast.unparse(statement.iter)}))"
            ).body[0]
            return [[_at_line(first, statement.lineno), *statement.body]]
    return []


def _is_called(function: ast.expr, names: Collection[str], builds: Sequence[ast.Call]) -> bool:
    while isinstance(function, ast.Call) and isinstance(function.func, ast.Attribute):
        function = function.func.value
    return function in builds or (isinstance(function, ast.Name) and function.id in names)


def statements_for(before: Sequence[ast.stmt], needed: Collection[str]) -> list[str]:
    """Returns the statements on which names depend, as lines with marks of their origins. Sizes with names of their own
    stay at the top of the module.
    """
    names = set(needed)
    kept: list[ast.stmt] = []
    for statement in reversed([OffDevice().visit(copy.deepcopy(s)) for s in before]):
        if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
            is_needed = statement.col_offset > 0 and bool(_bound_names(statement) & names)
        else:
            is_needed = bool((names_stored_by(statement) | changed_names(statement)) & names)
        if is_needed:
            kept.append(statement)
            names |= names_loaded_by(statement)
    return [line for s in reversed(kept) if not _is_size(s) for line in unparsed_lines(s)]


def _bound_names(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    return {getattr(statement, "name", "")}


def _is_size(statement: ast.stmt) -> bool:
    """Tells whether a statement is a plain assignment at the top, which the module keeps."""
    return (
        isinstance(statement, ast.Assign)
        and statement.col_offset == 0
        and not makes_calls(statement)
    )
