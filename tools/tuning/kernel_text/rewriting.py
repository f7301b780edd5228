"""Rewrites numbers of a kernel file; the remaining text stays unchanged, byte for byte."""

from __future__ import annotations

from collections.abc import Iterable

from kernelwright.tools.tuning.kernel_text.parameters import (
    Configuration,
    ParameterSpace,
    Site,
    changed_settings,
)

Edit = tuple[int, int, str]
"""First byte, byte after the last, and the replacement text."""


def rewrite(source: str, space: ParameterSpace, configuration: Configuration) -> str:
    """Returns the file with the configuration's values at their sites.

    Leaves parameters with their start value untouched. Raises KeyError for an unknown parameter.
    """
    edits: list[Edit] = []
    for name, value in changed_settings(space, configuration).items():
        edits += [
            (site.start, site.end, site.form.format(value)) for site in space.named(name).sites
        ]
    return apply_edits(source, edits)


def apply_edits(source: str, edits: Iterable[Edit]) -> str:
    """Applies every edit to the text; edits at the same position follow each other in order.

    Raises ValueError for overlapping edits.
    """
    data = source.encode("utf-8")
    pieces: list[bytes] = []
    at = 0
    for start, end, text in sorted(edits, key=lambda edit: edit[:2]):
        if start < at:
            raise ValueError(f"two changes of the text overlap at byte {start}")
        pieces += [data[at:start], text.encode("utf-8")]
        at = end
    return b"".join([*pieces, data[at:]]).decode("utf-8")


def joined_sites(*groups: Iterable[Site]) -> tuple[Site, ...]:
    """The sites of several groups, each once, in the order of the text."""
    distinct_sites = {site for group in groups for site in group}
    return tuple(sorted(distinct_sites, key=lambda site: (site.start, site.end, site.form)))
