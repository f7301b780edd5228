"""Problem: a reference in KernelBench form, its identity and its hash.

Text only: nothing imports torch.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sys
from collections.abc import Mapping
from functools import lru_cache

from pydantic import BaseModel, ConfigDict, Field

from kernelwright.bindings import bound_names
from kernelwright.tools.parsing import note_template, parse_module, template_of, with_replacements
from kernelwright.tools.reference_integers import (
    CPU_SIZES,
    assigned_name,
    inner,
    integer,
    one_name_each,
)


class ProblemError(ValueError):
    """The reference cannot be used. The message is a single line of advice."""


class Problem(BaseModel):
    """Reference: `class Model(nn.Module)`, `get_inputs() -> list`, `get_init_inputs() -> list`.

    Form: KernelBench (Ouyang et al. 2025, arXiv:2502.10517).
    """

    model_config = ConfigDict(frozen=True)

    name: str
    """Name in commands: `fused_softmax`, `kernelbench:1/23`, `model.py`."""
    source: str = Field(repr=False)
    suite: str = "file"
    """catalogue, kernelbench, tritonbench-t or file."""
    title: str = ""
    """Title of a single line, for people."""
    family: str = ""
    tags: tuple[str, ...] = ()
    taken_for: str = ""
    """Requested name, if this problem's name is only similar: "fused sofmaxx"."""

    @property
    def hash(self) -> str:
        """SHA-256 over the syntax tree without docstrings, as 64 hexadecimal digits.

        Comments, blank lines and names of files do not change it.
        """
        return source_hash(self.source)

    @property
    def cpu_sizes(self) -> dict[str, int]:
        """Returns the reference's own CPU shapes, empty if not declared."""
        return literal_dict(self.source, CPU_SIZES)

    def with_sizes(self, sizes: Mapping[str, int]) -> Problem:
        """Returns the problem with other module-level integers.

        Integers computed from them follow.

        Raises: ProblemError if a name is not a module-level integer.
        """
        return self.model_copy(update={"source": resized(self.source, sizes)}) if sizes else self


def pinned(source: str, sizes: Mapping[str, int]) -> str:
    """Fixes sizes: writes `int(512)` in the source, which no longer counts as a number to change.

    sizes: names of `module_integers` or `inner_integers` with their values. Raises ProblemError
    for any other name.
    """
    marks, text = _marked(source, tuple(sizes))
    for mark, value in zip(marks, sizes.values(), strict=True):
        text = text.replace(mark, f"int({value})")
    return text


