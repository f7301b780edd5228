"""The terminal viewer: draws the current turn, and turns keys into moves. It reads the store and
never writes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text
from textual.app import App, ComposeResult
from textual.containers import Horizontal
from textual.events import Resize
from textual.message import Message
from textual.widgets import Static

from kernelwright.agent.export.kernels import check_kernel, default_name, save_kernel
from kernelwright.agent.reporting.viewed_trajectory import list_trajectories, tree_lines
from kernelwright.agent.reporting.words import BAD, QUIET, WARN, number_of, quoted_text
from kernelwright.agent.viewing.viewer.assembling import (
    Assembled,
    Assembling,
    AssemblyProgress,
    AssemblyRequest,
)
from kernelwright.agent.viewing.viewer.dialogs import ChoiceDialog, HelpDialog, LineDialog
from kernelwright.agent.viewing.viewer.filtering import FILTER_EXAMPLE, parse_filter
from kernelwright.agent.viewing.viewer.layout import (
    BINDINGS,
    FOUND_HEADINGS,
    MIN_TERMINAL_SIZE,
    NARROW_COLUMNS,
    STYLE,
    found_cells,
    heading,
    hints,
)
from kernelwright.agent.viewing.viewer.pager import Pager
from kernelwright.agent.viewing.viewer.plain import HEADINGS, heading_view, lineage_facts, list_rows
from kernelwright.agent.viewing.viewer.position import ViewerPosition
from kernelwright.agent.viewing.viewer.views import View, assembly_view, view_of
from kernelwright.errors import InputError
from kernelwright.store.connection.errors import StoreError
from kernelwright.store.database import Store
from kernelwright.store.records import CandidateFilter, Turn
from kernelwright.tools.judging.assembly import Assembly

POLL_INTERVAL_SECONDS = 2.0
"""Seconds between two reads of the database while the viewer follows a run."""


class Viewer(App[None]):
    """The viewer of a stored trajectory in a terminal."""

    CSS = STYLE
    BINDINGS = list(BINDINGS)
    ENABLE_COMMAND_PALETTE = False
    TITLE = "agent inspect"

    def __init__(
        self,
        store: Store,
        trajectory_id: int,
        *,
        candidate_id: int | None = None,
        view: View | None = None,
        candidate_filter: CandidateFilter | None = None,
        listing: bool = False,
    ) -> None:
        """listing: starts with the list of trajectories. Raises StoreError if there is no such
        trajectory.
        """
        super().__init__()
        self.position = ViewerPosition(store, trajectory_id, candidate_id, candidate_filter)
        self.shown = view or View.TURN
        self.following = False
        self._store, self._listing = store, listing
        self._search_text, self._filter_text = "", ""
        self._assemblies: dict[int, Assembly | str] = {}
        self._assembling = Assembling(self._post)

    def _post(self, message: Message) -> None:
        """Posts a message from the compiling thread, while the viewer runs."""
        with suppress(RuntimeError):  # the viewer has just ended
            self.post_message(message)

    def compose(self) -> ComposeResult:
        """Yields the widgets: a heading, the lineage beside the body, a status line, and a
        message for small terminals.
        """
        yield Static(id="heading")
        with Horizontal(id="middle"):
            yield Pager(id="lineage")
            yield Pager(id="body")
        yield Static(id="status")
        yield Static(id="small")

    def on_mount(self) -> None:
        """Starts looking for new turns, and draws; opens the list if no trajectory was chosen."""
        self.set_interval(POLL_INTERVAL_SECONDS, self._look)
        self.call_after_refresh(self._draw)
        if self._listing:
            self.call_after_refresh(self._list_trajectories, q_quits=True)

    def on_unmount(self) -> None:
        """Ends the compiling process at once."""
        self._assembling.close()

    def on_resize(self, event: Resize) -> None:
        """Hides the lineage in narrow terminals; in terminals that are too small, shows the size
        needed.
        """
        width, height = event.size
        min_width, min_height = MIN_TERMINAL_SIZE
        small = width < min_width or height < min_height
        root = self.screen_stack[0]
        root.set_class(small, "small")
        root.set_class(width < NARROW_COLUMNS, "narrow")
        message = (
            f"too small: {width} by {height}, {min_width} by {min_height} are needed (q quits)"
        )
        root.query_one("#small", Static).update(message)
        self.say("")

    def _pager(self, id: str) -> Pager:
        return self.screen_stack[0].query_one(f"#{id}", Pager)

    def say(self, text: str, style: str = WARN) -> None:
        """Shows a text on the last line, until the next key."""
        shown = quoted_text(text, style, 300) if text else hints(self.size.width - 2)
        self.screen_stack[0].query_one("#status", Static).update(shown)

    def _draw(self, keep: bool = False) -> None:
        with self._showing_errors():
            self._draw_all(keep)

    def _draw_all(self, keep: bool) -> None:
        position = self.position
        turn = position.turn()
        root = self.screen_stack[0]
        root.query_one("#heading", Static).update(heading(position, self.shown, self.following))
        id = turn.candidate_id if turn else None
        lines = tree_lines(position.viewed, id)
        drawn = Text("\n").join(line for _, line in lines)
        self._pager("lineage").show(Group(drawn, Text(), lineage_facts(position.viewed)))
        at = next((index for index, (other, _) in enumerate(lines) if other == id), 0)
        tree = self._pager("lineage")
        # The displayed turn's line is kept in the middle of the lineage.
        tree.scroll_to(0, max(0, at - tree.size.height // 2), animate=False, immediate=True)
        self._pager("body").show(self._content(turn), keep=keep)

    def _content(self, turn: Turn | None) -> RenderableType:
        if turn is None:
            return Group(
                heading_view(self.position.viewed),
                Text("no turn yet: r reads again, F follows", style=QUIET),
            )
        if self.shown is not View.PTX:
            return view_of(self.shown, self._store, self.position.viewed, turn)
        assembly = self._assemblies.get(turn.candidate_id)
        if isinstance(assembly, Assembly):
            return assembly_view(assembly)
        if assembly is not None:
            return quoted_text(f"no PTX: {assembly}", BAD)
        if not turn.source:
            return Text("no PTX: this turn holds no code", style=QUIET)
        problem, target = self._store.problem(turn.trajectory_id), self.position.viewed.target
        self._assembling.ask(AssemblyRequest(turn.candidate_id, problem, turn.source, target))
        return Text(f"compiling for {target}, offline ...", style=QUIET)

    async def run_action(self, *args: Any, **named: Any) -> bool:
        """Does the action of a key; an error is shown in one line, and the viewer stays."""
        self.say("")
        with self._showing_errors():
            return await super().run_action(*args, **named)
        return True

    @contextmanager
    def _showing_errors(self) -> Iterator[None]:
        try:
            yield
        except (StoreError, InputError) as error:
            self.say(str(error), BAD)

    def _moved(self, refusal: str) -> None:
        if refusal:
            self.say(refusal)
        else:
            self._draw()

    def action_step(self, by: int) -> None:
        """Goes `by` turns forward (back if negative)."""
        self._moved(self.position.step(by))

    def action_end(self, index: int) -> None:
        """Goes to the first (0) or last (-1) turn of the trajectory."""
        self._moved(self.position.end(index))

    def action_trajectory(self, by: int) -> None:
        """Goes `by` trajectories forward, among those that fit the filter."""
        self._moved(self.position.move(by))

    def action_scroll(self, lines: int) -> None:
        """Scrolls the body by `lines` lines, up if negative."""
        self._pager("body").scroll_relative(y=lines, animate=False)

    def action_page(self, pages: int) -> None:
        """Scrolls the body by `pages` pages, each two lines shorter than the body."""
        pager = self._pager("body")
        pager.scroll_relative(y=pages * max(1, pager.size.height - 2), animate=False)

    def action_top(self) -> None:
        """Scrolls the body to its beginning."""
        self._pager("body").scroll_home(animate=False)

    def action_bottom(self) -> None:
        """Scrolls the body to its end."""
        self._pager("body").scroll_end(animate=False)

    def action_view(self, name: str) -> None:
        """Shows a view of the turn; the same key again returns to the verdict."""
        view = View(name)
        self.shown = View.TURN if view is self.shown else view
        self._draw()

    def action_refresh(self) -> None:
        """Reads the database again, and forgets the compiled assemblies."""
        changed = self.position.refresh()
        self._assemblies.clear()
        self._draw(keep=True)
        self.say("read again" if changed else "read again: nothing new")

    def action_follow(self) -> None:
        """Starts or stops following the newest turn while a run is at work."""
        self.following = not self.following
        if self.following:
            self.position.follow()
        self._draw()
        self.say("following the newest turn: F stops" if self.following else "no longer following")

    def _look(self) -> None:
        if self.following and len(self.screen_stack) == 1:
            with self._showing_errors():
                if self.position.follow():
                    self._draw()

    def action_filter(self) -> None:
        """Asks for a filter of the trajectories; a filter that nothing fits is refused and
        changes nothing.
        """

        def chosen(text: str | None) -> None:
            if text is not None:
                with self._showing_errors():
                    refusal = self.position.filter(parse_filter(text))
                    self._filter_text = self._filter_text if refusal else text.strip()
                    self._moved(refusal)

        self.push_screen(
            LineDialog("filter (nothing: all)", self._filter_text, FILTER_EXAMPLE, parse_filter),
            chosen,
        )

    def action_search(self) -> None:
        """Asks for a text to find in this turn; with a leading slash the whole database is
        searched.
        """

        def chosen(text: str | None) -> None:
            if text and text.startswith("/"):
                with self._showing_errors():
                    self._search_everything(text.lstrip("/"))
            elif text is not None:
                self._search_text = text
                self._find(1)

        self.push_screen(
            LineDialog(
                "search this text; a second / searches the whole database", self._search_text
            ),
            chosen,
        )

    def action_again(self, step: int) -> None:
        """Goes to the next (1) or previous (-1) match of the last search."""
        if self._search_text:
            self._find(step)
        else:
            self.say("nothing was searched for yet: press / and type a text")

    def _find(self, step: int) -> None:
        pager = self._pager("body")
        if pager.find(self._search_text, step):
            self.say("match {} of {}: n next, N previous".format(*pager.match_position))
        elif self._search_text:
            self.say(
                f"{self._search_text!r} is not in this text: //{self._search_text} searches the whole database"
            )

    def _search_everything(self, query: str) -> None:
        hits = {
            line.entry.candidate.id: line
            for line in self._store.search(query, self.position.candidate_filter)
        }
        if not hits:
            self.say(f"nothing in the database holds {query!r}")
            return
        rows = [(id, found_cells(line)) for id, line in hits.items()]

        def chosen(id: int | None) -> None:
            if id is not None:
                with self._showing_errors():
                    self.position.go(hits[id].entry.trajectory.id, id)
                    self._search_text = query.strip('"* ')
                    self._draw()
                    self._find(1)

        screen = ChoiceDialog(
            f"{number_of(len(rows), 'turn')} with {query!r}",
            FOUND_HEADINGS,
            lambda last: rows if last is None else (),
        )
        self.push_screen(screen, chosen)

    def action_list(self) -> None:
        """Opens the list of trajectories; q closes it and returns to this turn."""
        self._list_trajectories(q_quits=False)

    def _list_trajectories(self, q_quits: bool) -> None:
        def load_rows(last: int | None) -> Sequence[tuple[int, Sequence[Text]]]:
            rows = list_trajectories(self._store, self.position.candidate_filter, before=last)
            return [
                (row.id, cells)
                for (row, _), cells in zip(rows, list_rows(self._store, rows), strict=True)
            ]

        def chosen(id: int | None) -> None:
            if id is not None:
                with self._showing_errors():
                    self.position.go(id)
                    self._draw()

        fitting = f" that fit {self._filter_text}" if self._filter_text else ""
        current_id = self.position.viewed.row.id
        self.push_screen(
            ChoiceDialog(f"trajectories{fitting}", HEADINGS, load_rows, current_id, q_quits), chosen
        )

    def action_export(self) -> None:
        """Asks for a path and writes this turn's kernel there. Raises InputError if the turn has
        none.
        """
        turn = self.position.turn()
        if turn is None:
            raise InputError("there is no turn yet: nothing to export")
        check_kernel(turn)

        def chosen(path: str | None) -> None:
            if path is not None:
                with self._showing_errors():
                    self.say(f"written to {save_kernel(self._store, turn, path)}")

        self.push_screen(LineDialog("write the kernel to", default_name(turn)), chosen)

    def action_help(self) -> None:
        """Opens the list of keys."""
        self.push_screen(HelpDialog())

    def on_assembly_progress(self, message: AssemblyProgress) -> None:
        """Shows the progress of compiling the displayed turn."""
        if self._compiling(message.candidate_id):
            self.say(message.text, QUIET)

    def on_assembled(self, message: Assembled) -> None:
        """Stores the compiled assembly, and draws it if its turn is displayed."""
        self._assemblies[message.candidate_id] = message.result
        if self._compiling(message.candidate_id):
            self.say("")
            self._draw()

    def _compiling(self, candidate_id: int) -> bool:
        entry = self.position.entry
        return self.shown is View.PTX and entry is not None and entry.candidate.id == candidate_id
