"""Reads the documentation: its pages, the blocks of code in them, and the commands in those."""

from __future__ import annotations

import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "docs" / "reference" / "command-line.md"
NEEDS = "# Needs "
"""How the first line of a block begins that no test runs: it says which hardware, key or network is needed."""

_FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_SEPARATORS = frozenset({"|", "||", "&&", ";", ">", "&"})


class Block(NamedTuple):
    """One fenced block."""

    language: str
    title: str
    """The name of the file that the reader saves it as; empty where it is none."""
    text: str

    @property
    def is_marked(self) -> bool:
        """Whether its first line says what it needs."""
        return self.text.startswith(NEEDS)


def pages() -> list[Path]:
    """The README, and every page of the site that people write, in the order of the navigation."""
    order = re.findall(
        r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE
    )
    return [ROOT / "README.md", *(p for name in order if (p := ROOT / "docs" / name) != GENERATED)]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    return [Block(*found) for found in _FENCE.findall(page.read_text(encoding="utf-8"))]


def commands(text: str) -> Iterator[list[str]]:
    """The calls of `agent` and `rl` in a shell text, each as its words."""
    for line in text.replace("\\\n", " ").splitlines():
        words = shlex.shlex(line, posix=True, punctuation_chars=True)
        words.whitespace_split = True
        call: list[str] = []
        for word in [*words, ";"]:
            if word not in _SEPARATORS:
                call.append(word)
                continue
            if call and Path(call[0]).name in ("agent", "rl"):
                yield [Path(call[0]).name, *call[1:]]
            call = []


def recorded_blocks() -> dict[int, str]:
    """The README's shell blocks that `.ci/run` runs and docs/record.py records, by the number of their mark."""
    blocks: dict[int, str] = runpy.run_path(str(ROOT / "docs" / "record.py"))["recorded_blocks"]()
    return blocks


def inline_code(page: Path) -> list[str]:
    """Every span of code in the running text and the tables of a page."""
    return _INLINE.findall(_FENCE.sub("", page.read_text(encoding="utf-8")))
