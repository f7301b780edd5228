"""Removes code that runs at import time from a file."""

from __future__ import annotations

import ast
import re
from collections import Counter

from kernelwright.agent.problems.forms_of_users.text_edits import first_line_of
from kernelwright.agent.problems.tritonbench_cases import names_loaded_by, names_stored_by
from kernelwright.bindings import changed_names
from kernelwright.tools.parsing import with_replacements
from kernelwright.tools.problem import parse

SETTING = re.compile(r"torch\.(set_default|set_float32|backends\.)")
"""Calls that configure torch's computation and therefore belong to the module's result."""
ENDS_OF_PROGRAM = frozenset({"exit", "quit", "sys.exit", "os._exit"})
SHOWING = (ast.Expr, ast.Raise, ast.Pass, ast.Import, ast.ImportFrom)
"""Statements allowed in a guard that only reports why the program exits."""


def without_runs(source: str, built: set[str]) -> str:
    """Blanks `__main__`, tests and top-level statements that run the module.

    built: classes, and names of callables that the file builds and calls. Example with
    built={"Block"}:

        block = Block(64)          blank (calls a built class)
        print(block(x))            blank (only shows a value)
        n = 64                     stays
    """
    tree, lines, called = parse(source), source.splitlines(), set(built)
    values = called - {
        n.name for n in tree.body if isinstance(n, ast.ClassDef)
    }  # `Other = Norm` is no run
    gone: list[ast.stmt] = [
        n for n in tree.body if isinstance(n, ast.FunctionDef) and _is_run(n.name)
    ]
    bound: set[str] = set()
    for statement in tree.body:
        guard = isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)
        runs = isinstance(statement, ast.With | ast.Assert | ast.Delete) or _is_shown(statement)
        if runs and changed_names(statement) & (bound - called):
            continue  # `parser.add_argument(...)`: it goes with what it changes (`_unread`)
        if guard or runs:
            gone.append(statement)
        elif isinstance(statement, ast.Assign | ast.For | ast.If) and (
            (names_loaded_by(statement) | names_stored_by(statement))
            & (called if makes_calls(statement) else values)
        ):
            gone.append(statement)
            called |= names_stored_by(statement)
            values |= names_stored_by(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            bound |= names_stored_by(statement)
    gone += _unread([s for s in tree.body if s.lineno not in {g.lineno for g in gone}])
    return _blanked(lines, gone)


def without_exits(source: str) -> str:
    """Returns the text without top-level statements that exit the program, because the judge
    chooses the device.

    if not torch.cuda.is_available(): exit()          a blank line
    if cuda: device = "cuda" else: exit()             if True: ...
    """
    gone: list[ast.stmt] = []
    decided: list[tuple[ast.expr | ast.stmt, str]] = []
    for statement in parse(source).body:
        if _is_exit(statement):
            gone.append(statement)
        elif isinstance(statement, ast.If):
            ends_if_true, ends_if_false = (
                _ends(statement.test, branch) for branch in _branches(statement)
            )
            if ends_if_true != ends_if_false:
                decided.append((statement.test, str(ends_if_false)))
    if not gone and not decided:
        return source
    return _blanked(with_replacements(source, decided).splitlines(), gone)


def _blanked(lines: list[str], gone: list[ast.stmt]) -> str:
    for node in gone:
        first = first_line_of(node)
        for number in range(first - 1, node.end_lineno or first):
            lines[number] = ""
    return "\n".join(lines) + "\n"


def _is_exit(statement: ast.stmt) -> bool:
    """Returns whether a statement exits the program, or is a guard that exits in one branch and
    binds no name.
    """
    if isinstance(statement, ast.Expr):
        return (
            isinstance(statement.value, ast.Call)
            and ast.unparse(statement.value.func) in ENDS_OF_PROGRAM
        )
    if isinstance(statement, ast.Raise):
        return statement.exc is not None and "SystemExit" in ast.unparse(statement.exc)
    if isinstance(statement, ast.If):
        branches = _branches(statement)
        shown = all(isinstance(s, SHOWING) for branch in branches for s in branch)
        return shown and any(_ends(statement.test, branch) for branch in branches)
    return isinstance(statement, ast.Assert) and "cuda" in ast.unparse(statement.test)


def _branches(statement: ast.If) -> tuple[list[ast.stmt], list[ast.stmt]]:
    return statement.body, statement.orelse


def _ends(test: ast.expr, branch: list[ast.stmt]) -> bool:
    """Returns whether a branch exits the program; if its test mentions cuda, an exception counts,
    too.
    """
    asks_for_gpu = "cuda" in ast.unparse(test)
    return any(_is_exit(s) or (asks_for_gpu and isinstance(s, ast.Raise)) for s in branch)


def reads_command_line(node: ast.AST) -> bool:
    """Returns whether a syntax tree parses or reads command-line arguments."""
    return any(
        isinstance(n, ast.Attribute)
        and n.attr in ("parse_args", "parse_known_args", "argv", "cli", "ArgumentParser")
        for n in ast.walk(node)
    )


def _is_shown(statement: ast.stmt) -> bool:
    """Returns whether a statement only shows a value or runs something; docstrings and torch
    settings do not count.
    """
    if not isinstance(statement, ast.Expr) or isinstance(statement.value, ast.Constant):
        return False
    return not SETTING.match(ast.unparse(statement.value))


def _is_run(name: str) -> bool:
    return name.startswith("test") or name == "main"


def _unread(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Returns the top-level statements that compute a value by a call (`x = torch.randn(8, 4,
    device="cuda")`) which no other statement reads. get_inputs creates its inputs itself,
    independent of the device.
    """
    gone: list[ast.stmt] = []
    while True:
        remaining = [s for s in statements if s not in gone]
        bound = {n for s in remaining if not isinstance(s, ast.Expr) for n in names_stored_by(s)}
        changes = [s for s in remaining if _is_shown(s) and changed_names(s)]
        gone += [s for s in changes if not changed_names(s) & bound]
        read = Counter(
            n
            for s in remaining
            for n in free_names(s) - (changed_names(s) if s in changes else set())
        )
        unread = [
            s
            for s in remaining
            if isinstance(s, ast.Assign | ast.AnnAssign) and makes_calls(s) and _names_only(s)
            and not any(read[n] - (n in free_names(s)) for n in names_stored_by(s))
        ]  # fmt: skip
        if not unread:
            return gone
        gone += unread


def free_names(node: ast.AST) -> set[str]:
    """Returns the names that a statement reads, without parameters and local names of functions."""
    if isinstance(node, ast.ClassDef):
        return {
            n
            for inner in [*node.body, *node.bases, *node.decorator_list]
            for n in free_names(inner)
        }
    if not isinstance(node, ast.FunctionDef):
        return names_loaded_by(node)
    local_names = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)} | names_stored_by(node)
    arguments = ast.walk(node.args)
    annotations = [a.annotation for a in arguments if isinstance(a, ast.arg) and a.annotation]
    defaults = [
        *node.args.defaults,
        *(d for d in node.args.kw_defaults if d),
        *node.decorator_list,
        *annotations,
    ]
    return (names_loaded_by(node) - local_names) | {n for d in defaults for n in names_loaded_by(d)}


def _names_only(statement: ast.Assign | ast.AnnAssign) -> bool:
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return all(
        isinstance(n, ast.Name | ast.Tuple | ast.List)
        for t in targets
        for n in [t, *getattr(t, "elts", [])]
    )


def makes_calls(statement: ast.stmt) -> bool:
    """Returns whether a top-level statement calls something; imports and constants do not."""
    return any(isinstance(n, ast.Call) for n in ast.walk(statement))
