"""Collects the source of live objects and of their dependencies in one text."""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import linecache
import sys
import sysconfig
import types
from pathlib import Path
from typing import Any

from kernelwright.agent.problems.forms_of_users.import_time_code import free_names
from kernelwright.agent.problems.forms_of_users.text_edits import first_line_of, statement_text
from kernelwright.agent.problems.tritonbench_cases import names_stored_by
from kernelwright.source_lines import NO_FILE, LineOrigin
from kernelwright.tools.problem import ProblemError

ADVICE = "write it into a file, and give FILE.py:NAME"


def is_installed(value: object) -> bool:
    """Returns whether a class or function belongs to an installed package or to Python itself."""
    module = sys.modules.get(str(getattr(value, "__module__", "") or "torch"))
    if module is None or module.__name__ == "__main__":
        return False
    file = getattr(module, "__file__", None)
    if file is None:
        return True
    return any(Path(file).is_relative_to(root) for root in _roots())


@functools.cache
def _roots() -> tuple[Path, ...]:
    import torch

    names = ("purelib", "platlib", "stdlib", "platstdlib")
    return (*(Path(sysconfig.get_path(name)) for name in names), Path(torch.__file__).parents[1])


class ObjectSources:
    """Collects definitions in dependency order."""

    def __init__(self) -> None:
        self._imports: dict[str, str] = {"torch": "import torch"}
        self._definitions: dict[str, str] = {}
        self._waiting: set[str] = set()

    @property
    def names(self) -> set[str]:
        """Returns the names bound by the text."""
        return {*self._imports, *self._definitions}

    def text(self) -> str:
        """Returns imports and definitions as text."""
        imports = [NO_FILE.directive, *self._imports.values()]
        return "\n".join(imports) + "\n\n\n" + "\n\n\n".join(self._definitions.values()) + "\n"

    def add(self, value: Any, name: str = "") -> str:
        """Adds a class or function and returns its name in the text.

        Raises ProblemError if the source is unavailable.
        """
        name = name or value.__name__
        if name in self.names or name in self._waiting:
            return name
        if is_installed(value):
            attribute = value.__qualname__ if isinstance(value, type) else value.__name__
            alias = "" if attribute == name else f" as {name}"
            self._imports[name] = f"from {self.home_of(value)} import {attribute}{alias}"
            return name
        if value.__name__ == "<lambda>":
            raise ProblemError("a lambda has no name: write it as a function with def")
        self._add_definition(value.__name__, _file_of(value), _globals_of(value))
        return name

    @staticmethod
    def home_of(value: Any) -> str:
        """Returns the module from which a class or function of a package can be imported.

        Raises ProblemError.
        """
        name = value.__qualname__ if isinstance(value, type) else value.__name__
        for home in (getattr(value, "__module__", None), "torch", "torch.nn.functional"):
            owner: Any = sys.modules.get(home or "")
            for part in name.split("."):
                owner = getattr(owner, part, None)
            if owner is not None:
                return str(home)
        raise ProblemError(f"{name} cannot be imported by its name: {ADVICE}")

    def _add_definition(self, name: str, file: str, names: dict[str, Any]) -> None:
        """Adds the statement that binds a name in a file or cell, after the definitions of its
        dependencies.
        """
        text = "".join(linecache.getlines(file))
        statement = _statement(text, name)
        if statement is None:
            raise ProblemError(f"the source of {name} is not in {file}: {ADVICE}")
        self._waiting.add(name)
        for needed in sorted(_free_names(statement)):
            if needed not in self.names and needed not in self._waiting and needed in names:
                self._add_value(needed, names[needed], file, names)
        origin = LineOrigin(
            first_line_of(statement), Path(file).name if Path(file).is_file() else ""
        )
        self._definitions[name] = f"{origin.directive}\n{statement_text(text, statement)}"

    def _add_value(self, name: str, value: object, file: str, names: dict[str, Any]) -> None:
        import torch

        if isinstance(value, types.ModuleType):
            if not (value.__name__ == "__main__" or _is_module_installed(value)):
                raise ProblemError(
                    f"{name} is a module of your own: import its functions by name, or {ADVICE}"
                )
            self._imports[name] = (
                f"import {value.__name__} as {name}" if value.__name__ != name else f"import {name}"
            )
        elif isinstance(value, type | types.FunctionType | types.BuiltinFunctionType) and hasattr(
            value, "__name__"
        ):
            self.add(value, name)
        elif value is None or isinstance(value, bool | int | float | str | torch.dtype):
            self._definitions[name] = f"{NO_FILE.directive}\n{name} = {value!r}"
        elif isinstance(value, torch.Tensor | torch.nn.Module):
            raise ProblemError(
                f"the source reads {name}, a {type(value).__name__}: give it as an input, or {ADVICE}"
            )
        else:
            self._add_definition(name, file, names)


