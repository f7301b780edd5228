"""Documents, scripts, messages and the cards of models name every option as it is called today."""

import re
from pathlib import Path

import pytest

from kernelwright.agent.runtime.command_class import RENAMED_IN_RL, RENAMED_OPTIONS

ROOT = Path(__file__).parents[2]
NAMES = {("agent", command): old for command, old in RENAMED_OPTIONS.items()} | {
    ("rl", command): old for command, old in RENAMED_IN_RL.items()
}
KINDS = ("*.md", "*.sh", "*.py", "Makefile", "*.yml")
ROOMS = ("agent", "bench", "docs", "plugs", "policies", "rl", "skills", "store", "tools")
RECORDS = ROOT / "bench" / "results"
"""What was printed on its day, with the command of that day."""
FILES = sorted(
    {
        path
        for room in ROOMS
        for kind in KINDS
        for path in (ROOT / room).rglob(kind)
        if RECORDS not in path.parents
    }
    | {ROOT / "README.md"}
)
ENDS = re.compile(r"[`\n;&|]|\brl |\bagent ")


def old_names_in(text: str) -> list[str]:
    """Each command with an option's old name, up to where the command ends."""
    text = text.replace("\\\n", " ")
    found = []
    for (program, command), renamed in NAMES.items():
        for begin in re.finditer(rf"\b{program} {command}\b", text):
            rest = text[begin.end() :]
            end = ENDS.search(rest)
            given = rest[: end.start() if end else len(rest)]
            found += [
                f"{program} {command} {old} is {new} today"
                for old, new in renamed.items()
                if re.search(rf"(?<![\w-]){old}(?![\w-])", given)
            ]
    return found


def test_an_old_name_is_found_where_its_command_stands():
    assert old_names_in("`rl sft --data d --output o` and `rl data cards --output o`") == [
        "rl sft --output is --out today"
    ]
    assert old_names_in("rl average a b \\\n  --output c") == ["rl average --output is --out today"]
    assert old_names_in("rl sft --out o; x --output o") == []


@pytest.mark.parametrize("room", [*ROOMS, "README.md"])
def test_no_text_names_an_option_as_it_was_called_before(room):
    own = [path for path in FILES if path.relative_to(ROOT).parts[0] == room]
    found = [
        f"{path.relative_to(ROOT)}: {old}"
        for path in own
        for old in old_names_in(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n".join(found)
