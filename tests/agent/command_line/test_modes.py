"""Options of one mode of a command are refused in every other mode: nothing that a user gives is ignored."""

from __future__ import annotations

import pytest
from typer.main import get_command

from kernelwright.rl import cli as rl_cli
from kernelwright.rl.command_line.train import TRAIN_MODES
from kernelwright.rl.training.online.options import OnlineOptions
from kernelwright.rl.training.options import LogOptions
from tests.agent.command_in_process import agent_here


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["problems", "--out", "m.json"], "the catalogue does not use --out, only --manifest does"),
        (["problems", "softmax", "--manifest", "catalogue"], "--manifest does not use QUERY, only the catalogue does"),
        (["solve", "fused softmax", "--width", "3"], "--search serial does not use --width"),
        (["batch", "mish", "--max-gpu-seconds", "5", "--device", "cpu"], "on a CPU does not use --max-gpu-seconds"),
        (["solve", "mish", "--policy", "compiler", "--seed", "5"], "--policy compiler does not use --seed, only"),
        (["db", "stats", "--run", "first", "--limit", "3"], "db stats does not use --run and --limit, only db search"),
        (["check", "k.py", "-p", "mish", "--tritonbench", "none"], "--tritonbench goes with a problem tritonbench-t:"),
        (["check", "k.py", "-p", "kernelbench:1/1", "--input", "x=4"], "--init and --input go with a class"),
        (["solve", "fused softmax", "--kernelbench", "none"], "--kernelbench goes with a problem kernelbench:NAME"),
        (["tune", "k.py", "-p", "mish", "--kernelbench", "none"], "--kernelbench goes with a problem kernelbench:NAME"),
    ],
)  # fmt: skip
def test_an_option_that_this_use_of_a_command_ignores_is_refused(tmp_path, words, refused):
    (tmp_path / "k.py").write_text("class ModelNew: ...\n")
    done = agent_here(*words, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert refused in done.stderr
    assert len(done.stderr.splitlines()) == 1


def run_rl(capsys, *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        rl_cli.main(list(words))
    return ended.value.code, capsys.readouterr().err


@pytest.mark.parametrize("mode", ["--from-trajectories", "--online"])
def test_every_option_of_the_other_way_to_train_is_refused(capsys, mode):
    chosen = ["--online"] if mode == "--online" else ["--from-trajectories", "none.db"]
    (other,) = set(TRAIN_MODES.parameters) - {mode}
    options = {
        option.name: option for option in get_command(rl_cli.build()).commands["train"].params
    }
    refused = TRAIN_MODES.parameters[other] - {"online", "from_trajectories"}
    assert {"group", "lag", "db", "engine"} <= refused or {
        "epochs",
        "dry_run",
        "force",
        "max_age",
    } <= refused
    for name in sorted(refused):
        option = options[name]
        value = [] if option.is_flag else ["1" if name == "lag" else "16"]
        status, said = run_rl(capsys, "train", *chosen, option.opts[0], *value)
        assert (status, said) == (
            2,
            f"rl: {mode} does not use {option.opts[0]}, only {other} does: leave that out\n",
        )


def test_an_option_of_one_way_to_train_is_a_field_of_its_options_alone():
    shared = set(LogOptions.model_fields) & set(OnlineOptions.model_fields)
    assert not shared & {
        "max_age",
        "max_length",
        "epochs",
        "force",
        "filters",
        "lag",
        "group",
        "problems",
    }


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (["rewards", "--presets", "--db", "x.db"], "--presets does not use --db"),
        (
            ["rewards", "--explain", "3", "--quarantine"],
            "--explain does not use --quarantine: leave that out",
        ),
        (["rewards", "--quarantine", "--reward", "kevin"], "--quarantine does not use --reward"),
        (
            ["train", "--online", "--policy", "embedded", "--base", "x"],
            "--base does not use --policy",
        ),
        (
            ["train", "--online", "--decoupled", "--method", "rft"],
            "--decoupled goes with --method grpo",
        ),
        (
            ["loop", "--how", "log", "--lag", "1"],
            "--how log does not use --lag, only --how online does",
        ),
    ],
)
def test_an_option_that_this_use_of_an_rl_command_ignores_is_refused(capsys, words, refused):
    status, said = run_rl(capsys, *words)
    assert status == 2
    assert refused in said
