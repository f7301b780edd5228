"""The files of `deploy/`: what they start is a command that exists, with options that exist."""

import configparser
import json
import re
import shlex
from pathlib import Path

import pytest
import typer.testing
import yaml

from kernelwright.agent.cli import app

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"


def docker_arguments():
    """The arguments of `agent serve` in the image, where compose gives none."""
    instructions = re.findall(
        r"^(ENTRYPOINT|CMD) (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE
    )
    words = {name: json.loads(value) for name, value in instructions}
    assert words["ENTRYPOINT"] == ["agent", "serve"]
    return words["CMD"]


def compose_arguments():
    return compose()["services"]["judge"]["command"]


def compose():
    return yaml.safe_load((DEPLOY / "compose.yaml").read_text())


def unit():
    parser = configparser.ConfigParser(interpolation=None)
    parser.optionxform = str
    parser.read(DEPLOY / "kernelwright-judge.service")
    return parser["Service"]


def unit_arguments():
    program, command, *arguments = shlex.split(unit()["ExecStart"])
    assert (Path(program).name, command) == ("agent", "serve")
    return arguments


@pytest.mark.parametrize("arguments", [docker_arguments, compose_arguments, unit_arguments])
def test_the_command_has_options_that_exist_and_needs_tokens(arguments):
    words = arguments()
    assert "--token-file" in words
    shown = typer.testing.CliRunner().invoke(
        app, ["serve", *words, "--help"], env={"COLUMNS": "200"}
    )
    assert shown.exit_code == 0, shown.output
    for option in (word for word in words if word.startswith("--")):
        assert option in shown.output, option


def test_the_image_is_built_from_folders_that_exist():
    sources = re.findall(r"^COPY (\S+) \S+$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert set(sources) >= {"agent", "policies", "rl", "skills", "src", "store", "tools"}
    assert all((ROOT / source).is_dir() for source in sources)


def test_the_composed_service_is_reached_through_a_proxy_of_the_machine_only():
    judge = compose()["services"]["judge"]
    assert all(port.startswith("127.0.0.1:") for port in judge["ports"])
    assert judge["gpus"] == "all"
    assert set(judge["secrets"]) == set(compose()["secrets"])


def test_the_unit_reloads_by_the_signal_that_reads_the_token_file_again():
    assert unit()["ExecReload"].split()[1] == "-HUP"
