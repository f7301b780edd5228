"""Advice that names an option names one that the command has which gives the advice.

Every text in the code that is no docstring is read. An option behind a command (`rl sft --data FILE`) is one of that
command; any other is one of the commands that reach the module.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.docs.test_commands import PROGRAMS, ROOT, every_option, options_of

RL = PROGRAMS["rl"].commands
AGENT = PROGRAMS["agent"]
COMMANDS_OF_ROOMS = {
    "rl/command_line/options": ("train", "loop"), "rl/command_line/show": tuple(RL), "rl": tuple(RL),
    "rl/training/sft": ("sft",), "rl/training/online": ("train", "loop"), "rl/training/averaging.py": ("average",),
    "rl/training/tokenizing.py": ("tokenizer", "sft"), "rl/training": ("train", "loop"),
    "rl/evaluating": ("evaluate",), "rl/data": ("data", "sft", "tokenizer"), "rl/log": ("train", "loop", "stats"),
    "rl/credit": ("rewards", "train", "loop"),
}  # fmt: skip
"""The commands of rl that reach a room; the longest name that fits counts. rl/command_line/NAME.py is NAME's."""
COMMANDS_OF_AGENT = frozenset({"solve", "batch"})
"""Commands of agent whose options training is told of: the log is made by them."""
OF_OTHER_PROGRAMS = frozenset(
    {
        "--config_file",
        "--force-reinstall",
        "--head",
        "--logprobs-mode",
        "--worker-extension-cls",
        "--enable-lora",
        "--max-lora-rank",
        "--model",
    }
)
"""Options of accelerate, pip, ray and vLLM's server that messages name."""
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9_-]+")
COMMAND = re.compile(r"\b(rl|agent) ([a-z]+(?:-[a-z]+)*)(?: ([a-z]+))?")
END_OF_COMMAND = re.compile(r"[`\n;)]|: |, |\. | or | and |\b(?:rl|agent) ")


def messages_of(path: Path) -> list[tuple[int, str]]:
    """Line and text of every string with several words that is no docstring; values that are put in are blanks."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr)
        for part in node.values
    }
    texts = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
            texts.append((node.lineno, "".join(map(str, parts))))
        elif (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings | inside
        ):
            texts.append((node.lineno, node.value))
    return [(line, text) for line, text in texts if " " in text]


def wrong_options(text: str, options: set[str]) -> list[str]:
    """The options in a text that nobody has, by the commands that it names and by the options of its room."""
    wrong, covered = [], set()
    for match in COMMAND.finditer(text):
        command = PROGRAMS[match[1]].commands.get(match[2])
        if command is not None and hasattr(command, "commands"):
            command = command.commands.get(match[3] or "", command)
        end = END_OF_COMMAND.search(text, match.end(2))
        for option in OPTION.finditer(text, match.end(), end.start() if end else len(text)):
            covered.add(option.start())
            if command is None or option[0] not in every_option(command) | OF_OTHER_PROGRAMS:
                wrong.append(f"{match[0]} has no {option[0]}")
    for option in OPTION.finditer(text):
        if option.start() not in covered and option[0] not in options | OF_OTHER_PROGRAMS:
            wrong.append(f"no command that says so has {option[0]}")
    return wrong


def options_of_module(path: Path) -> set[str]:
    """The options of the commands that reach a module."""
    name = str(path.relative_to(ROOT))
    if path.parts[-2] == "command_line" and path.stem.rstrip("_") in RL and name.startswith("rl/"):
        return every_option(RL[path.stem])
    if not name.startswith("rl/"):
        return every_option(AGENT) | (
            every_option(PROGRAMS["rl"]) if name.startswith("policies/") else set()
        )
    room = max((room for room in COMMANDS_OF_ROOMS if name.startswith(room)), key=len)
    own = {option for command in COMMANDS_OF_ROOMS[room] for option in every_option(RL[command])}
    return own | {
        option for name in COMMANDS_OF_AGENT for option in options_of(AGENT.commands[name])
    }


def test_advice_with_an_option_that_another_command_has_is_found():
    sft = every_option(RL["sft"])
    assert wrong_options("choose other --kinds, or a larger --longest", sft) == [
        "no command that says so has --longest"
    ]
    assert wrong_options("see `rl sft --longest 5`", sft) == ["rl sft has no --longest"]
    assert wrong_options("make it with rl tokenizer --longest 5, or give --data", sft) == []
    assert wrong_options("`rl data import rows FILE --out X` first", sft) == []


@pytest.mark.parametrize("room", ["agent", "policies", "rl"])
def test_every_option_that_a_message_names_is_one_of_the_command_that_says_so(room):
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {reason} in {text[:80]!r}"
        for path in sorted((ROOT / room).rglob("*.py"))
        for line, text in messages_of(path)
        for reason in wrong_options(text, options_of_module(path))
    ]
    assert not wrong, "\n".join(wrong)
