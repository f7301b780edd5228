"""The candidate in a reply: one table for the policy's reader and for the plugs', which are copies of one file."""

from __future__ import annotations

import importlib.util
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.tools.markdown.fenced_code import answer_of, extract_code
from tests.tools.markdown.replies import MODEL, REPLIES, fenced

ROOT = Path(__file__).parents[3]
OURS = ROOT / "tools" / "markdown" / "fenced_code.py"
PLUGS = ROOT / "plugs" / "kernelwright-client" / "src" / "kernelwright_client"


@pytest.fixture(scope="module")
def plug() -> ModuleType:
    """The module of the plugs' client, whose package is not installed here."""
    for name in ("fenced_code", "replies"):
        spec = importlib.util.spec_from_file_location(
            f"kernelwright_client.{name}", PLUGS / f"{name}.py"
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("case", REPLIES)
def test_the_program_of_a_reply_is_taken(case):
    reply, program = REPLIES[case]
    assert extract_code(reply) == program


@pytest.mark.parametrize("case", REPLIES)
def test_the_plugs_take_the_same_program(plug, case):
    reply, program = REPLIES[case]
    assert plug.code_of(reply) == (program or f"{answer_of(reply).strip()}\n")
    assert plug.code_of(
        [{"role": "assistant", "content": [{"type": "text", "text": reply}]}]
    ) == plug.code_of(reply)


def test_the_plugs_have_a_copy_of_the_file():
    assert (PLUGS / "fenced_code.py").read_text() == OURS.read_text(), (
        f"copy {OURS} over the plugs' file"
    )


def test_every_program_that_a_reply_holds_parses_unless_it_is_cut_off():
    for case, (_, program) in REPLIES.items():
        if "cut off" not in case and "shorter fence" not in case:
            compile(program, case, "exec")


@pytest.mark.parametrize(
    "line",
    [
        "```python\n",
        "```\nx x\n",
        "````a\n```\n",
        "> " * 400 + "\n",
        " " * 900 + "```x\n",
        fenced(MODEL),
    ],
)
def test_a_reply_of_a_megabyte_of_fences_is_read_in_seconds(line):
    started = time.process_time()
    extract_code(line * ((1 << 20) // len(line)))
    assert time.process_time() - started < 20
