"""The fixed parts of the viewer's screen: the style sheet, the key bindings, the heading line and
the line of hints.
"""

from __future__ import annotations

from rich.text import Text
from textual.binding import Binding

from kernelwright.agent.reporting.viewed_trajectory import verdict_words
from kernelwright.agent.reporting.words import BAD, GOOD, LABEL, QUIET, WARN, quoted_text
from kernelwright.agent.viewing.viewer.position import ViewerPosition
from kernelwright.agent.viewing.viewer.views import View
from kernelwright.store.records import SearchHit

MIN_TERMINAL_SIZE = (50, 10)
"""Smallest size of the terminal in columns and lines."""
NARROW_COLUMNS = 90
"""Largest width in columns at which the lineage is hidden."""

MAX_DIALOG_COLUMNS = 110
"""Maximum width of a dialog, in columns."""

STYLE = """
#heading, #status { height: 1; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis; }
#heading { background: $panel; }
#lineage { width: 32; border-right: solid $panel; padding: 0 1 0 0; }
#body { padding: 0 1; }
Pager { scrollbar-gutter: stable; scrollbar-size-vertical: 1; overflow-x: hidden; overflow-y: auto; }
#small { display: none; }
.small #heading, .small #status, .small #middle { display: none; }
.small #small { display: block; }
.narrow #lineage { display: none; }
LineDialog, ChoiceDialog, HelpDialog { align: center middle; }
.dialog { width: 100%; max-width: MAX_DIALOG_COLUMNS; margin: 0 1; height: auto; }
.dialog { border: round $primary; padding: 0 1; background: $surface; }
.tall { height: 80%; }
.tall DataTable { height: 1fr; }
""".replace("MAX_DIALOG_COLUMNS", str(MAX_DIALOG_COLUMNS))


KEYS: tuple[tuple[str, str, str, str], ...] = (
    ("h,left", "step(-1)", "h, left", "previous turn"),
    ("l,right", "step(1)", "l, right", "next turn"),
    ("0,home", "end(0)", "0", "first turn"),
    ("dollar_sign,end", "end(-1)", "$", "last turn"),
    ("j,down", "scroll(1)", "j, down", "scroll down"),
    ("k,up", "scroll(-1)", "k, up", "scroll up"),
    ("space,pagedown", "page(1)", "space", "a page down"),
    ("b,pageup", "page(-1)", "b", "a page up"),
    ("g", "top", "g", "to the top"),
    ("G", "bottom", "G", "to the bottom"),
    ("H", "trajectory(-1)", "H", "previous trajectory"),
    ("L", "trajectory(1)", "L", "next trajectory"),
    ("v,escape", "view('turn')", "v, esc", "verdict and answer"),
    ("p", "view('prompt')", "p", "the prompt as it was sent"),
    ("c", "view('code')", "c", "code"),
    ("d", "view('diff')", "d", "diff to the parent"),
    ("o", "view('ptx')", "o", "PTX, compiled again offline"),
    ("f", "filter", "f", "filter: fault:mismatch, action:repair, correct ..."),
    ("slash", "search", "/", "search this text; a second / searches the whole database"),
    ("n", "again(1)", "n", "next match"),
    ("N", "again(-1)", "N", "previous match"),
    ("t", "list", "t", "list of trajectories"),
    ("x", "export", "x", "export the kernel to a file"),
    ("r", "refresh", "r", "read the database again"),
    ("F", "follow", "F", "follow what a batch writes"),
    ("question_mark", "help", "?", "this help"),
    ("q,ctrl+c", "quit", "q", "quit"),
)
"""Each binding's keys, its action, the spelling of the key in the help, and its description."""
BINDINGS: list[Binding | tuple[str, str] | tuple[str, str, str]] = [
    Binding(keys, action, text, key_display=written) for keys, action, written, text in KEYS
]
HINTS = (
    "? help", "q quit", "h l turn", "H L trajectory", "c code", "d diff", "p prompt", "t list", "f filter", "/ search",
    "o PTX", "x export",
)  # fmt: skip
"""The keys that a newcomer needs come first: a narrow terminal has no room for the last."""


FOUND_HEADINGS = ("trajectory", "turn", "problem", "verdict", "where")


def heading(position: ViewerPosition, view: View, following: bool) -> Text:
    """Formats the heading: `3 fused_softmax  turn 2 of 5 repair  mismatch  [diff]  stopped:
    turns`.
    """
    row, viewed = position.viewed.row, position.viewed
    parts: list[Text] = [
        Text.assemble((str(row.id), LABEL), " ", quoted_text(row.problem, "bold", 60))
    ]
    if (entry := position.entry) is not None:
        verdict, correct = verdict_words(entry)
        last = viewed.entries[-1].candidate.turn + 1
        parts.append(
            Text(f"turn {entry.candidate.turn + 1} of {last}, {entry.candidate.action.value}")
        )
        parts.append(Text(verdict, GOOD if correct else BAD))
    if view is not View.TURN:
        parts.append(Text(f"[{view.value}]", LABEL))
    if position.filtered:
        parts.append(Text(f"[filter: {len(viewed.fitting)} of {len(viewed.entries)}]", WARN))
    if following:
        parts.append(Text("[following]", WARN))
    parts.append(quoted_text(row.policy, QUIET, 60))
    parts.append(Text((row.stop_reason or "not finished").replace("_", " "), QUIET))
    line = Text("  ").join(parts)
    line.no_wrap, line.overflow = True, "ellipsis"
    return line


def hints(columns: int) -> Text:
    """Returns the bottom line: the most important keys, as many as fit into `columns`."""
    line = ""
    for hint in HINTS:
        longer = f"{line}  {hint}" if line else hint
        if len(longer) > columns:
            break
        line = longer
    return Text(line, QUIET)


def found_cells(hit: SearchHit) -> tuple[Text, ...]:
    """Writes the cells of a search hit in the order of FOUND_HEADINGS."""
    candidate, trajectory, _ = hit.entry
    verdict, correct = verdict_words(hit.entry)
    words = (str(trajectory.id), str(candidate.turn + 1), trajectory.problem)
    return (
        *(quoted_text(word, limit=40) for word in words),
        Text(verdict, GOOD if correct else BAD),
        quoted_text(hit.excerpt, QUIET, 100),
    )
