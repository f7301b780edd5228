"""Draws docs/inspect.svg: the viewer at a turn that was wrong, of a run that the real tools judged.

`python docs/picture.py`
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KERNEL = ROOT / "tests" / "kernels" / "good" / "fused_silu.py"
SIZE = (124, 33)
"""Columns and lines."""


def answers() -> list[str]:
    """One that does not compile, one that forgets the last three elements, one that is right."""
    right = KERNEL.read_text(encoding="utf-8").rstrip()
    broken = right.replace("tl.sigmoid(x)", "tl.sigmoidal(x)")
    wrong = right.replace("mask=mask).to", "mask=offsets < n - 3, other=0.0).to")
    return [f"Here it is.\n\n```python\n{code}\n```\n" for code in (broken, wrong, right)]


async def draw(database: Path) -> str:
    from kernelwright.agent.viewing.viewer.app import Viewer
    from kernelwright.store.database import Store

    with Store.open(database, readonly=True) as store:
        viewer = Viewer(store, 1)
        async with viewer.run_test(size=SIZE) as pilot:
            await pilot.press("l")
            await pilot.pause()
            return viewer.export_screenshot()


def run_answers(folder: Path) -> None:
    """Runs `agent solve` on the three answers in a folder, which then holds runs.db."""
    (folder / "answers.json").write_text(json.dumps({"parts": [{"answers": answers()}]}))
    line = [
        "solve",
        "fused silu",
        "--policy",
        "scripted:answers.json",
        "--device",
        "cpu",
        "--db",
        "runs.db",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(
        [sys.executable, "-m", "kernelwright.agent", *line], cwd=folder, env=environment, check=True
    )


def main() -> None:
    sys.path.insert(0, str(ROOT / "src"))
    with tempfile.TemporaryDirectory() as folder:
        run_answers(Path(folder))
        picture = asyncio.run(draw(Path(folder, "runs.db")))
    without_fonts = re.sub(
        r"\s*@font-face \{.*?\}", "", picture, flags=re.DOTALL
    )  # they would be loaded from elsewhere
    (ROOT / "docs" / "inspect.svg").write_text(without_fonts, encoding="utf-8")


if __name__ == "__main__":
    main()
