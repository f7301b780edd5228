"""Python sources scanned for kernels: each @triton.jit function with what it needs of its own file, and nothing
else.
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
"""Bytes of a file that is read."""
BUILTINS = frozenset(dir(builtins))


def read(path: Path, options: ImportOptions, skipped: dict[str, int]) -> Iterator[Row]:
    """Rows of kind instruct: what the kernel is called and says of itself -> the kernel.

    Raises InputError where there is no Python.
    """
    top = path if path.is_dir() else path.parent
    files = (
        [path]
        if path.is_file()
        else sorted(
            p
            for p in path.rglob("*.py")
            if not any(part.startswith(".") for part in p.relative_to(top).parts)
        )
    )
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


def _kernels(text: str, place: Path, licence: str, skipped: dict[str, int]) -> Iterator[Row]:
    try:
        module = Module.of(parse_module(text), text)
    except (SyntaxError, ValueError, RecursionError):
        count_skipped(skipped, "not Python")
        return
    if not module.kernels:
        count_skipped(skipped, "no kernel at the top of the file")
    for name, node in module.kernels.items():
        made, why = module.alone(node)
        if not made:
            count_skipped(skipped, why)
            continue
        said = " ".join((ast.get_docstring(node) or "").split())
        prompt = f"Write the Triton kernel `{name}({ast.unparse(node.args)})`." + (
            f" {said}" if said else ""
        )
        yield row_of(
            Kind.INSTRUCT,
            prompt,
            made,
            source="tree",
            licence=licence,
            provenance=f"{place}:{node.lineno}",
        )


@dataclass
class Module:
    """One file's top level by names."""

    text: str
    imports: dict[str, ast.stmt] = field(default_factory=dict)
    definitions: dict[str, ast.stmt] = field(default_factory=dict)
    """Functions and plain assignments."""
    kernels: dict[str, ast.FunctionDef] = field(default_factory=dict)

    @classmethod
    def of(cls, tree: ast.Module, text: str) -> Module:
        """Reads a module's tree: of names that are bound more than once at its top level the last binding counts."""
        module = cls(text)
        for node in _statements(tree.body):
            for name in _bound(node):
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
        """The kernel's text with imports, constants and helpers, or "" and why it cannot stand alone."""
        needed: dict[str, ast.stmt] = {}
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
                elif name not in self.definitions and name not in BUILTINS:
                    return "", "uses a name that its file does not define"
        if not all(_allowed(node) for node in imports.values()):
            return "", "imports more than torch and triton"
        parts = sorted(
            {id(n): n for n in [*needed.values(), kernel]}.values(), key=lambda n: n.lineno
        )
        head = "\n".join(ast.unparse(n) for n in sorted(imports.values(), key=lambda n: n.lineno))
        return head + "\n\n\n" + "\n\n\n".join(self._source(n) for n in parts) + "\n", ""

    def _source(self, node: ast.stmt) -> str:
        """Returns the source as it was written, with its decorators."""
        first = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", ()))])
        return textwrap.dedent("\n".join(self.text.splitlines()[first - 1 : node.end_lineno]))


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The module's, those under try and if among them, the later ones to be preferred.

    Of if and else the if comes last; what an except does is left out: there triton is missing.
    """
    for node in body:
        if isinstance(node, ast.Try):
            yield from _statements([*node.body, *node.orelse, *node.finalbody])
        elif isinstance(node, ast.If):
            yield from _statements([*node.orelse, *node.body])
        else:
            yield node


def _bound(node: ast.stmt) -> set[str]:
    """Names that a statement gives a meaning."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {alias.asname or alias.name.split(".")[0] for alias in node.names}
    if isinstance(node, ast.FunctionDef):
        return {node.name}
    targets = (
        node.targets
        if isinstance(node, ast.Assign)
        else [node.target]
        if isinstance(node, ast.AnnAssign)
        else []
    )
    return {
        n.id
        for t in targets
        for n in ast.walk(t)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


def _jits(imports: Iterable[ast.stmt]) -> set[str]:
    """Returns the spellings of triton.jit in a file with these imports."""
    found = {"triton.jit", "jit"}
    for node in imports:
        for alias in node.names if isinstance(node, ast.Import | ast.ImportFrom) else ():
            if (
                isinstance(node, ast.ImportFrom)
                and (node.module or "").split(".")[0] == "triton"
                and alias.name == "jit"
            ):
                found.add(alias.asname or "jit")
            elif isinstance(node, ast.Import) and alias.name == "triton":
                found.add(f"{alias.asname or 'triton'}.jit")
    return found


def _called(decorator: ast.expr) -> str:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _allowed(node: ast.stmt) -> bool:
    names = (
        [a.name for a in node.names]
        if isinstance(node, ast.Import)
        else [node.module or ""]
        if isinstance(node, ast.ImportFrom) and not node.level
        else [""]
    )
    return all(name.split(".")[0] in ALLOWED_IMPORTS for name in names)


def _free(node: ast.stmt) -> set[str]:
    """Names that are read and not bound inside."""
    bound = {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    bound |= {n.arg for n in ast.walk(node) if isinstance(n, ast.arg)}
    if isinstance(node, ast.FunctionDef):
        bound.add(node.name)
    else:
        bound = set()
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)
    } - bound
