"""docs/reference/python.md says what the public interface is, word by word."""

import re
import runpy
from pathlib import Path

import pytest

import kernelwright

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "python_page.py"


@pytest.fixture(scope="module")
def written():
    return runpy.run_path(str(SCRIPT))["page"]()


def test_the_page_is_what_the_code_says(written):
    kept = (ROOT / "docs" / "reference" / "python.md").read_text(encoding="utf-8")
    assert kept == written, "run python docs/python_page.py"


@pytest.mark.parametrize(
    "name", [name for name in kernelwright.__all__ if not name.startswith("_")]
)
def test_every_public_name_has_a_section_with_a_sentence_and_a_signature_or_fields(written, name):
    section = re.split(rf"^### {name}$", written, maxsplit=1, flags=re.MULTILINE)[1].partition(
        "\n### "
    )[0]
    assert re.search(r"[a-z]{3,}.*\.", section)
    assert "```python" in section or "| field | type | meaning |" in section


def test_nothing_is_left_to_whoever_builds_the_site(written):
    assert not re.search(r"^:::", written, re.MULTILINE)
    assert " at 0x" not in written
