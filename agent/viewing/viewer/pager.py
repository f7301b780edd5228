"""A scrolling text of any length: rendered once at the current width, drawn line by line."""

from __future__ import annotations

import io

from rich.console import Console, RenderableType
from rich.style import Style
from rich.text import Text
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

MATCH_STYLE = Style(reverse=True)
CURRENT_MATCH_STYLE = Style(reverse=True, bold=True, color="yellow")


class Pager(ScrollView, can_focus=False):
    """A pager: `show` sets its content, `find` marks a text and scrolls to it."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: RenderableType = Text()
        self._strips: list[Strip] = []
        self._width = 0
        self._matches: list[int] = []
        self._search_text = ""
        self._current_match = -1

    @property
    def text(self) -> str:
        """The drawn text."""
        return "\n".join(strip.text.rstrip() for strip in self._strips)

    @property
    def match_position(self) -> tuple[int, int]:
        """Returns the number of the current match from 1, and the number of matches; (0, 0) if
        there is none.
        """
        return (self._current_match + 1, len(self._matches)) if self._matches else (0, 0)

    def show(self, renderable: RenderableType, *, keep: bool = False) -> None:
        """Shows a text from its top, or (`keep`) from the current position."""
        self._shown, self._current_match = renderable, -1
        self._lay_out()
        if not keep:
            self.scroll_to(0, 0, animate=False, immediate=True)

    def on_resize(self) -> None:
        """Breaks the text into lines anew if the width has changed."""
        if self.scrollable_content_region.width != self._width:
            self._lay_out()

    def _lay_out(self) -> None:
        self._width = width = self.scrollable_content_region.width
        if width < 1:
            return
        console = Console(
            width=width,
            file=io.StringIO(),
            force_terminal=True,
            color_system="truecolor",
            legacy_windows=False,
        )
        lines = console.render_lines(self._shown, console.options, pad=False)
        self._strips = [Strip(segment for segment in line if not segment.control) for line in lines]
        self._mark()
        self.virtual_size = Size(width, len(self._strips))
        self.refresh()

    def find(self, text: str, step: int = 1) -> bool:
        """Scrolls to the next line with the text (from the current position, wrapping at the
        end), ignoring case.

        Returns False if no line has the text.
        """
        if text != self._search_text:
            self._search_text, self._current_match = text, -1
        self._mark()
        self.refresh()
        if not self._matches:
            return False
        if self._current_match < 0:
            top_line = self.scroll_offset.y
            below = (index for index, line in enumerate(self._matches) if line >= top_line)
            self._current_match = next(below, 0) if step > 0 else len(self._matches) - 1
        else:
            self._current_match = (self._current_match + step) % len(self._matches)
        line = self._matches[self._current_match]
        # The match is drawn a third below the top, with some lines before it.
        self.scroll_to(0, max(0, line - self.size.height // 3), animate=False, immediate=True)
        return True

    def _mark(self) -> None:
        pattern = self._search_text.lower()
        lines = enumerate(self._strips)
        self._matches = []
        if pattern:
            self._matches = [index for index, strip in lines if pattern in strip.text.lower()]
        self._current_match = min(self._current_match, len(self._matches) - 1)

    def render_line(self, y: int) -> Strip:
        """Draws the line at row `y` of the screen, with the matches of the search marked."""
        index = y + self.scroll_offset.y
        if index >= len(self._strips):
            return Strip.blank(self.size.width, self.rich_style)
        strip = self._strips[index]
        if index in self._matches:
            current = (
                0 <= self._current_match < len(self._matches)
                and self._matches[self._current_match] == index
            )
            strip = _marked(
                strip, self._search_text.lower(), CURRENT_MATCH_STYLE if current else MATCH_STYLE
            )
        return (
            strip.extend_cell_length(self.size.width)
            .crop(0, self.size.width)
            .apply_style(self.rich_style)
        )


def _marked(strip: Strip, pattern: str, style: Style) -> Strip:
    """Marks the matches of a pattern. Matches are searched by characters and cut by cells: a wide
    character before a match moves its cells.
    """
    text, parts, begin, cell = strip.text, [], 0, 0
    lowered = text.lower()
    while (index := lowered.find(pattern, begin)) >= 0:
        start = Text(text[:index]).cell_len
        stop = Text(text[: index + len(pattern)]).cell_len
        parts += [strip.crop(cell, start), _restyled(strip.crop(start, stop), style)]
        begin, cell = index + len(pattern), stop
    return Strip.join([*parts, strip.crop(cell)])


def _restyled(strip: Strip, style: Style) -> Strip:
    from rich.segment import Segment

    return Strip(
        Segment(text, (segment_style or Style()) + style, control)
        for text, segment_style, control in strip
    )
