"""Reads tasks of GPU MODE's leaderboards: `reference.py` with `ref_kernel` and `generate_input`,
and `task.yml` with sizes in its first test. Text to text: nothing is run, and line numbers are
preserved.

`utils.py` and `task.py` are omitted: they define types, a context for torch's precision and
comparisons, which are the judge's responsibility.
"""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path
from typing import Any

from kernelwright.agent.problems.forms_of_users.text_edits import joined
from kernelwright.agent.problems.reading import problem_of, read_text
from kernelwright.agent.problems.syntax_search import definitions
from kernelwright.agent.problems.tritonbench_cases import OffDevice
from kernelwright.tools.problem import Problem, ProblemError, parse

SUITE_MODULES = frozenset(("utils", "task", "eval"))
"""Modules of the suite, whose imports are replaced."""
REQUIRED_FUNCTIONS = ("ref_kernel", "generate_input")
_KEY = re.compile(r"([{,]\s*)([A-Za-z_]\w*)\s*:")
_WORDS = {"true": "True", "false": "False", "null": "None"}


def is_task(path: Path) -> bool:
    """Returns whether a folder, or a file in the folder, is a task."""
    folder = path if path.is_dir() else path.parent
    named = path.is_dir() or path.name in ("reference.py", "task.yml")
    return named and (folder / "reference.py").is_file() and (folder / "task.yml").is_file()


def tasks_in(folder: Path) -> list[Path]:
    """Returns the tasks of a folder at any depth."""
    return [file.parent for file in sorted(folder.rglob("task.yml")) if is_task(file.parent)]


def read_task(path: Path) -> Problem:
    """Reads a task as a problem. Raises ProblemError if impossible, with advice."""
    folder = path if path.is_dir() else path.parent
    name = folder.resolve().name
    try:
        source = written(
            read_text(folder / "reference.py"), first_test(read_text(folder / "task.yml"))
        )
        return problem_of(source, name, "file")
    except ProblemError as error:
        raise error if str(error).startswith(name) else ProblemError(f"{name}: {error}") from None


def first_test(text: str) -> dict[str, Any]:
    """Returns the arguments of the first test in a task.yml. Raises ProblemError."""
    tests = re.search(r"^tests:(.*?)(^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    row = re.search(r"^\s*-\s*(\{.*?\})", tests[1], re.MULTILINE | re.DOTALL) if tests else None
    if row is None:
        raise ProblemError("its task.yml has no tests in the form `- {size: 128, seed: 1}`")
    # The test is a YAML flow mapping: quote its keys and spell its constants as in Python.
    quoted = _KEY.sub(r'\1"\2":', row[1])
    plain = re.sub(r"\b(true|false|null)\b", lambda word: _WORDS[word[0]], quoted)
    try:
        return {str(key): value for key, value in ast.literal_eval(plain).items()}
    except (ValueError, SyntaxError):
        raise ProblemError(f"the first test of its task.yml cannot be read: {row[1]}") from None


def written(source: str, test: dict[str, Any]) -> str:
    """Writes the reference in KernelBench form. Raises ProblemError."""
    tree = parse(source)
    functions = definitions(tree.body, ast.FunctionDef)
    if missing := [name for name in REQUIRED_FUNCTIONS if name not in functions]:
        raise ProblemError(f"its reference.py defines no {' and no '.join(missing)}")
    kernel, maker = (functions[name] for name in REQUIRED_FUNCTIONS)
    needed = maker.args.args[: len(maker.args.args) - len(maker.args.defaults)]
    if unknown := [a.arg for a in needed if a.arg not in test and a.arg != "seed"]:
        raise ProblemError(f"its first test does not say {', '.join(unknown)}")
    names = _arguments(kernel, maker)
    forwarded = f"({', '.join(names)})" if len(names) > 1 else names[0]
    sizes = {name: value for name, value in test.items() if name != "seed"}
    keywords = [f"{name}={name}" for name in sizes]
    if "seed" in test:
        keywords.append("seed=0")
    called = ", ".join(keywords)
    drawn = ast.unparse(ast.fix_missing_locations(_Drawing().visit(maker)))
    listed = "list(made)" if len(names) > 1 else "[made]"
    return joined(_reference_code(source, tree), [
        "\n".join(f"{name} = {value!r}" for name, value in sizes.items()),
        f"class Model(torch.nn.Module):\n    def forward(self, {', '.join(names)}):\n"
        f"        return ref_kernel({forwarded})",
        f"def get_inputs():\n{textwrap.indent(drawn, '    ')}\n\n    made = generate_input({called})\n"
        f"    return {listed}",
        "def get_init_inputs():\n    return []",
    ])  # fmt: skip


def _arguments(kernel: ast.FunctionDef, maker: ast.FunctionDef) -> list[str]:
    """Returns a name for each input, as unpacked in the kernel or returned by the input function."""
    data = kernel.args.args[0].arg
    for node in ast.walk(kernel):
        unpacks = (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Name)
            and node.value.id == data
        )
        if unpacks and isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            return _distinct(node.targets[0].elts)
    returned = [n.value for n in ast.walk(maker) if isinstance(n, ast.Return)]
    if returned and isinstance(returned[-1], ast.Tuple):
        return _distinct(returned[-1].elts)
    return [data]


