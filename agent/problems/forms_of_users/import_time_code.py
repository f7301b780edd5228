"""Removes code that runs at import time from a file."""

from __future__ import annotations

import ast
import re
from collections import Counter

from kernelwright.agent.problems.forms_of_users.text_edits import first_line_of
from kernelwright.agent.problems.syntax_search import definitions, names_loaded_by_all
from kernelwright.agent.problems.tritonbench_cases import names_loaded_by, names_stored_by
from kernelwright.bindings import changed_names
from kernelwright.tools.parsing import with_replacements
from kernelwright.tools.problem import parse

SETTING = re.compile(r"torch\.(set_default|set_float32|backends\.)")
"""Calls that configure torch's computation and therefore belong to the module's result."""
ENDS_OF_PROGRAM = frozenset({"exit", "quit", "sys.exit", "os._exit"})
COMMAND_LINE_ATTRIBUTES = ("parse_args", "parse_known_args", "argv", "cli", "ArgumentParser")
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
    # Classes only count if called: `Other = Norm` runs nothing.
    values = called - set(definitions(tree.body, ast.ClassDef))
    gone: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and _is_run(node.name):
            gone.append(node)
    bound: set[str] = set()
    for statement in tree.body:
        guard = isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test)
        runs = isinstance(statement, ast.With | ast.Assert | ast.Delete) or _is_shown(statement)
        # `parser.add_argument(...)` is decided with the value that it changes (`_unread`).
        if runs and changed_names(statement) & (bound - called):
            continue
        if guard or runs:
            gone.append(statement)
        elif isinstance(statement, ast.Assign | ast.For | ast.If) and _uses(
            statement, called if makes_calls(statement) else values
        ):
            # Values derived from a run are removed, too, and so on.
            gone.append(statement)
            called |= names_stored_by(statement)
            values |= names_stored_by(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            bound |= names_stored_by(statement)
    gone_lines = {statement.lineno for statement in gone}
    gone += _unread([s for s in tree.body if s.lineno not in gone_lines])
    return _blanked(lines, gone)


def _uses(statement: ast.stmt, names: set[str]) -> bool:
    """Returns whether a statement reads or binds any of these names."""
    return bool((names_loaded_by(statement) | names_stored_by(statement)) & names)


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
            ends_if_true = _ends(statement.test, statement.body)
            ends_if_false = _ends(statement.test, statement.orelse)
            # The branch that exits is never taken: fix the test to the other branch.
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
        shown = all(isinstance(s, SHOWING) for s in [*statement.body, *statement.orelse])
        test = statement.test
        return shown and (_ends(test, statement.body) or _ends(test, statement.orelse))
    return isinstance(statement, ast.Assert) and "cuda" in ast.unparse(statement.test)


def _ends(test: ast.expr, branch: list[ast.stmt]) -> bool:
    """Returns whether a branch exits the program; if its test mentions cuda, an exception counts,
    too.
    """
    asks_for_gpu = "cuda" in ast.unparse(test)
    return any(_is_exit(s) or (asks_for_gpu and isinstance(s, ast.Raise)) for s in branch)


def reads_command_line(node: ast.AST) -> bool:
    """Returns whether a syntax tree parses or reads command-line arguments."""
    attributes = {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    return not attributes.isdisjoint(COMMAND_LINE_ATTRIBUTES)


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
        remaining = [statement for statement in statements if statement not in gone]
        bound: set[str] = set()
        for statement in remaining:
            if not isinstance(statement, ast.Expr):
                bound |= names_stored_by(statement)
        # `parser.add_argument(...)` changes `parser` and does not count as reading it.
        changes = [s for s in remaining if _is_shown(s) and changed_names(s)]
        gone += [change for change in changes if not changed_names(change) & bound]
        readers: Counter[str] = Counter()
        for statement in remaining:
            names = free_names(statement)
            readers.update(names - changed_names(statement) if statement in changes else names)
        unread = [s for s in remaining if _is_computed(s) and not _is_read(s, readers)]
        # Removing a statement may leave the values that it read without a reader: repeat.
        if not unread:
            return gone
        gone += unread


def _is_computed(statement: ast.stmt) -> bool:
    """Returns whether a statement only assigns the results of calls to names."""
    if not isinstance(statement, ast.Assign | ast.AnnAssign):
        return False
    return makes_calls(statement) and _names_only(statement)


def _is_read(statement: ast.stmt, readers: Counter[str]) -> bool:
    """Returns whether another statement reads a name that this statement binds."""
    own_reads = free_names(statement)
    return any(readers[name] - (name in own_reads) for name in names_stored_by(statement))


def free_names(node: ast.AST) -> set[str]:
    """Returns the names that a statement reads, without parameters and local names of functions."""
    if isinstance(node, ast.ClassDef):
        names: set[str] = set()
        for inner in [*node.body, *node.bases, *node.decorator_list]:
            names |= free_names(inner)
        return names
    if not isinstance(node, ast.FunctionDef):
        return names_loaded_by(node)
    parameters = [part for part in ast.walk(node) if isinstance(part, ast.arg)]
    local_names = {parameter.arg for parameter in parameters} | names_stored_by(node)
    # Defaults, decorators and annotations are evaluated outside of the function.
    outside = [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.decorator_list]
    for parameter in ast.walk(node.args):
        if isinstance(parameter, ast.arg) and parameter.annotation:
            outside.append(parameter.annotation)
    return (names_loaded_by(node) - local_names) | names_loaded_by_all(outside)


def _names_only(statement: ast.Assign | ast.AnnAssign) -> bool:
    """Returns whether all targets are names or tuples of names, not items or attributes."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for target in targets:
        parts = [target, *getattr(target, "elts", [])]
        if not all(isinstance(part, ast.Name | ast.Tuple | ast.List) for part in parts):
            return False
    return True


def makes_calls(statement: ast.stmt) -> bool:
    """Returns whether a top-level statement calls something; imports and constants do not."""
    return any(isinstance(n, ast.Call) for n in ast.walk(statement))
