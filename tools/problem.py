"""A problem: one reference in KernelBench form, its identity and its hash. Text only: nothing here imports torch."""

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
    """The reference cannot be used. The message is one line and says what to do."""


class Problem(BaseModel):
    """One reference: `class Model(nn.Module)`, `get_inputs() -> list`, `get_init_inputs() -> list`.

    Form: KernelBench (Ouyang et al. 2025, arXiv:2502.10517).
    """

    model_config = ConfigDict(frozen=True)

    name: str
    """How people call it: `fused_softmax`, `kernelbench:1/23`, `model.py`."""
    source: str = Field(repr=False)
    suite: str = "file"
    """catalogue, kernelbench, tritonbench-t or file."""
    title: str = ""
    """One line for people."""
    family: str = ""
    tags: tuple[str, ...] = ()
    taken_for: str = ""
    """The name that was asked for, where this one is only near to it: "fused sofmaxx"."""

    @property
    def hash(self) -> str:
        """SHA-256 over the syntax tree without docstrings, as 64 hexadecimal digits.

        Comments, blank lines and names of files do not change it.
        """
        return source_hash(self.source)

    @property
    def cpu_sizes(self) -> dict[str, int]:
        """The reference's own CPU shapes, empty where it names none."""
        return literal_dict(self.source, CPU_SIZES)

    def with_sizes(self, sizes: Mapping[str, int]) -> Problem:
        """The same problem with module-level integers replaced. Integers that are computed from them follow.

        Raises: ProblemError where a name is not a module-level integer.
        """
        return self.model_copy(update={"source": resized(self.source, sizes)}) if sizes else self


def pinned(source: str, sizes: Mapping[str, int]) -> str:
    """The source with these sizes written as `int(512)`, so that nothing takes them for numbers that may change.

    sizes: names of `module_integers` or `inner_integers` with their values. Raises ProblemError for any other name.
    """
    marks, text = _marked(source, tuple(sizes))
    for mark, value in zip(marks, sizes.values(), strict=True):
        text = text.replace(mark, f"int({value})")
    return text


def parse(source: str) -> ast.Module:
    """Raises ProblemError where the text is not Python."""
    try:
        return parse_module(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f" at line {line}" if line else ""
        raise ProblemError(
            f"the reference is not Python{where}: {getattr(error, 'msg', error)}"
        ) from error
    except (RecursionError, MemoryError):
        raise ProblemError(
            "the reference is nested too deeply for Python to read: write it with less nesting"
        ) from None


def check_form(source: str) -> None:
    """Raises ProblemError where `Model`, `get_inputs` or `get_init_inputs` is missing; it says what to write."""
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
    """For the last class that has a `forward`: its new name, and what the missing functions return."""
    classes = [(n, _arguments(n, "forward")) for n in tree.body if isinstance(n, ast.ClassDef)]
    module, inputs = next(
        ((n, found) for n, found in reversed(classes) if found is not None), (None, None)
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
        f"add `def {name}(): return [{', '.join(given)}]` with values for these names"
        if given
        else f"add `def {name}(): return []`"
        for name, given in returned.items()
        if name in missing
    ]
    call = (
        f"end the file with a call on example inputs, `{called}`, with values for these names; "
        "or name the shapes with --input; or "
    )
    return f"; {call if len(missing) > 1 else ''}{', '.join(steps)}" if steps else ""


def _arguments(module: ast.ClassDef, method: str) -> list[str] | None:
    """The names after `self` that a method needs, of a class that writes it itself; None where it does not."""
    found = next(
        (n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == method), None
    )
    if found is None:
        return None
    names = [a.arg for a in (*found.args.posonlyargs, *found.args.args)][1:]
    return names[: max(len(names) - len(found.args.defaults), 0)]


def module_integers(source: str) -> dict[str, int]:
    """The module-level integers of a reference, in order.

    They are written as numbers or as arithmetic of numbers (`8192 * 2`). `height = width = 256` and
    `depth, height = 16, 32` give a name each.
    """
    found: dict[str, int] = {}
    for node in one_name_each(parse(source)).body:
        if (name := assigned_name(node)) and (
            value := integer(getattr(node, "value", None))
        ) is not None:
            found[name] = value
    return found


def inner_integers(source: str) -> dict[str, int]:
    """Integers that have no name of their own, by their place.

    `shape[1]` is the second one in what `shape` is assigned, `x.shape[1]` the second extent of forward's argument `x`
    (tools/reference_integers.py).
    """
    return {
        name: value
        for name, node in inner(one_name_each(parse(source)))
        if (value := integer(node)) is not None
    }


def literal_dict(source: str, name: str) -> dict[str, int]:
    """A module-level `NAME = {"a": 1, ...}`; empty where there is none."""
    for node in parse(source).body:
        if assigned_name(node) == name and isinstance(value := _literal(node), dict):
            return value
    return {}


def resized(source: str, sizes: Mapping[str, int]) -> str:
    """The source with integers replaced by `sizes`: names of `module_integers` or `inner_integers`.

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
    made = re.sub("|".join(values), lambda found: values[found[0]], text)
    if all(value >= 0 for _, value in items):  # a sign is no part of a number
        note_template(made, text, tuple((int(mark), int(value)) for mark, value in values.items()))
    return made


@lru_cache(maxsize=512)
def _marked(source: str, names: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """The text with a long number that occurs nowhere else in the place of each size, and these numbers."""
    first = next(n for n in (10**k for k in range(30, 200)) if str(n)[:-4] not in source)
    marks = {name: first + index for index, name in enumerate(names)}
    return tuple(map(str, marks.values())), with_integers(source, marks)


def with_integers(source: str, sizes: Mapping[str, int]) -> str:
    """The text with its integers replaced; every line stays where it is."""
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
    """The text of an assignment of an integer to one name, with the name's value of `sizes` where it has one."""
    name = assigned_name(node)
    assert isinstance(node, ast.Assign)
    assert name is not None
    return f"{name} = {sizes.get(name, integer(node.value))}"


@lru_cache(maxsize=512)
def source_hash(source: str) -> str:
    """SHA-256 of the dumped syntax tree, docstrings left out.

    Falls back to the text where it does not parse, or is too deep to.
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

    Hashes are kept in databases and in files that ship, and later Pythons add fields and leave out empty ones.
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
