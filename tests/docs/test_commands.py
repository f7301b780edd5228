"""The documentation's commands are true: each is run as it stands or says what it needs, and every option exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import kernelwright.agent.cli
import kernelwright.rl.cli
from tests.docs.pages import (
    NEEDS,
    ROOT,
    Block,
    blocks,
    commands,
    inline_code,
    pages,
    recorded_blocks,
)

GROUPS = ("tutorials", "how-to", "others")
"""The pages of a group are followed by one reader: in order, in one folder."""
BLOCK_SECONDS = 180
"""After so long a block and all that it started are ended."""
OF_OTHER_PROGRAMS = {"--lora-modules", "--dtype"}
"""Options of vLLM's server that a page names in its text."""
PROGRAMS = {
    "agent": get_command(kernelwright.agent.cli.app),
    "rl": get_command(kernelwright.rl.cli.build()),
}


def group_of(page: Path) -> str:
    return page.parent.name if page.parent.name in GROUPS else "others"


def to_be_run(page: Path) -> list[Block]:
    """Shell blocks that no mark excuses, and the files that they read."""
    skipped = recorded_blocks().values() if page.name == "README.md" else ()
    return [
        block
        for block in blocks(page)
        if (block.language == "bash" and not block.is_marked and block.text not in skipped)
        or block.title
    ]


def resolved(words: list[str]) -> tuple[Any, str, list[str]]:
    """The command that is called, its name, and the words after it; groups of commands are followed."""
    program, *rest = words
    command, name = PROGRAMS[program], program
    while hasattr(command, "commands"):
        assert rest, f"{' '.join(words)}: which command?"
        assert rest[0] in command.commands, f"{' '.join(words)}: there is no command {rest[0]!r}"
        name, command, rest = rest[0], command.commands[rest[0]], rest[1:]
    return command, name, rest


def options_of(command: Any) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)} | {
        "--help"
    }


def unknown_options(words: list[str]) -> list[str]:
    command, _, rest = resolved(words)
    return [
        w for w in rest if w.startswith("--") and w.partition("=")[0] not in options_of(command)
    ]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_command_in_a_block_would_be_accepted(page):
    """The option names of today, values of the right type, and no argument missing. Nothing is run."""
    for block in blocks(page):
        if block.language != "bash":
            continue
        for words in commands(block.text):
            assert not unknown_options(words), f"{page.name}: {' '.join(words)}"
            command, name, rest = resolved(words)
            command.make_context(name, list(rest)).close()


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_every_option_in_the_text_exists(page):
    """An option by itself is one of some command; one behind a command is that command's."""
    known = {
        name for group in PROGRAMS.values() for name in every_option(group)
    } | OF_OTHER_PROGRAMS
    for code in inline_code(page):
        first = code.split()[0]
        if first in PROGRAMS and len(code.split()) > 1:
            words = [word.strip("[]") for word in code.split()]
            if words[1] in PROGRAMS[first].commands and any(
                word.startswith("--") for word in words
            ):
                assert not unknown_options(words), f"{page.name}: {code}"
        elif first.startswith("--"):
            assert first.partition("=")[0] in known, f"{page.name}: {code}"


def every_option(command: Any) -> set[str]:
    inner = getattr(command, "commands", None)
    return (
        options_of(command)
        if inner is None
        else {name for one in inner.values() for name in every_option(one)}
    )


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_no_command_hides_outside_of_a_marked_block(page):
    """Shell text stands in blocks called bash only, so that none is overlooked."""
    text = page.read_text(encoding="utf-8")
    assert not re.findall(
        r"^ {4}(?:agent|rl|python3?|pip|make|\.venv)\b.*",
        re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M),
        re.M,
    )
    assert not [
        one.language for one in blocks(page) if one.language in ("sh", "shell", "console", "zsh")
    ]


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_mark_says_what_is_needed(page):
    for block in blocks(page):
        if block.is_marked:
            assert re.fullmatch(re.escape(NEEDS) + r".{5,}\.", block.text.splitlines()[0]), (
                block.text
            )
        assert NEEDS not in block.text[1:], f"{page.name}: the mark is the first line of a block"


def test_the_recorded_commands_of_the_readme_are_those_that_ci_runs():
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert list(recorded_blocks()) == [1, 2]
    assert all(f"docs/record.py --print {number}" in ci for number in recorded_blocks())


def test_the_training_recipe_draws_groups_that_can_have_variance():
    """Several samples of each problem, at a temperature at which the policy that ships does not always succeed."""
    text = "".join(block.text for block in blocks(ROOT / "docs" / "how-to" / "train-from-a-log.md"))
    [collected] = [words for words in commands(text) if words[:3] == ["agent", "batch", "deep"]]
    assert int(collected[collected.index("--samples") + 1]) >= 8
    assert float(collected[collected.index("--temperature") + 1]) > 1


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
def test_the_commands_of_the_pages_run(group, tmp_path):
    reader = {
        **os.environ,
        "PATH": f"{shims(tmp_path / 'bin')}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }
    folder = tmp_path / "reader"
    folder.mkdir()
    ran = 0
    for page in (one for one in pages() if group_of(one) == group):
        for block in to_be_run(page):
            if block.title:
                (folder / block.title).write_text(block.text, encoding="utf-8")
                continue
            shell = [
                "timeout",
                "-k",
                "5",
                str(BLOCK_SECONDS),
                "bash",
                "-euo",
                "pipefail",
                "-c",
                block.text,
            ]
            done = subprocess.run(
                shell, cwd=folder, env=reader, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            assert done.returncode == 0, (
                f"{page.relative_to(ROOT)}:\n{block.text}\n{done.stdout[-3000:]}"
            )
            ran += 1
    assert ran


def shims(folder: Path) -> Path:
    """The programs as a reader calls them, with this Python and this checkout."""
    folder.mkdir()
    for name, call in {
        "agent": "-m kernelwright.agent",
        "rl": "-m kernelwright.rl",
        "python": "",
    }.items():
        path = folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" {call} "$@"\n', encoding="utf-8")
        path.chmod(0o755)
    return folder
