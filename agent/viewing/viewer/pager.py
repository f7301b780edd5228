"""A scrolling text of any length: rendered once at the width there is, drawn line by line."""

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
    """`show` gives it something to show, `find` a text to mark and to go to."""

    def __init__(self, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: RenderableType = Text()
        self._strips: list[Strip] = []
        self._width = 0
        self._matches: list[int] = []
        self._looked_for = ""
        self._at = -1

    @property
    def text(self) -> str:
        """The text as it is drawn."""
        return "\n".join(strip.text.rstrip() for strip in self._strips)

    @property
    def found(self) -> tuple[int, int]:
        """Returns the number of the current match from 1, and the number of matches; (0, 0) where there is none."""
        return (self._at + 1, len(self._matches)) if self._matches else (0, 0)

    def show(self, renderable: RenderableType, *, keep: bool = False) -> None:
        """Shows a text from its top, or (`keep`) from where it is."""
        self._shown, self._at = renderable, -1
        self._lay_out()
        if not keep:
            self.scroll_to(0, 0, animate=False, immediate=True)

    def on_resize(self) -> None:
        """Breaks the text into lines anew where the width has changed."""
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
        """Goes to the next line (from where it is) that holds it, round the end; upper and lower case are one.

        False where none does.
        """
        if text != self._looked_for:
            self._looked_for, self._at = text, -1
        self._mark()
        self.refresh()
        if not self._matches:
            return False
        if self._at < 0:
            here = self.scroll_offset.y
            below = (place for place, line in enumerate(self._matches) if line >= here)
            self._at = next(below, 0) if step > 0 else len(self._matches) - 1
        else:
            self._at = (self._at + step) % len(self._matches)
        line = self._matches[self._at]
        self.scroll_to(0, max(0, line - self.size.height // 3), animate=False, immediate=True)
        return True

    def _mark(self) -> None:
        wanted = self._looked_for.lower()
        lines = enumerate(self._strips)
        self._matches = (
            [place for place, strip in lines if wanted in strip.text.lower()] if wanted else []
        )
        self._at = min(self._at, len(self._matches) - 1)

    def render_line(self, y: int) -> Strip:
        """The line at row `y` of the screen, with the matches of the search marked."""
        place = y + self.scroll_offset.y
        if place >= len(self._strips):
            return Strip.blank(self.size.width, self.rich_style)
        strip = self._strips[place]
        if place in self._matches:
            current = 0 <= self._at < len(self._matches) and self._matches[self._at] == place
            strip = _marked(
                strip, self._looked_for.lower(), CURRENT_MATCH_STYLE if current else MATCH_STYLE
            )
        return (
            strip.extend_cell_length(self.size.width)
            .crop(0, self.size.width)
            .apply_style(self.rich_style)
        )


def _marked(strip: Strip, wanted: str, style: Style) -> Strip:
    """By characters found, by cells cut: a wide character before the match moves it."""
    text, parts, begin, cell = strip.text, [], 0, 0
    lowered = text.lower()
    while (place := lowered.find(wanted, begin)) >= 0:
        start = Text(text[:place]).cell_len
        stop = Text(text[: place + len(wanted)]).cell_len
        parts += [strip.crop(cell, start), _restyled(strip.crop(start, stop), style)]
        begin, cell = place + len(wanted), stop
    return Strip.join([*parts, strip.crop(cell)])


def _restyled(strip: Strip, style: Style) -> Strip:
    from rich.segment import Segment

    return Strip(Segment(text, (own or Style()) + style, control) for text, own, control in strip)
