"""Scans Python sources for kernels: each @triton.jit function with the needed parts of its own
file.
"""

from __future__ import annotations

import ast
import builtins
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kernelwright.errors import InputError
from kernelwright.rl.data.importing.formats import ImportOptions, count_skipped
from kernelwright.rl.data.importing.licences import is_permissive, licence_of_folder, licence_of_tag
from kernelwright.rl.data.rows import Kind, Row, row_of
from kernelwright.tools.parsing import parse_module

ALLOWED_IMPORTS = ("torch", "triton", "math")
MAX_SOURCE_FILE_BYTES = 1 << 20
"""Largest size of a scanned file in bytes."""
PYTHON_BUILTINS = frozenset(dir(builtins))


def read(path: Path, options: ImportOptions, skipped: dict[str, int]) -> Iterator[Row]:
    """Yields rows of kind instruct: the kernel's signature and docstring -> the kernel.

    Raises InputError if there is no Python file.
    """
    top = path if path.is_dir() else path.parent
    files = [path] if path.is_file() else _python_files(path)
    if not files:
        raise InputError(f"{path} holds no .py file")
    for file in files:
        if file.is_symlink() or file.stat().st_size > MAX_SOURCE_FILE_BYTES:
            count_skipped(skipped, "link, or over 1 MiB")
            continue
        text = file.read_text(encoding="utf-8", errors="replace")
        if "triton" not in text or "jit" not in text:
            continue
        licence = licence_of_tag(text) or licence_of_folder(file.parent, top) or options.licence
        if not options.any_licence and not is_permissive(licence):
            count_skipped(skipped, f"licence {licence or 'not known'}")
            continue
        yield from _kernels(text, file.relative_to(top), licence, skipped)


def _python_files(folder: Path) -> list[Path]:
    """Returns the Python files below a folder, outside of hidden folders."""
    files = []
    for file in sorted(folder.rglob("*.py")):
        if not any(part.startswith(".") for part in file.relative_to(folder).parts):
            files.append(file)
    return files


def _kernels(text: str, path: Path, licence: str, skipped: dict[str, int]) -> Iterator[Row]:
    try:
        module = Module.of(parse_module(text), text)
    except (SyntaxError, ValueError, RecursionError):
        count_skipped(skipped, "not Python")
        return
    if not module.kernels:
        count_skipped(skipped, "no kernel at the top of the file")
    for name, node in module.kernels.items():
        source, why = module.alone(node)
        if not source:
            count_skipped(skipped, why)
            continue
        description = " ".join((ast.get_docstring(node) or "").split())
        prompt = f"Write the Triton kernel `{name}({ast.unparse(node.args)})`." + (
            f" {description}" if description else ""
        )
        yield row_of(
            Kind.INSTRUCT,
            prompt,
            source,
            source="tree",
            licence=licence,
            provenance=f"{path}:{node.lineno}",
        )


@dataclass
class Module:
    """The top level of a file by names."""

    text: str
    imports: dict[str, ast.stmt] = field(default_factory=dict)
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    """Functions and plain assignments, by name."""
    kernels: dict[str, ast.FunctionDef] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: ast.Module, text: str) -> Module:
        """Reads a module's tree; the last of several bindings of a name counts."""
        module = cls(text)
        for node in _statements(tree.body):
            for name in _bound(node):
                # A later binding replaces an earlier one of either kind.
                module.imports.pop(name, None)
                module.definitions.pop(name, None)
                (
                    module.imports
                    if isinstance(node, ast.Import | ast.ImportFrom)
                    else module.definitions
                )[name] = node
        jits = _jits(module.imports.values())
        for name, node in module.definitions.items():
            if isinstance(node, ast.FunctionDef) and any(
                _called(d) in jits for d in node.decorator_list
            ):
                module.kernels[name] = node
        return module

    def alone(self, kernel: ast.FunctionDef) -> tuple[str, str]:
        """Returns the kernel's text with imports, constants and helpers, or an empty text and the
        reason why it cannot stand alone.
        """
        needed: dict[str, ast.stmt] = {}
        # Collect everything the kernel needs, and everything that needs in turn.
        todo: list[ast.stmt] = [kernel]
        imports: dict[int, ast.stmt] = {}
        while todo:
            node = todo.pop()
            for name in _free(node):
                if (
                    name in self.definitions
                    and name not in needed
                    and self.definitions[name] is not kernel
                ):
                    needed[name] = self.definitions[name]
                    todo.append(self.definitions[name])
                elif name in self.imports:
                    imports[id(self.imports[name])] = self.imports[name]
                elif name not in self.definitions and name not in PYTHON_BUILTINS:
                    return "", "uses a name that its file does not define"
        if not all(_allowed(node) for node in imports.values()):
            return "", "imports more than torch and triton"
        parts = sorted(
            {id(n): n for n in [*needed.values(), kernel]}.values(), key=lambda n: n.lineno
        )
        head = "\n".join(ast.unparse(n) for n in sorted(imports.values(), key=lambda n: n.lineno))
        return head + "\n\n\n" + "\n\n\n".join(self._source(n) for n in parts) + "\n", ""

    def _source(self, node: ast.stmt) -> str:
        """Returns the original source of a statement, with its decorators."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        return textwrap.dedent("\n".join(self.text.splitlines()[first - 1 : node.end_lineno]))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the module's statements, those under try and if included, preferred ones last.

    The if branch comes after the else branch; except branches are left out, since triton is
    missing there.
    """
    for node in body:
        if isinstance(node, ast.Try):
            yield from _statements([*node.body, *node.orelse, *node.finalbody])
        elif isinstance(node, ast.If):
            yield from _statements([*node.orelse, *node.body])
        else:
            yield node


def _bound(node: ast.stmt) -> set[str]:
    """Returns the names bound by a statement."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.FunctionDef):
        return {node.name}
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, ast.AnnAssign):
        targets = [node.target]
    names: set[str] = set()
    for target in targets:
        names |= _names(target, ast.Store)
    return names


def _names(node: ast.AST, context: type[ast.expr_context]) -> set[str]:
    """Returns the names inside a node that are read (ast.Load) or bound (ast.Store)."""
    names = set()
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name) and isinstance(inner.ctx, context):
            names.add(inner.id)
    return names


def _jits(imports: Iterable[ast.stmt]) -> set[str]:
    """Returns the spellings of triton.jit in a file with these imports."""
    names = {"triton.jit", "jit"}
    for node in imports:
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            if (
                isinstance(node, ast.ImportFrom)
                and (node.module or "").split(".")[0] == "triton"
                and alias.name == "jit"
            ):
                names.add(alias.asname or "jit")
            elif isinstance(node, ast.Import) and alias.name == "triton":
                names.add(f"{alias.asname or 'triton'}.jit")
    return names


def _called(decorator: ast.expr) -> str:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _allowed(node: ast.stmt) -> bool:
    """Returns whether an import needs only torch, triton and math; relative imports are refused."""
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        names = [node.module or ""]
    else:
        return False
    return all(name.split(".")[0] in ALLOWED_IMPORTS for name in names)


def _free(node: ast.stmt) -> set[str]:
    """Returns the names read but not bound inside a statement."""
    read = _names(node, ast.Load)
    if not isinstance(node, ast.FunctionDef):
        return read
    arguments = {inner.arg for inner in ast.walk(node) if isinstance(inner, ast.arg)}
    return read - _names(node, ast.Store) - arguments - {node.name}
