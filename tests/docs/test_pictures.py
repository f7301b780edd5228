"""The pictures that a script draws are those that are checked in."""

from __future__ import annotations

import json
import runpy

import pytest

from tests.docs.pages import ROOT

LOOP = runpy.run_path(str(ROOT / "docs" / "loop_picture.py"))
VERDICTS = json.loads((ROOT / "docs" / "loop_verdicts.json").read_text(encoding="utf-8"))


def test_the_picture_of_the_loop_is_what_its_script_draws():
    assert (ROOT / "docs" / "loop.svg").read_text(encoding="utf-8") == LOOP["picture"](VERDICTS)


def test_no_line_of_a_verdict_is_wider_or_lower_than_its_card():
    rows = (LOOP["CARD_HEIGHT"] - 58) // 20 + 1
    for verdict in VERDICTS:
        lines = LOOP["verdict_lines"](verdict)
        assert len(lines) <= rows
        assert max(map(len, lines)) <= LOOP["CARD_COLUMNS"]


@pytest.mark.slow
@pytest.mark.parametrize("verdict", VERDICTS, ids=lambda verdict: verdict["outcome"])
def test_the_verdicts_of_the_picture_are_those_of_today(verdict):
    today = LOOP["judged"](verdict["kernel"])
    assert (today["outcome"], bool(today["failure"])) == (verdict["outcome"], bool(verdict["failure"]))
    assert today["failure"].partition(":")[2][:30] == verdict["failure"].partition(":")[2][:30]
