"""Reads candidate files: Python, or Markdown with the program in code blocks."""

from __future__ import annotations

from pathlib import Path

from kernelwright.errors import InputError
from kernelwright.tools.markdown.fenced_code import extract_code

MAX_CANDIDATE_BYTES = 2 * 2**20
"""Maximum size of a candidate file in bytes."""


def read_candidate(path: Path) -> str:
    """Returns the text of a candidate file; for Markdown or a saved reply, the program in its
    code blocks.
    """
    if path.is_dir():
        raise InputError(f"{path} is a folder: give a Python file with `class ModelNew`")
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_CANDIDATE_BYTES + 1)
    except FileNotFoundError:
        raise InputError(
            f"there is no file {path}: give the path of a Python file with `class ModelNew`"
        ) from None
    except PermissionError:
        raise InputError(f"{path} may not be read: check its permissions") from None
    if len(raw) > MAX_CANDIDATE_BYTES:
        raise InputError(
            f"{path} has more than {MAX_CANDIDATE_BYTES:,} bytes: a candidate is one Python file of source text"
        )
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(
            f"{path} is not text in UTF-8: give a Python file with `class ModelNew`"
        ) from None
    if "\0" in text:
        raise InputError(f"{path} is not Python: it holds null bytes")
    if path.suffix == ".py":
        return text  # unchanged, also text that does not parse
    return extract_code(text) or text
