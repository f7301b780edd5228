"""The dialogs and lists that the viewer opens over its text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import DataTable, Input, Static

from kernelwright.agent.reporting.words import BAD, LABEL, QUIET, quoted_text
from kernelwright.agent.viewing.viewer.layout import KEYS, MAX_DIALOG_COLUMNS
from kernelwright.agent.viewing.viewer.pager import Pager
from kernelwright.errors import InputError
from kernelwright.store.connection.errors import StoreError

CLOSE_BINDING = Binding("escape,q", "close", "close")
DIALOG_FRAME_COLUMNS = 6
"""Columns of a dialog's border and padding on both sides, and of a table's scroll bar."""


class LineDialog(ModalScreen[str | None]):
    """Asks for a line of text; the result is None if the dialog is closed with escape.

    The previous text is selected, so typing replaces it. If `check` raises InputError, its
    message is shown and the dialog stays open.
    """

    BINDINGS = [Binding("escape", "close", "close")]

    def __init__(
        self,
        label: str,
        value: str = "",
        hint: str = "",
        check: Callable[[str], object] = lambda text: None,
    ) -> None:
        super().__init__()
        self._label, self._value, self._hint, self._check = label, value, hint, check

    def compose(self) -> ComposeResult:
        """Yields the widgets: the label, a line of input with the previous text selected, and a
        hint.
        """
        with Vertical(classes="dialog"):
            yield Static(Text(self._label, style=LABEL))
            yield Input(value=self._value, select_on_focus=True)
            yield Static(Text(self._hint, style=QUIET), id="refused")

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Closes with the text; if the check refuses the text, the dialog stays, with the reason
        below it.
        """
        try:
            self._check(event.value)
        except InputError as error:
            self.query_one("#refused", Static).update(quoted_text(error, BAD))
        else:
            self.dismiss(event.value)

    def action_close(self) -> None:
        """Closes without a text."""
        self.dismiss(None)


