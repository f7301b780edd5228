"""A run's report as files."""

from __future__ import annotations

from pathlib import Path

from agent.report.run_report import RunReport
from agent.report.texts import csv_text, markdown


def write_report(report: RunReport, folder: Path) -> list[Path]:
    """report.md, report.csv, report.json, report.html. Raises OSError."""
    from agent.report.page import run_page

    folder.mkdir(parents=True, exist_ok=True)
    texts = {
        "report.md": markdown(report),
        "report.csv": csv_text(report),
        "report.json": report.model_dump_json(indent=2),
        "report.html": run_page(report),
    }
    return [write_text(folder / name, text) for name, text in texts.items()]


def write_text(path: Path, text: str) -> Path:
    """Written beside and renamed, so that there is never half of it."""
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(path)
    return path