def parse(source: str) -> ast.Module:
    """Parses a reference. Raises ProblemError if the text is not Python."""
    try:
        return parse_module(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        location = f" at line {line}" if line else ""
        raise ProblemError(
            f"the reference is not Python{location}: {getattr(error, 'msg', error)}"
        ) from error
    except (RecursionError, MemoryError):
        raise ProblemError(
            "the reference is nested too deeply for Python to read: write it with less nesting"
        ) from None


def check_form(source: str) -> None:
    """Raises ProblemError, with advice, if Model, get_inputs or get_init_inputs is missing."""
    _check_form(template_of(source))


@lru_cache(maxsize=1024)
def _check_form(source: str) -> None:
    tree = parse(source)
    names = bound_names(tree)
    missing = [n for n in ("Model", "get_inputs", "get_init_inputs") if n not in names]
    if missing:
        raise ProblemError(
            f"the reference lacks {', '.join(missing)}: a problem defines Model, get_inputs and get_init_inputs "
            f"(KernelBench form){_what_to_write(tree, missing)}"
        )


def _what_to_write(tree: ast.Module, missing: list[str]) -> str:
    """Describes how to complete the last class with a `forward`, and the missing functions."""
    classes = [(n, _arguments(n, "forward")) for n in tree.body if isinstance(n, ast.ClassDef)]
    module, inputs = next(
        ((n, names) for n, names in reversed(classes) if names is not None), (None, None)
    )
    if module is None or inputs is None:
        return ""
    built = _arguments(module, "__init__") or []
    called = f"{module.name}({', '.join(built)})({', '.join(inputs)})"
    returned = {"get_inputs": inputs, "get_init_inputs": built}
    steps = (
        [f"rename the class {module.name} to Model"]
        if "Model" in missing and module.name != "Model"
        else []
    )
    steps += [
        f"add `def {name}(): return [{', '.join(value)}]` with values for these names"
        if value
        else f"add `def {name}(): return []`"
        for name, value in returned.items()
        if name in missing
    ]
    call = (
        f"end the file with a call on example inputs, `{called}`, with values for these names; "
        "or name the shapes with --input; or "
    )
    return f"; {call if len(missing) > 1 else ''}{', '.join(steps)}" if steps else ""


def _arguments(module: ast.ClassDef, method: str) -> list[str] | None:
    """Returns the required parameters of a class's own method, without `self`; else None."""
    function = next(
        (n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == method), None
    )
    if function is None:
        return None
    names = [a.arg for a in (*function.args.posonlyargs, *function.args.args)][1:]
    return names[: max(len(names) - len(function.args.defaults), 0)]


def module_integers(source: str) -> dict[str, int]:
    """The module-level integers of a reference, in order.

    They are written as numbers or as arithmetic of numbers (`8192 * 2`). `height = width = 256`
    and `depth, height = 16, 32` give a name each.
    """
    integers: dict[str, int] = {}
    for node in one_name_each(parse(source)).body:
        if (name := assigned_name(node)) and (
            value := integer(getattr(node, "value", None))
        ) is not None:
            integers[name] = value
    return integers


def inner_integers(source: str) -> dict[str, int]:
    """Returns integers without a name of their own, by position.

    `shape[1]` is the second integer in the value of `shape`, `x.shape[1]` the second extent of
    forward's argument `x` (tools/reference_integers.py).
    """
    return {
        name: value
        for name, node in inner(one_name_each(parse(source)))
        if (value := integer(node)) is not None
    }


def literal_dict(source: str, name: str) -> dict[str, int]:
    """Returns a module-level `NAME = {"a": 1, ...}`; empty without such an assignment."""
    for node in parse(source).body:
        if assigned_name(node) == name and isinstance(value := _literal(node), dict):
            return value
    return {}


def resized(source: str, sizes: Mapping[str, int]) -> str:
    """Returns the source with integers replaced by `sizes`.

    The names are those of `module_integers` or `inner_integers`.

    Raises ProblemError for any other name.
    """
    return _resized(source, tuple(sorted(sizes.items())))


@lru_cache(maxsize=1024)
def _resized(source: str, items: tuple[tuple[str, int], ...]) -> str:
    """Puts numbers into a text with marks in their places, which is made once: a verdict reads dozens of sizes."""
    marks, text = _marked(source, tuple(name for name, _ in items))
    values = {mark: str(int(value)) for mark, (_, value) in zip(marks, items, strict=True)}
    if not values:
        return text
    replaced = re.sub("|".join(values), lambda match: values[match[0]], text)
    if all(value >= 0 for _, value in items):  # a sign is no part of a number
        note_template(
            replaced, text, tuple((int(mark), int(value)) for mark, value in values.items())
        )
    return replaced


@lru_cache(maxsize=512)
def _marked(source: str, names: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Returns the text with a unique long number in place of each size, and these numbers."""
    first = next(n for n in (10**k for k in range(30, 200)) if str(n)[:-4] not in source)
    marks = {name: first + index for index, name in enumerate(names)}
    return tuple(map(str, marks.values())), with_integers(source, marks)


def with_integers(source: str, sizes: Mapping[str, int]) -> str:
    """Replaces integers in the text; every line keeps its number."""
    unknown = set(sizes) - set(module_integers(source)) - set(inner_integers(source))
    if unknown:
        raise ProblemError(
            f"no module-level integer named {', '.join(sorted(unknown))} in the reference"
        )
    tree = parse(source)
    edits: list[tuple[ast.expr | ast.stmt, str]] = []
    for statement in tree.body:
        separate = one_name_each(ast.Module([statement], [])).body
        if len(separate) > 1 and any(assigned_name(node) in sizes for node in separate):
            edits.append((statement, "; ".join(_assignment(node, sizes) for node in separate)))
        elif isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
            name = assigned_name(statement) or ""
            if name in sizes and integer(statement.value) is not None:
                edits.append((statement.value, str(int(sizes[name]))))
    edits += [
        (node, str(int(sizes[name]))) for name, node in inner(one_name_each(tree)) if name in sizes
    ]
    return with_replacements(source, edits)


def _assignment(node: ast.stmt, sizes: Mapping[str, int]) -> str:
    """Writes the assignment of an integer to a name, with its value in `sizes`, if any."""
    name = assigned_name(node)
    assert isinstance(node, ast.Assign)
    assert name is not None
    return f"{name} = {sizes.get(name, integer(node.value))}"


@lru_cache(maxsize=512)
def source_hash(source: str) -> str:
    """Returns the SHA-256 of the dumped syntax tree, without docstrings.

    Hashes the text if it does not parse, or is too deeply nested.
    """
    try:
        return _tree_hash(parse_module(source))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()


def _tree_hash(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
            and body
            and _is_text(body[0])
        ):
            node.body = body[1:] or [ast.Pass()]
    return hashlib.sha256(tree_text(tree).encode("utf-8", "replace")).hexdigest()


def tree_text(tree: ast.AST) -> str:
    """`ast.dump` as Python 3.11 wrote it.

    Hashes are kept in databases and in files that ship, and later Pythons add fields and leave
    out empty ones.
    """
    text = ast.dump(tree, **({"show_empty": True} if sys.version_info >= (3, 13) else {}))
    return text.replace(", type_params=[]", "")


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _literal(node: ast.stmt) -> object | None:
    value = getattr(node, "value", None)
    if value is None:
        return None
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError):
        return None