class ChoiceDialog(ModalScreen[int | None]):
    """Asks for a row of a table; the result is the row's number, or None if the dialog is closed.

    `load_more` returns the rows that follow the row of a number, and no rows at the end of the
    table. With `q_quits` the key q ends the program instead of closing the dialog.
    """

    BINDINGS = [
        Binding("escape", "close", "close"),
        Binding("q", "leave", "close or quit"),
        Binding("question_mark", "help", "help"),
        Binding("j", "move(1)", "down"),
        Binding("k", "move(-1)", "up"),
        Binding("t", "close", "close"),
    ]

    def __init__(
        self,
        title: str,
        headings: Sequence[str],
        load_more: Callable[[int | None], Sequence[tuple[int, Sequence[Text]]]],
        chosen: int | None = None,
        q_quits: bool = False,
    ) -> None:
        super().__init__()
        self._title, self._headings, self._load_more, self._chosen = (
            title,
            headings,
            load_more,
            chosen,
        )
        self._q_quits = q_quits
        self._numbers: list[int] = []

    def compose(self) -> ComposeResult:
        """Yields the widgets: a title, a table of choices, and the keys."""
        with Vertical(classes="dialog tall"):
            yield Static(Text(self._title, style=LABEL))
            yield DataTable(cursor_type="row")
            yield Static(
                Text(
                    f"enter opens  ? help  q {'quits' if self._q_quits else 'closes'}", style=QUIET
                )
            )

    def on_mount(self) -> None:
        """Fills the table with its first page, and puts the cursor on the previous choice."""
        table = self.query_one(DataTable)
        rows = self._next_rows()
        for heading, width in zip(self._headings, self._widths(rows), strict=True):
            table.add_column(heading, width=width)
        self._add(rows)
        if self._chosen in self._numbers:
            table.move_cursor(row=self._numbers.index(self._chosen))
        table.focus()

    def _next_rows(self) -> Sequence[tuple[int, Sequence[Text]]]:
        try:
            return self._load_more(self._numbers[-1] if self._numbers else None)
        except StoreError as error:
            self.query_one(Static).update(quoted_text(error, BAD))
            return ()

    def _widths(self, rows: Sequence[tuple[int, Sequence[Text]]]) -> list[int]:
        """Returns the widths of the columns, so all are visible: the widest are narrowed, at most
        to their headings.
        """
        table = self.query_one(DataTable)
        widths = [cell_len(heading) for heading in self._headings]
        for _, cells in rows:
            for column, cell in enumerate(cells):
                widths[column] = max(widths[column], cell_len(str(cell)))
        room = min(self.app.size.width - 2, MAX_DIALOG_COLUMNS) - DIALOG_FRAME_COLUMNS
        room -= 2 * table.cell_padding * len(widths)
        while sum(widths) > room:
            # The widest column that is wider than its heading loses a cell, again and again.
            widest = -1
            for column, heading in enumerate(self._headings):
                can_shrink = widths[column] > cell_len(heading)
                if can_shrink and (widest < 0 or widths[column] > widths[widest]):
                    widest = column
            if widest < 0:
                break
            widths[widest] -= 1
        return widths

    def _add(self, rows: Sequence[tuple[int, Sequence[Text]]]) -> None:
        table: DataTable[Any] = self.query_one(DataTable)
        for number, cells in rows:
            self._numbers.append(number)
            for cell in cells:
                cell.no_wrap, cell.overflow = True, "ellipsis"
            table.add_row(*cells)

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        """Loads the next page when the cursor comes to the last row."""
        if self._numbers and event.cursor_row == len(self._numbers) - 1:
            self._add(self._next_rows())

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Closes with the number of the chosen row."""
        if 0 <= event.cursor_row < len(self._numbers):
            self.dismiss(self._numbers[event.cursor_row])

    def action_move(self, by: int) -> None:
        """Moves the cursor a row down, or up if `by` is negative."""
        table = self.query_one(DataTable)
        table.action_cursor_down() if by > 0 else table.action_cursor_up()

    def action_leave(self) -> None:
        """Quits the program if this is its first screen, else closes the list."""
        if self._q_quits:
            self.app.exit()
        else:
            self.dismiss(None)

    def action_help(self) -> None:
        """Opens the list of keys."""
        self.app.push_screen(HelpDialog())

    def action_close(self) -> None:
        """Closes without a choice."""
        self.dismiss(None)


class HelpDialog(ModalScreen[None]):
    """The window with the list of keys."""

    BINDINGS = [
        CLOSE_BINDING,
        Binding("question_mark", "close", "close"),
        Binding("j,down", "scroll(1)", "down"),
        Binding("k,up", "scroll(-1)", "up"),
        Binding("space,pagedown", "page(1)", "page down"),
        Binding("b,pageup", "page(-1)", "page up"),
        Binding("g,home", "edge(-1)", "top"),
        Binding("G,end", "edge(1)", "bottom"),
    ]

    def compose(self) -> ComposeResult:
        """Yields the widgets: a title and the list of keys, which scrolls."""
        with Vertical(classes="dialog tall"):
            yield Static(Text("keys", style=LABEL))
            yield Pager(id="keys")

    def on_mount(self) -> None:
        """Writes a line for each key of the viewer."""
        lines = [Text.assemble((f"{written:<10}", "bold"), text) for _, _, written, text in KEYS]
        self.query_one(Pager).show(Text("\n").join(lines))

    def action_scroll(self, by: int) -> None:
        """Scrolls by `by` lines, up if negative."""
        self.query_one(Pager).scroll_relative(y=by, animate=False)

    def action_page(self, pages: int) -> None:
        """Scrolls by `pages` pages, up if negative."""
        pager = self.query_one(Pager)
        pager.scroll_relative(y=pages * max(1, pager.size.height - 1), animate=False)

    def action_edge(self, edge: int) -> None:
        """Scrolls to the first (-1) or the last (1) line."""
        pager = self.query_one(Pager)
        pager.scroll_home(animate=False) if edge < 0 else pager.scroll_end(animate=False)

    def action_close(self) -> None:
        """Closes the list of keys."""
        self.dismiss(None)
