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
    assert (today["outcome"], bool(today["failure"])) == (
        verdict["outcome"],
        bool(verdict["failure"]),
    )
    assert today["failure"].partition(":")[2][:30] == verdict["failure"].partition(":")[2][:30]


def test_every_picture_of_the_documentation_is_shown_on_a_page():
    pictures = [path.name for kind in ("svg", "png") for path in (ROOT / "docs").glob(f"*.{kind}")]
    pages = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "docs").rglob("*.md"))
    assert len(pictures) >= 4
    assert [name for name in pictures if f"{name})" not in pages] == []