def _is_module_installed(module: types.ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    return file is None or any(Path(file).is_relative_to(root) for root in _roots())


def _code_of(value: object) -> types.CodeType | None:
    """Returns the code object of a function, or of any method defined in the class body."""
    if isinstance(value, types.FunctionType):
        return inspect.unwrap(value).__code__
    for member in vars(value).values() if isinstance(value, type) else ():
        function = inspect.unwrap(member) if callable(member) else getattr(member, "__func__", None)
        if not isinstance(function, types.FunctionType) or function.__module__ != value.__module__:
            continue
        # Methods generated by dataclasses have the file name "<string>".
        if not function.__code__.co_filename.startswith("<string>"):
            return function.__code__
    return None


def _file_of(value: Any) -> str:
    """Returns the file or notebook cell with the source.

    Raises ProblemError if there is none.
    """
    code = _code_of(value)
    module = sys.modules.get(value.__module__)
    files = (
        [code.co_filename] if code is not None else [str(getattr(module, "__file__", None) or "")]
    )
    # Cells of notebooks and shells are found only in linecache, the latest last.
    for file in [*files, *reversed(list(linecache.cache))]:
        if _statement("".join(linecache.getlines(file)), value.__name__) is not None:
            return file
    raise ProblemError(f"the source of {value.__name__} cannot be read: {ADVICE}")


def _globals_of(value: Any) -> dict[str, Any]:
    """Returns all names visible to a function or class: module globals and variables of enclosing
    functions.
    """
    if isinstance(value, type):
        members = vars(value).values()
        functions = [member for member in members if isinstance(member, types.FunctionType)]
        names = dict(vars(sys.modules[value.__module__]))
    else:
        functions = [inspect.unwrap(value)]
        names = dict(functions[0].__globals__)
    for function in functions:
        names.update(inspect.getclosurevars(function).nonlocals)
    return names


def _statement(text: str, name: str) -> ast.stmt | None:
    """Returns the last top-level statement that binds a name, otherwise the last nested
    definition (in `if __name__ == "__main__":` or in a test).
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    for node in reversed(tree.body):
        binds = name in names_stored_by(node) and not isinstance(node, ast.If | ast.For)
        # A definition of another name may store `name` only inside of itself.
        if binds and getattr(node, "name", name) == name:
            return node
    return _nested_definition(tree, name)


def _nested_definition(tree: ast.Module, name: str) -> ast.stmt | None:
    """Returns the last definition of a name inside a block or function; methods do not count."""
    nested: list[ast.FunctionDef | ast.ClassDef] = []
    methods: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            methods.update(map(id, node.body))
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and node.name == name:
            nested.append(node)
    functions = [node for node in nested if id(node) not in methods]
    return max(functions, key=lambda node: node.lineno, default=None)


def _free_names(statement: ast.stmt) -> set[str]:
    """Returns the names that a statement reads and neither the statement nor Python defines."""
    names = {name for name in free_names(statement) if not hasattr(builtins, name)}
    return names - {getattr(statement, "name", "")}
