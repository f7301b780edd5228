"""The recipe of a small training in docs/training.md: its commands are ones that the command lines know."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from typer.main import get_command

import kernelwright.agent.cli
import kernelwright.rl.cli

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
RECIPE = PAGE[PAGE.index("A small training from nothing") : PAGE.index("## Which method")]
COMMANDS = [line.strip() for line in RECIPE.splitlines() if line.startswith("    ")]
COMMAND_LINES = {"agent": kernelwright.agent.cli.app, "rl": kernelwright.rl.cli.build()}


@pytest.mark.parametrize("line", COMMANDS)
def test_every_command_of_the_recipe_has_options_that_exist(line):
    program, *words = shlex.split(line, comments=True)
    group = get_command(COMMAND_LINES[program])
    with group.make_context(program, list(words)) as context:
        name, command, rest = group.resolve_command(context, list(words))
        command.make_context(name, rest, parent=context)


def test_the_recipe_draws_groups_that_can_have_variance():
    """Several samples at a temperature over 0, of problems that the policy does not always solve."""
    assert len(COMMANDS) == 5
    assert "agent batch catalogue --samples 8 --temperature 1" in COMMANDS[0]
