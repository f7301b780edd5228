"""Writes docs/reference/command-line.md from the command lines themselves.

    python docs/command_line_page.py

The page is not kept in git: whoever builds the site makes it first (`make docs`).
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from typer.main import get_command

PAGE = Path(__file__).parent / "reference" / "command-line.md"
HEAD = """# Command line

Written by `docs/command_line_page.py` from the commands' own help. `agent` writes and judges kernels, `rl` trains the
policy. Exit statuses, of every command: 0 done (of `agent check`: a correct kernel), 1 not correct, 2 something that
you gave cannot be used, 3 this machine's trouble or a package that is not installed, 130 interrupted (143 by SIGTERM,
129 by SIGHUP), 141 nobody read the output to its end. Each but the last is said with one line on stderr.
"""


def command_lines() -> dict[str, Any]:
    """The two programs as click groups, by name."""
    import kernelwright.agent.cli
    import kernelwright.rl.cli

    return {
        "agent": get_command(kernelwright.agent.cli.app),
        "rl": get_command(kernelwright.rl.cli.build()),
    }


def commands(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Every command below `command` that is no group, with the words that call it."""
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for word, one in inner.items():
        yield from commands(f"{name} {word}", one)


def page() -> str:
    """The whole page, in Markdown."""
    parts = [HEAD]
    for program, group in command_lines().items():
        parts.append(f"## {program}\n\n{_text(group.help)}\n")
        parts += [_section(words, command) for words, command in commands(program, group)]
    return "\n".join(parts)


def _section(words: str, command: Any) -> str:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [
        one for one in command.params if one.param_type_name == "option" and one.name != "help"
    ]
    usage = " ".join([words, *(_metavar(one) for one in arguments), "[OPTIONS]"])
    lines = [f"### {words}", "", "```text", usage, "```", "", _text(command.help), ""]
    if arguments:
        lines += ["| argument | meaning |", "|---|---|"]
        lines += [f"| `{(one.metavar or one.name)}` | {_cell(one.help)} |" for one in arguments]
        lines.append("")
    panels: dict[str, list[Any]] = {}
    for option in options:
        panels.setdefault(getattr(option, "rich_help_panel", None) or "Options", []).append(option)
    for panel, members in panels.items():
        lines += [f"| {panel.lower()} | takes | default | meaning |", "|---|---|---|---|"]
        lines += [_row(option) for option in members]
        lines.append("")
    return "\n".join(lines)


def _row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    takes = "" if option.is_flag else _cell(option.metavar or _type_of(option))
    default = option.default
    shown = option.show_default if isinstance(option.show_default, str) else ""
    if not shown and isinstance(default, str | int | float) and not isinstance(default, bool):
        shown = str(default)
    shown = "required" if option.required else shown
    return f"| {names} | {takes} | {_cell(shown)} | {_cell(option.help)} |"


def _type_of(option: Any) -> str:
    """What an option takes, in a word: `text`, `path`, `number`."""
    words = {str: "text", int: "whole number", float: "number"}
    annotation = option.type_descriptor.annotation
    [inner] = getattr(annotation, "__args__", None) or [annotation]
    word = words.get(inner, getattr(inner, "__name__", "text").lower())
    return f"{word}, several times" if option.multiple else word


def _metavar(argument: Any) -> str:
    name = (argument.metavar or argument.name).strip("{}[].").upper()
    name = f"{name}..." if argument.nargs != 1 else name
    return name if argument.required else f"[{name}]"


def _text(text: str | None) -> str:
    return inspect.cleandoc((text or "").replace("\f", "")).strip()


def _cell(text: str | None) -> str:
    """One cell of a table: no line breaks, no bars; the angle brackets and stars stay what they are."""
    found = " ".join(_text(text).split())
    for sign in ("\\", "|", "<", "*", "_", "["):
        found = found.replace(sign, f"&#{ord(sign)};")
    return found


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
