"""Splits a user file into classes, functions, and runs: sequences of statements that may build
and call them.
"""

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
from kernelwright.agent.problems.syntax_search import definitions
from kernelwright.agent.problems.tritonbench_cases import (
    OffDevice,
    names_loaded_by,
    names_stored_by,
)
from kernelwright.bindings import changed_names

Run = list[ast.stmt]


@dataclass(frozen=True)
class CallSite:
    """Call in a run, with the statements before the call."""

    run: Run
    node: ast.Call
    before: Run


@dataclass
class FileParts:
    """Classes, functions and runs of a user file."""

    tree: ast.Module
    runs: list[Run] = field(default_factory=list)
    """Statements in execution order: of `__main__`, of the top level, of each test, and of each
    function without required arguments.
    """
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    modules: dict[str, ast.ClassDef] = field(default_factory=dict)
    """Classes with a forward, defined in the class or inherited from a base class in the file."""

    def calls(self, names: Collection[str], builds: Sequence[ast.Call] = ()) -> Iterator[CallSite]:
        """Yields calls of these names, and of objects built by `builds` (`Block(64).eval()(x)`),
        in every run.
        """
        for run in self.runs:
            for node, before in calls_in(run, names, builds):
                yield CallSite(run, node, before)

    def aliases(self, names: Collection[str]) -> set[str]:
        """Returns the names and the names of values derived from them: `fast =
        torch.compile(model)`.
        """
        alias_names = set(names)
        for run in self.runs:
            for statement in run:
                if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
                    arguments = {a.id for a in statement.value.args if isinstance(a, ast.Name)}
                    if arguments & alias_names and isinstance(statement.targets[0], ast.Name):
                        alias_names.add(statement.targets[0].id)
        return alias_names


def parts_of(tree: ast.Module) -> FileParts:
    """Splits a syntax tree into its parts."""
    parts = FileParts(tree)
    top = top_statements(tree)
    mains: list[Run] = []
    tests: list[ast.FunctionDef] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            if inherited_method(tree, node, "forward") is not None:
                parts.modules[node.name] = node
            methods = definitions(node.body, ast.FunctionDef)
            tests += [method for name, method in methods.items() if name.startswith("test")]
        elif isinstance(node, ast.FunctionDef):
            parts.functions[node.name] = node
        elif isinstance(node, ast.If) and _is_main(node):
            mains.append([*top, *node.body])
    for name, function in parts.functions.items():
        if name.startswith("test") or name == "main":
            tests.append(function)
    parts.runs = [*mains, top]
    callable_functions = [
        function
        for function in parts.functions.values()
        if has_all_values(function) and function not in tests
    ]
    for function in [*tests, *callable_functions]:
        # The body of a function sees the names of the top level.
        parts.runs.append([*top, *parameter_values(function), *function.body])
    return parts


def top_statements(tree: ast.Module) -> Run:
    """Returns the top-level statements outside of classes, functions and `if __name__ ==
    "__main__"`.
    """
    statements: Run = []
    for statement in tree.body:
        is_definition = isinstance(statement, ast.ClassDef | ast.FunctionDef)
        if not is_definition and not _is_main(statement):
            statements.append(statement)
    return statements


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def indented_statements(run: str) -> Run:
    """Parses statements that do not belong to the file: like those of a block, they are never
    kept at the top level.
    """
    block = ast.parse(f"if True:\n{textwrap.indent(run, '    ')}").body[0]
    return [_at_line(s, 0) for s in block.body] if isinstance(block, ast.If) else []


def _at_line(statement: ast.stmt, number: int) -> ast.stmt:
    """Sets the line number of a statement and all its parts; 0 means outside of the file."""
    for node in ast.walk(statement):
        if isinstance(node, ast.stmt | ast.expr):
            node.lineno = node.end_lineno = number
    return statement


def calls_in(
    statements: Sequence[ast.stmt], names: Collection[str], builds: Sequence[ast.Call] = ()
) -> Iterator[tuple[ast.Call, Run]]:
    """Yields calls of these names with the statements before each, including calls inside with,
    for, if and try.
    """
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
    """Returns the blocks of a statement.

    A loop's block starts with the first value of the loop variable.
    """
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
    """Returns the statements on which names depend, as lines with origin marks.

    Named sizes stay at the top level of the module. Example: for `x` in

        n = 64
        y = torch.rand(3)
        x = torch.randn(n, device="cuda")

    the result is ["#of 3", "x = torch.randn(n)"].
    """
    names = set(needed)
    needed_statements: list[ast.stmt] = []
    # Backwards: each needed statement adds the names that it reads itself.
    for original in reversed(before):
        statement = OffDevice().visit(copy.deepcopy(original))
        if isinstance(statement, ast.FunctionDef | ast.ClassDef | ast.Import | ast.ImportFrom):
            is_needed = statement.col_offset > 0 and bool(_bound_names(statement) & names)
        else:
            is_needed = bool((names_stored_by(statement) | changed_names(statement)) & names)
        if is_needed:
            needed_statements.append(statement)
            names |= names_loaded_by(statement)
    lines: list[str] = []
    for statement in reversed(needed_statements):
        if not _is_size(statement):
            lines += unparsed_lines(statement)
    return lines


def _bound_names(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    return {getattr(statement, "name", "")}


def _is_size(statement: ast.stmt) -> bool:
    """Returns whether a statement is a top-level assignment without calls, which remains in the
    module.
    """
    return (
        isinstance(statement, ast.Assign)
        and statement.col_offset == 0
        and not makes_calls(statement)
    )
