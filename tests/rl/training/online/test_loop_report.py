"""The picture and the page of a loop, its progress, and the check of its folder."""

import subprocess
import sys

import pytest

from kernelwright.errors import InputError
from kernelwright.rl.training.early_checks import check_loop
from kernelwright.rl.training.online.loop_folder import Cycle, begin, refuse_other_loop
from kernelwright.rl.training.online.loop_report import write_loop_report
from kernelwright.rl.training.online.measuring import (
    HeldOutFigures,
    PolicyComparison,
    RolloutProgress,
    format_duration,
)
from kernelwright.rl.training.online.options import LoopOptions
from tests.rl.novice import write_problems


def cycle(number: int, promoted: bool) -> Cycle:
    splits = ("synth:depth", "synth:family")
    figures = {
        "samples": 8,
        "compile_rate": 1.0,
        "solved": 0.5,
        "repair_rate": None,
        "tokens": 9.0,
        "by_problem": {},
    }
    measured = tuple(
        HeldOutFigures(split=split, problems=64, pass_at_1=0.5, **figures) for split in splits
    )
    compared = tuple(
        PolicyComparison(split=split, before=0.4, after=0.5, difference=0.1, low=0.02, high=0.18)
        for split in splits
    )
    return Cycle(
        cycle=number, policy="embedded", candidate=f"transformers:loop/cycle-{number + 1:02d}", measured=measured,
        compared=compared, promoted=promoted, why="better: +10.0%", seconds=60.0,
    )  # fmt: skip


def test_a_loop_leaves_a_picture_and_a_page_that_says_every_cycle(tmp_path):
    write_loop_report(tmp_path, [])
    assert list(tmp_path.iterdir()) == []
    write_loop_report(tmp_path, [cycle(0, True), cycle(1, False)])
    assert (tmp_path / "loop.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "report.html").read_text()
    assert "2 cycles, 1 promoted" in page
    assert "+10.0 % (+2.0 to +18.0)" in page
    assert page.count("synth:family") == 2
    assert "not promoted: better: +10.0%" in page


class Standing:
    """The state of a batch, as `RolloutProgress` looks at it."""

    def __init__(self, done: int, here: int, pausing: bool = False) -> None:
        self.done, self.here, self.pausing = done, here, pausing

    @property
    def standing(self):
        return self


def test_progress_has_a_bar_a_count_over_all_splits_and_an_estimate():
    lines: list[str] = []
    progress = RolloutProgress("measuring embedded", 20, lines.append)
    progress.watch("synth:depth", Standing(0, 0))
    assert lines[-1].endswith(
        "[....................] 0 of 20 rollouts, no estimate before the first one ends"
    )
    progress.watch("synth:depth", Standing(5, 5))
    assert "on synth:depth [#####...............] 5 of 20 rollouts, about " in lines[-1]
    progress.end_split(10)
    progress.watch("synth:family", Standing(10, 10))
    assert "on synth:family [####################] 20 of 20" in lines[-1]
    progress.watch("synth:family", Standing(10, 10, pausing=True))
    assert lines[-1] == "pausing: 20 of 20 rollouts are kept, the same command goes on"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (12, "15 s"), (88, "90 s"), (100, "2 min"), (3600, "60 min"), (7200, "2.0 h")],
)
def test_a_duration_has_two_digits(seconds, text):
    assert format_duration(seconds) == text


def test_a_loop_with_other_settings_is_refused_before_a_model_is_looked_at(tmp_path):
    problems = str(write_problems(tmp_path / "toys"))
    options = LoopOptions(
        policy="transformers:/nowhere",
        output=tmp_path / "loop",
        problems=(problems,),
        db=str(tmp_path / "runs.db"),
    )
    begin(options)
    refuse_other_loop(options)
    with pytest.raises(InputError, match="holds a loop with other settings: give those again"):
        check_loop(options.model_copy(update={"group": 99}))


def test_the_check_of_a_loop_imports_no_model_library():
    code = (
        "import sys, kernelwright.rl.training.early_checks, kernelwright.rl.training.online.loop_folder\n"
        "assert not {'torch', 'transformers', 'trl'} & set(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