def _distinct(elements: list[ast.expr]) -> list[str]:
    """Returns the names of tuple elements; numbered names for other elements and for duplicates."""
    numbered = [f"input_{index}" for index in range(len(elements))]
    names: list[str] = []
    for element, number in zip(elements, numbered, strict=True):
        is_name = isinstance(element, ast.Name) and element.id != "_"
        names.append(element.id if isinstance(element, ast.Name) and is_name else number)
    return names if len(set(names)) == len(names) else numbered


class _Drawing(OffDevice):
    """Removes generators, seeds and devices, which the judge controls."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        """Replaces generators by None, for helpers that receive a generator."""
        if isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "torch.Generator":
            node.value = ast.copy_location(ast.Constant(None), node.value)
        return self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        """Removes statements that set seeds."""
        seeds = isinstance(node.value, ast.Call) and ast.unparse(node.value.func).endswith(
            ("manual_seed", "set_seed")
        )
        return ast.copy_location(ast.Pass(), node) if seeds else self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Returns the call without `generator=`."""
        node.keywords = [k for k in node.keywords if k.arg != "generator"]
        return super().visit_Call(node)


def _reference_code(source: str, tree: ast.Module) -> str:
    """Returns the text without input function, comparison and suite imports.

    Raises ProblemError.
    """
    # Removed lines become empty, so that line numbers in errors stay those of the user's file.
    lines, replaced = source.splitlines(), dict[int, str]()
    gone: list[ast.stmt] = []
    for node in tree.body:
        name = getattr(node, "name", "") or (
            ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else ""
        )
        if isinstance(node, ast.ImportFrom) and node.module in SUITE_MODULES:
            replaced[node.lineno] = _stand_ins(
                [alias.asname or alias.name for alias in node.names], tree
            )
            gone.append(node)
        elif name in ("check_implementation", "generate_input"):
            gone.append(node)
    for node in gone:
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1):
            lines[number - 1] = replaced.get(number, "")
    return "\n".join(lines) + "\n"


def _stand_ins(names: list[str], tree: ast.Module) -> str:
    """Returns a line that replaces an import: no-op contexts, and `object` for types."""
    entered = _entered_contexts(tree)
    contexts = [name for name in names if name in entered]
    types = [name for name in names if name not in entered]
    parts: list[str] = []
    if contexts:
        parts.append(f"import contextlib; {' = '.join(contexts)} = contextlib.nullcontext")
    if types:
        parts.append(f"{' = '.join(types)} = object")
    return "; ".join(parts)


def _entered_contexts(tree: ast.Module) -> set[str]:
    """Returns the names of functions whose results are entered by `with`."""
    names: set[str] = set()
    for statement in ast.walk(tree):
        for item in statement.items if isinstance(statement, ast.With) else ():
            call = item.context_expr
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name):
                names.add(call.func.id)
    return names
