"""The views of a turn, as rich renderables.

Text of other authors is data: no markup, no control characters.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from kernelwright.agent.reporting.trajectory_report import diff_lines
from kernelwright.agent.reporting.verdicts.failure import failure_view
from kernelwright.agent.reporting.verdicts.measurements import config_text
from kernelwright.agent.reporting.verdicts.verdict import report_view
from kernelwright.agent.reporting.viewed_trajectory import ViewedTrajectory
from kernelwright.agent.reporting.words import (
    BAD,
    GOOD,
    LABEL,
    QUIET,
    WARN,
    facts_table,
    quoted_text,
)
from kernelwright.errors import InputError
from kernelwright.policies.authors import author_of
from kernelwright.store.database import Store
from kernelwright.store.records import Turn
from kernelwright.tools.judging.assembly import Assembly, Listing

MAX_VIEW_CHARACTERS = 2_000_000
"""Maximum number of characters of a displayed text."""
WORD_WRAP_CHARACTERS = 30_000
"""Largest number of characters for which lines are broken between words."""
HIGHLIGHT_CHARACTERS = 60_000
"""Largest number of characters for which code is coloured."""
STYLE_OF_LINE_KIND = {"added": "green", "removed": "red", "quiet": LABEL, "": ""}


class View(StrEnum):
    """The views of a turn in the viewer."""

    TURN = "turn"
    """The verdict in full, and the answer."""
    PROMPT = "prompt"
    """The prompt as sent."""
    CODE = "code"
    DIFF = "diff"
    """Diff against the parent's code."""
    PTX = "ptx"


def choose_view(name: str) -> View:
    """Parses the name of a view. Raises InputError."""
    try:
        return View(name)
    except ValueError:
        raise InputError(f"--show {name!r}: choose {', '.join(View)}") from None


def view_of(view: View, store: Store, viewed: ViewedTrajectory, turn: Turn) -> RenderableType:
    """Renders every view but PTX, which needs a compiler: `assembly_view`."""
    match view:
        case View.PROMPT:
            return prompt_view(turn)
        case View.CODE:
            return code_view(turn)
        case View.DIFF:
            return diff_view(turn, None if turn.parent_id is None else store.turn(turn.parent_id))
    return turn_view(turn, viewed)


def turn_view(turn: Turn, viewed: ViewedTrajectory) -> RenderableType:
    """Renders the facts, the verdict and the answer of a turn."""
    parts: list[RenderableType] = [facts_table(turn_facts(turn, viewed)), Text()]
    if turn.report is not None:
        parts += [report_view(turn.report), Text()]
    return Group(*parts, Text("answer", style=LABEL), answer_text(turn))


def turn_facts(turn: Turn, viewed: ViewedTrajectory) -> list[tuple[str, object]]:
    """Returns the facts of a turn: candidate, policy, author, cost, time and reward."""
    completion = turn.completion
    revision = completion.revision or completion.adapter_revision if completion else None
    rewards = ", ".join(f"{name} {value:.3g}" for name, value in (turn.rewards or {}).items())
    return [
        (
            "candidate",
            f"{turn.candidate_id}, {turn.action.value}{_parent(turn, viewed)}, {turn.state.value}",
        ),
        (
            "policy",
            quoted_text(f"{completion.policy} {revision or ''}".strip(), limit=200)
            if completion
            else "",
        ),
        ("written by", author_of(completion) if completion else ""),
        ("took", _took(turn)),
        ("at", time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(turn.created))),
        ("reward", f"{rewards} ({turn.formula})" if rewards else ""),
    ]


def _parent(turn: Turn, viewed: ViewedTrajectory) -> str:
    if turn.parent_id is None or turn.parent_id not in viewed.graph:
        return ""
    parent = viewed.graph.nodes[turn.parent_id]["entry"].candidate
    origin = (
        ""
        if parent.trajectory_id == turn.trajectory_id
        else f" of trajectory {parent.trajectory_id}"
    )
    return f" of turn {parent.turn + 1}{origin}"


def _took(turn: Turn) -> str:
    completion = turn.completion
    if completion is None:
        return ""
    usage = completion.usage
    about = "about " if usage.estimated else ""
    parts = [
        f"{about}{usage.prompt_tokens:,} + {usage.completion_tokens:,} tokens",
        f"{completion.latency:.2f} s of policy",
        "" if turn.tool_seconds is None else f"{turn.tool_seconds:.2f} s of tools",
        f"{turn.gpu_seconds:.2f} s of GPU" if turn.gpu_seconds else "",
        f"${usage.dollars:.4f}" if usage.dollars else "",
    ]
    return ", ".join(part for part in parts if part)


def answer_text(turn: Turn) -> RenderableType:
    """Renders the policy's answer."""
    if turn.completion is None:
        return Text("not answered yet", style=QUIET)
    return long_text(turn.completion.text) if turn.completion.text else Text("(empty)", style=QUIET)


