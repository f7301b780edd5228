"""Extracts the code cells of a notebook as Python text, without magics, shell commands and help
requests.
"""

from __future__ import annotations

import json
import re

from kernelwright.source_lines import LineOrigin
from kernelwright.tools.problem import ProblemError, parse

OTHER_LANGUAGES = re.compile(r"%%(?!time|timeit|capture|prun|memit)\w+")
"""Cell magics of other languages: `%%bash`, `%%html`, `%%writefile`."""
NO_PYTHON = re.compile(r"\s*([%!]|\?\w|[\w.]+\?{1,2}\s*$)")
"""Lines in IPython syntax: magics, shell commands, help requests."""


def notebook_text(content: str) -> str:
    """Returns the code of a notebook file.

    Raises ProblemError for invalid notebooks and notebooks without code.

    Invalid Python cells are omitted: a notebook also continues after an error in a cell.
    """
    try:
        cells = json.loads(content)["cells"]
        sources = [cell["source"] for cell in cells if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        raise ProblemError(
            "it is no notebook of version 4: save it anew, or export it as a .py file"
        ) from None
    texts = ["".join(source) if isinstance(source, list) else str(source) for source in sources]
    code: list[str] = []
    for number, text in enumerate(map(_python_of, texts), start=1):
        if text.strip() and _is_python(text):
            # The directive makes errors name the cell and its line.
            origin = LineOrigin(1, f"code cell {number}")
            code.append(f"{origin.directive}\n{text}")
    if not code:
        raise ProblemError(
            "the notebook has no code cell: write the module and a call of it in one"
        )
    return "\n\n".join(code) + "\n"


def _python_of(cell: str) -> str:
    if OTHER_LANGUAGES.match(cell.lstrip()):
        return ""
    return "\n".join("" if NO_PYTHON.match(line) else line for line in cell.splitlines())


def _is_python(text: str) -> bool:
    try:
        parse(text)
    except ProblemError:
        return False
    return True
