"""What each problem of a suite cannot tell from right, and what its speed of light is."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agent.show.words import BAD, LABEL, QUIET, WARN, data, milliseconds, size
from tools.manifest import Manifest
from tools.manifest_suite import summary
from tools.peaks import Peak
from tools.roofline import roofline


def manifests_view(manifests: Sequence[Manifest], peak: Peak) -> RenderableType:
    """One line a problem, then the suite's figures. The speed of light is that of `peak`."""
    table = Table(box=None, padding=(0, 2), header_style=LABEL)
    table.add_column("problem", no_wrap=True)
    for heading in ("bytes", "operations", f"at {peak.gpu}", "eager error"):
        table.add_column(heading, justify="right", no_wrap=True)
    for heading in ("passes our judge", "passes KernelBench", "makes no difference"):
        table.add_column(heading, overflow="fold")
    for manifest in manifests:
        table.add_row(*_row(manifest, peak))
    return Group(table, Text(), *(data(line) for line in summary(list(manifests))))


def _row(manifest: Manifest, peak: Peak) -> list[Text]:
    if manifest.failure:
        return [Text(manifest.problem), *[Text("-")] * 4, data(f"not measured: {manifest.failure}", WARN)]
    work = manifest.work
    light = roofline(work, peak.bytes_per_second, peak.rates) if work else None
    error = manifest.eager_rms
    return [
        Text(manifest.problem),
        Text(size(work.bytes if work else None)),
        Text("-" if work is None or work.operations is None else f"{work.operations:.3g}"),
        Text(f"{milliseconds(light.milliseconds)} ({light.bound})" if light and light.bound else "-"),
        Text("-" if error is None else f"{error:.1e}"),
        Text(", ".join(manifest.degenerate), style=BAD),
        Text(", ".join(manifest.degenerate_kb), style=WARN),
        Text(", ".join(manifest.dead), style=QUIET),
    ]