def long_text(text: str) -> RenderableType:
    """Renders a text of another author.

    Long texts are broken by columns and not between words, which is a hundred times as fast.
    """
    return (
        quoted_text(text, limit=MAX_VIEW_CHARACTERS)
        if len(text) <= WORD_WRAP_CHARACTERS
        else CutLines(quoted_text(text, limit=MAX_VIEW_CHARACTERS).plain)
    )


class CutLines:
    """Lines that are broken at the width of the screen, also inside words."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = 0 if options.no_wrap else max(8, options.max_width)
        for line in self._text.expandtabs(8).split("\n"):
            remainder = line
            while width and cell_len(remainder) > width:
                head = set_cell_size(remainder, width)
                yield Segment(head + "\n")
                remainder = (
                    remainder[len(head) :]
                    if remainder.startswith(head)
                    else remainder[len(head) - 1 :]
                )
            yield Segment(remainder + "\n")


def prompt_view(turn: Turn) -> RenderableType:
    """Renders the sampling, and the prompt message by message."""
    options = turn.sampling.model_dump(exclude_none=True, exclude_defaults=True)
    how = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in options.items())
    parts: list[RenderableType] = [
        Text(f"prompts {turn.prompt_version or '-'}; {how or 'default sampling'}", style=QUIET)
    ]
    for message in turn.messages:
        parts += [Text(f"--- {message.role.value}", style=LABEL), long_text(message.content)]
    return Group(*parts)


def code_view(turn: Turn) -> RenderableType:
    """Renders the code with line numbers, and marks the line that failed."""
    if not turn.source:
        return Text(
            "the answer holds no code" if turn.completion else "not answered yet", style=QUIET
        )
    failure = turn.report.failure if turn.report else None
    marked = failure.where.line if failure and failure.where else None
    lines = _coloured(quoted_text(turn.source.rstrip("\n"), limit=MAX_VIEW_CHARACTERS).plain)
    head = [] if failure is None else [failure_view(failure), Text()]
    return Group(*head, NumberedLines(lines, marked))


class NumberedLines:
    """Lines with their numbers; a long line continues below itself, not below its number."""

    def __init__(self, lines: Sequence[Text], marked: int | None) -> None:
        self._lines, self._marked = lines, marked

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        digits = len(str(len(self._lines)))
        room = max(8, options.max_width - digits - 3)
        for number, line in enumerate(self._lines, 1):
            is_marked = number == self._marked
            gutter = Text(
                f"{number:>{digits}} {'>' if is_marked else ' '} ", BAD if is_marked else QUIET
            )
            for part in line.wrap(console, room, overflow="fold") or [Text()]:
                yield Text.assemble(gutter, part, no_wrap=True, overflow="ignore")
                gutter = Text(" " * (digits + 3))


def _coloured(code: str) -> list[Text]:
    if len(code) > HIGHLIGHT_CHARACTERS:
        return [Text(line) for line in code.split("\n")]
    from rich.syntax import Syntax

    shown = Syntax(code, "python", theme="ansi_dark").highlight(code)
    shown.style = ""  # the terminal's own background
    return list(shown.split("\n", allow_blank=True))[: code.count("\n") + 1]


def diff_view(turn: Turn, parent: Turn | None) -> RenderableType:
    """Renders the differences between a turn's code and its parent's."""
    if turn.parent_id is None or parent is None:
        return Text("a draft has no parent to compare it with: look at its code", style=QUIET)
    if not turn.source or not parent.source:
        side = "this turn" if not turn.source else f"turn {parent.turn + 1}, its parent,"
        return Text(f"{side} holds no code: there is nothing to compare", style=QUIET)
    lines = diff_lines(parent.source, turn.source)
    if not lines:
        return Text(f"the same text as turn {parent.turn + 1}, its parent", style=QUIET)
    counts = Counter(kind for kind, _ in lines)
    added, removed = counts["added"], counts["removed"]
    head = Text.assemble(
        f"against turn {parent.turn + 1}: ", (f"+{added}", GOOD), " ", (f"-{removed}", BAD)
    )
    return Group(
        head, Text("\n").join(Text(line, style=STYLE_OF_LINE_KIND[kind]) for kind, line in lines)
    )


def assembly_view(assembly: Assembly) -> RenderableType:
    """Renders the assembly of a candidate's kernels, or the reason why they do not compile."""
    parts: list[RenderableType] = []
    if assembly.failure is not None:
        parts += [
            Text(f"it does not compile for {assembly.target}", style=BAD),
            failure_view(assembly.failure),
            Text(),
        ]
    if not assembly.listings and assembly.failure is None:
        parts.append(
            Text(f"nothing was compiled for {assembly.target}: no kernel is launched", style=WARN)
        )
    for listing in assembly.listings:
        parts += [_heading(listing, assembly.target), long_text(listing.text.rstrip()), Text()]
    return Group(*parts)


def _heading(listing: Listing, target: str) -> Text:
    resources = listing.resources
    facts = (
        ""
        if resources is None
        else f"  {config_text(resources)}  {resources.registers} registers, {resources.spills} bytes spilled"
    )
    return Text.assemble(
        (f"// {listing.name}", LABEL), f" for {target}", quoted_text(facts, QUIET, 400)
    )
