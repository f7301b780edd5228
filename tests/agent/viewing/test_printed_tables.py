"""Tables that commands print, in a terminal of 80 columns: no heading is broken and no number is cut."""

import pytest
from rich.console import Console
from rich.text import Text

from kernelwright.agent.comparison.tables import ComparisonTable
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.replay.rejudging import Replays
from kernelwright.agent.replay.replaying import ReplayResult
from kernelwright.agent.reporting.verdicts.failure import SourceExcerpt, failure_view
from kernelwright.agent.reporting.verdicts.measurements import launches_view
from kernelwright.agent.reporting.words import AdaptiveTable
from kernelwright.agent.viewing.show.listings import manifests_view, problems_view, tables_view
from kernelwright.agent.viewing.show.outcomes import replays_table
from kernelwright.tools.hardware.peaks import PEAKS
from kernelwright.tools.manifests.manifest import Manifest
from kernelwright.tools.report import Failure, Fault, LaunchTime, SourceLine

LONG = "residual_layer_norm_with_dropout_and_a_long_name"


def manifests():
    found = [
        Manifest(problem=LONG, hash="a", passing={}, eager_rms=1.25e-7),
        Manifest(problem="b", hash="b"),
    ]
    return manifests_view(found, PEAKS[0])


def replays():
    replayed = ReplayResult(
        trajectory_id=1234, problem=LONG, policy="p", forked_from_id=None, stop_reason="out_of_tokens", message="",
        turns=(), unjudged=0, best_candidate_id=None,
    )  # fmt: skip
    return replays_table(Replays(trajectories=(replayed,), executed=False))


def compared():
    head = ("", *(f"night-of-the-long-benchmark {n}" for n in range(4)))
    rows = (("turns to the first correct", *["12 (+3)"] * 4),)
    return tables_view([ComparisonTable(title="trajectories", head=head, rows=rows)])


TABLES = {
    "problems": (
        lambda: problems_view([find_by_name("fused_silu")]),
        ("problem", "family", "what"),
    ),
    "manifests": (manifests, (LONG, "eager error", "1.2e-07")),
    "replays": (replays, (LONG, "verdicts that differ", "1234", "out of tokens")),
    "comparison": (compared, ("benchmark", "correct", "12 (+3)")),
    "launches": (
        lambda: launches_view(
            (LaunchTime(kernel=LONG, grid=(65535, 65535, 64), ms=1.5, share=0.5),)
        ),
        ("launch", "grid", "time", "share", "1.5 ms"),
    ),
}


def printed(view, columns: int = 80) -> str:
    console = Console(width=columns, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(view)
    return capture.get()


@pytest.mark.parametrize("name", sorted(TABLES))
def test_a_table_of_80_columns_keeps_its_headings_and_numbers_whole(name):
    view, wanted = TABLES[name]
    shown = printed(view())
    assert [part for part in wanted if part not in shown] == [], shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_table_becomes_records_only_where_a_column_would_be_too_narrow_to_read():
    rows = [[Text("softmax"), Text("0.25"), Text("the row fits into the registers of one block")]]
    table = AdaptiveTable(("kernel", "weight", "why"), rows, numeric=("weight",), wrapped=("why",))
    wide, narrow, records = printed(table, 90), printed(table, 40), printed(table, 30)
    assert wide.splitlines()[0].split() == ["kernel", "weight", "why"]
    assert len(wide.splitlines()) == 2
    assert len(narrow.splitlines()) > 2
    assert narrow.splitlines()[0].split() == ["kernel", "weight", "why"]
    assert records.splitlines()[0].strip() == "softmax"
    assert "weight 0.25" in records


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize("word", ["masked", "frobnicate", "late"])
def test_the_caret_stands_under_its_word_however_wide_the_line_is(columns, word):
    """A line that is wrapped would have its caret under another line's text."""
    text = "    masked = tl.load(x + offsets, mask=offsets < n) * 2.0 + tl.frobnicate(x + offsets) + tl.exp(late)"
    where = SourceLine(line=1234, column=text.index(word), text=text)
    shown = printed(
        failure_view(Failure(fault=Fault.COMPILE, message="no such function", where=where)), columns
    )
    line, caret = shown.splitlines()[1:3]
    assert max(len(line), len(caret)) <= columns
    assert line.startswith("  1234 | ")
    assert line[caret.index("^") :].startswith(word)
    assert ("…" in line) == (len(text) + 9 > columns)


def test_a_caret_behind_the_end_of_a_line_stays_on_the_screen():
    where = SourceLine(line=1, column=200, text="x = " + "y + " * 40)
    line, caret = printed(SourceExcerpt(where)).splitlines()
    assert len(caret) <= 80
    assert "y +" in line
