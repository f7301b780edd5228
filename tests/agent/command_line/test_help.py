"""What `--help` says of every command: each option is explained, and nothing of the explanation is lost on the way
to the terminal.
"""

import pytest
import typer
from rich.text import Text

from kernelwright.agent.cli import app
from kernelwright.agent.cli import main as agent_main
from kernelwright.agent.runtime.errors import Exit
from kernelwright.rl.cli import build, main


def commands(command, path):
    if hasattr(command, "commands"):
        for name, under in command.commands.items():
            yield from commands(under, (*path, name))
    else:
        yield path, command


EVERY = [
    *commands(typer.main.get_command(app), ("agent",)),
    *commands(typer.main.get_command(build()), ("rl",)),
]


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[" ".join(path) for path, _ in EVERY])
def test_every_option_is_explained_and_no_word_is_taken_for_markup(path, command):
    texts = {param.name: getattr(param, "help", None) for param in command.params}
    for name, text in texts.items():
        assert text, f"{name} says nothing"
        assert Text.from_markup(text).plain == text


@pytest.mark.parametrize(("path", "command"), EVERY, ids=[" ".join(path) for path, _ in EVERY])
def test_the_terminal_and_not_the_source_wraps_the_help_of_a_command(path, command):
    assert all("\n" not in paragraph for paragraph in command.help.split("\n\n"))


@pytest.mark.parametrize(
    "line", ["check --seed", "rl train --from-trajectories", "rl data clean --out"]
)
def test_an_option_without_its_value_is_told_with_the_command_whose_help_explains_it(line, capsys):
    words = line.split()
    with pytest.raises(SystemExit) as ended:
        main(words[1:]) if words[0] == "rl" else agent_main(words)
    assert ended.value.code == Exit.BAD_INPUT
    path = line.rpartition(" ")[0] if words[0] == "rl" else "agent check"
    assert capsys.readouterr().err.endswith(f"requires an argument (see {path} --help)\n")


def test_every_command_is_looked_at():
    names = {" ".join(path) for path, _ in EVERY}
    assert {"agent solve", "agent batch", "rl train", "rl loop", "rl data clean"} <= names


RL = {" ".join(path): command for path, command in EVERY if path[0] == "rl"}
ONE_MEANING = (
    "out",
    "turns",
    "samples",
    "limit",
    "db",
    "seed",
    "storage",
    "reward",
    "policy_device",
    "against",
)
"""Options that several commands of rl have: with one name, and once or many times alike, wherever they are."""


@pytest.mark.parametrize("command", ["rl train", "rl loop", "rl sft", "rl evaluate"])
def test_every_option_of_a_long_command_of_rl_stands_in_a_panel(command):
    loose = {p.name for p in RL[command].params if getattr(p, "rich_help_panel", None) is None}
    assert loose <= {"out", "policy", "online", "dry_run", "card", "as_json", "debug", "help"}
    panels = {p.rich_help_panel for p in RL[command].params if getattr(p, "rich_help_panel", None)}
    assert len(panels) >= 3


@pytest.mark.parametrize("name", ONE_MEANING)
def test_an_option_has_one_name_and_form_in_every_command_of_rl(name):
    found = [
        p
        for command in RL.values()
        for p in command.params
        if p.name == name and p.opts[0].startswith("--")
    ]
    assert found
    assert len({(p.opts[0], p.metavar, p.multiple) for p in found}) == 1


def test_no_command_of_rl_takes_a_folder_or_a_seed_under_another_name():
    spelled = {option for command in RL.values() for p in command.params for option in p.opts}
    assert not spelled & {"--output", "--prompts", "--formula", "--weights", "--size"}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("train --prompts 4", "--prompts is now called --problems-per-step"),
        ("loop --samples=2 --how never", "--samples is now called --held-out-samples"),
        ("sft --base x --data y --weights int9", "--weights is now called --storage"),
        ("evaluate --suite nope --n 3", "--n is now called --limit"),
        ("rewards --formula nope --db nope.db", "--formula is now called --reward"),
        (
            "data mistakes --device nope --policy nope --out x --n 1",
            "--device is now called --policy-device",
        ),
    ],
)
def test_old_names_of_options_of_rl_work_for_a_release_and_say_the_new_ones(
    line, said, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == Exit.BAD_INPUT
    first, second = capsys.readouterr().err.splitlines()
    assert said in first
    assert "No such option" not in second
