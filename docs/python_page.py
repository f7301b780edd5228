"""Writes docs/reference/python.md from the public interface itself: signatures, docstrings and fields.

    python docs/python_page.py

The page is kept in git, so that it can be read without building the site; a test holds it to the code.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kernelwright

PAGE = Path(__file__).parent / "reference" / "python.md"
HEAD = """# Python

Written by `docs/python_page.py` from the code. `import kernelwright` names the whole public interface and imports
nothing heavy; what is not on this page may change between releases. Classes are imported when they are first asked for.
"""


def page() -> str:
    """The whole page, in Markdown."""
    members = {
        name: getattr(kernelwright, name)
        for name in kernelwright.__all__
        if not name.startswith("_")
    }
    functions = [name for name, member in members.items() if inspect.isfunction(member)]
    functions.sort(key=lambda name: inspect.getsourcelines(members[name])[1])
    classes = [name for name in members if name not in functions]
    parts = [HEAD, "## Functions\n", *(_function(name, members[name]) for name in functions)]
    parts += ["## Classes\n", *(_class(name, getattr(kernelwright, name)) for name in classes)]
    return "\n".join(parts).rstrip() + "\n"


def _function(name: str, function: Any) -> str:
    return f"### {name}\n\n{_signature(name, function)}\n\n{_docstring(function)}\n"


def _class(name: str, kind: Any) -> str:
    parts = [f"### {name}\n", _docstring(kind), ""]
    fields = list(_fields(kind))
    if fields:
        parts += ["| field | type | meaning |", "|---|---|---|"]
        parts += [
            f"| `{field}` | `{_cell(annotation)}` | {_cell(meaning)} |"
            for field, annotation, meaning in fields
        ]
        parts.append("")
    else:
        parts += [_signature(name, kind.__init__), "", _docstring(kind.__init__), ""]
    for method, function in _methods(kind):
        is_property = isinstance(vars(kind)[method], property)
        signature = _property(method, function) if is_property else _signature(method, function)
        parts += [f"#### {name}.{method}\n", signature, "", _docstring(function), ""]
    return "\n".join(parts)


def _signature(name: str, function: Any) -> str:
    """The signature in a block of code, one parameter a line where it is long."""
    parameters: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in [
            text[:1] for text in parameters
        ]:
            parameters.append("*")
        parameters.append(_parameter(parameter))
    returned = inspect.signature(function).return_annotation
    end = "" if returned is inspect.Signature.empty or name[0].isupper() else f" -> {returned}"
    line = f"{name}({', '.join(parameters)}){end}"
    if len(line) > 100:
        line = f"{name}(\n" + "".join(f"    {text},\n" for text in parameters) + f"){end}"
    return f"```python\n{line}\n```"


def _property(name: str, function: Any) -> str:
    return f"```python\n{name}: {inspect.signature(function).return_annotation}\n```"


def _parameter(parameter: inspect.Parameter) -> str:
    """`sizes: int | None = None`."""
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}.get(
        parameter.kind, ""
    )
    text = f"{stars}{parameter.name}"
    if parameter.annotation is not inspect.Parameter.empty:
        text += f": {parameter.annotation}"
    if parameter.default is inspect.Parameter.empty:
        return text
    shown = getattr(parameter.default, "__name__", None) or repr(parameter.default).replace(
        "'", '"'
    )
    return f"{text} = {re.sub(r'0x[0-9a-f]+', '...', shown)}"


def _docstring(documented: Any) -> str:
    """The docstring in Markdown: the sections of Google's style become lists."""
    lines: list[str] = []
    for block in re.split(r"\n\s*\n", inspect.getdoc(documented) or ""):
        title, _, rest = block.partition(":\n")
        if title in ("Args", "Returns", "Raises", "Yields"):
            lines += [
                f"**{title}**\n",
                *(_entries(rest) if title in ("Args", "Raises") else [_sentence(rest)]),
                "",
            ]
        else:
            lines += [block if block.startswith("    ") else _sentence(block), ""]
    return "\n".join(lines).rstrip()


def _entries(text: str) -> Iterator[str]:
    """A list item for each entry of a section; a sentence stays one."""
    for entry in re.split(r"\n(?=\S)", textwrap.dedent(text)):
        words = _sentence(entry)
        match = re.match(r"([\w*., ]+): (.*)", words)
        yield f"- `{match[1]}`: {match[2]}" if match else words


def _sentence(text: str) -> str:
    return " ".join(text.split())


def _fields(kind: Any) -> Iterator[tuple[str, str, str]]:
    """Name, type and meaning of each field of a value; the meaning is the string below the field."""
    names = getattr(kind, "model_fields", {})
    for owner in reversed(kind.__mro__):
        if not set(getattr(owner, "__annotations__", {})) & set(names):
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0].body  # type: ignore[attr-defined]
        for statement, after in zip(body, [*body[1:], None], strict=True):
            if isinstance(statement, ast.AnnAssign) and ast.unparse(statement.target) in names:
                meaning = ""
                if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                    meaning = " ".join(str(after.value.value).split())
                yield ast.unparse(statement.target), ast.unparse(statement.annotation), meaning


def _methods(kind: Any) -> Iterator[tuple[str, Any]]:
    for name, member in vars(kind).items():
        function = (
            member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        )
        if not name.startswith("_") and inspect.isfunction(function):
            yield name, function


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
