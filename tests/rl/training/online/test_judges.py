"""What a judging process tells the one that asked: verdicts, and its troubles as they are."""

import os
import pickle
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

torch = pytest.importorskip("torch")

from kernelwright.rl.training.online.judges import TrainingJudges, _sendable  # noqa: E402
from kernelwright.rl.training.online.rounds import judge_options  # noqa: E402
from kernelwright.tools.expected.prepared_problem import DoesNotFit  # noqa: E402
from kernelwright.tools.problem import Problem  # noqa: E402
from tests.rl.novice import KERNEL, problem  # noqa: E402

ROOT = Path(__file__).parents[4]
SHORT_OF_MEMORY = """
    import traceback
    if "prepare_problem" in {frame.name for frame in traceback.extract_stack()}:
        raise torch.cuda.OutOfMemoryError("no room")
    return x * 2.0
"""
JUDGES = "kernelwright.rl.training.online.judges"


@pytest.mark.slow
def test_a_problem_without_room_is_told_as_such_and_breaks_nobody_elses_verdict():
    """Its error could not be put together again on this side: the pool broke three times, and nobody was told of
    memory.
    """
    reference = problem("double").source.replace(
        "return x * 2.0", SHORT_OF_MEMORY.strip().replace("\n    ", "\n        ")
    )
    options, kernel = judge_options("interpreted"), KERNEL.format("x * 2.0")
    with TrainingJudges("cpu", 1) as judges:
        with pytest.raises(DoesNotFit, match="short does not fit on cpu: free its memory"):
            judges.evaluate(Problem(name="short", source=reference), kernel, options)
        assert judges._barren == 0
        assert judges.evaluate(problem("double"), kernel, options).correct


def test_an_error_that_cannot_be_sent_is_told_all_the_same():
    class Bound(Exception):
        def __init__(self, one: str, other: str) -> None:
            super().__init__(f"{one} and {other}")

    told = pickle.loads(pickle.dumps(_sendable(Bound("this", "that"))))
    assert (type(told), str(told)) == (RuntimeError, "Bound: this and that")
    assert type(_sendable(ValueError("plain"))) is ValueError


def test_a_temporary_folder_with_a_long_path_is_told_of_before_anything_begins(tmp_path):
    """A socket's path has 107 bytes at most, and the fork server's lies there."""
    long = tmp_path / ("x" * 60) / ("y" * 60)
    long.mkdir(parents=True)
    began = subprocess.run(
        [sys.executable, "-c", f"from {JUDGES} import TrainingJudges; TrainingJudges('cpu', 1)"],
        cwd=ROOT, env={**os.environ, "TMPDIR": str(long)}, capture_output=True, text=True, timeout=500,
    )  # fmt: skip
    last = began.stderr.strip().splitlines()[-1]
    assert began.returncode == 1
    assert "InfrastructureError: judging processes cannot begin in " in last
    assert last.endswith("set TMPDIR to a folder with a shorter path")
    assert not list(long.glob("kernelwright-judges-*"))


ONE_VERDICT = """
from kernelwright.rl.training.online.judges import TrainingJudges
from kernelwright.rl.training.online.rounds import judge_options
from tests.rl.novice import KERNEL, problem

if __name__ == "__main__":
    with TrainingJudges("cpu", 1) as judges:
        assert judges.evaluate(problem("double"), KERNEL.format("x * 2.0"), judge_options("interpreted")).correct
"""


@pytest.mark.slow
def test_judges_leave_no_folder_behind(tmp_path):
    script = tmp_path / "verdict.py"
    script.write_text(ONE_VERDICT)
    with TemporaryDirectory(prefix="kw-") as scratch:  # short: the fork server's socket lies in it
        told = {**os.environ, "TMPDIR": scratch, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}"}
        subprocess.run([sys.executable, str(script)], check=True, env=told, timeout=500)
        assert not list(Path(scratch).glob("kernelwright-*"))
