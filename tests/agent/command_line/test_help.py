"""What `--help` says of every command: each option is explained, and nothing of the explanation is lost on the way
to the terminal.
"""

import pytest
import typer
from rich.text import Text

from kernelwright.agent.cli import app
from kernelwright.rl.cli import build


def commands(command, path):
    if hasattr(command, "commands"):
        for name, under in command.commands.items():
            yield from commands(under, (*path, name))
    else:
        yield path, command


EVERY = [*commands(typer.main.get_command(app), ("agent",)), *commands(typer.main.get_command(build()), ("rl",))]


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[" ".join(path) for path, _ in EVERY])
def test_every_option_is_explained_and_no_word_is_taken_for_markup(path, command):
    texts = {param.name: getattr(param, "help", None) for param in command.params}
    for name, text in texts.items():
        assert text, f"{name} says nothing"
        assert Text.from_markup(text).plain == text


def test_every_command_is_looked_at():
    names = {" ".join(path) for path, _ in EVERY}
    assert {"agent solve", "agent batch", "rl train", "rl loop", "rl data clean"} <= names
