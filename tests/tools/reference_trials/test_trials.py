"""A reference that cannot be used is named with its line, whatever it does to the process that runs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.reference_trials.trials import ReferenceTrials

FORM = """import os, sys
import torch
import torch.nn as nn
{top}
ROWS = 64
COLUMNS = 65


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}

    def forward(self, x):
        {forward}


def get_inputs():
    return {inputs}


def get_init_inputs():
    return []
"""
USUAL = {
    "top": "",
    "init": "self.layer = nn.Linear(COLUMNS, 32)",
    "forward": "return torch.relu(self.layer(x))",
    "inputs": "[torch.randn(ROWS, COLUMNS)]",
}
BROKEN = {
    "columns that do not fit": ({"init": "self.layer = nn.Linear(64, 32)"}, "in forward, line 15: RuntimeError: mat1"),
    "no return": ({"forward": "torch.relu(self.layer(x))"}, "forward returns no tensor: end it with `return`"),
    "a text": ({"forward": "return 'right'"}, "forward returns no tensor"),
    "an exit when imported": ({"top": "sys.exit()"}, "when it is imported, line 4: it ends the program (sys.exit)"),
    "an exit that says why": ({"top": "sys.exit('no GPU')"}, "line 4: it ends the program (sys.exit: no GPU)"),
    "an exit in forward": ({"forward": "sys.exit(0)"}, "in forward, line 15: it ends the program"),
    "an exit past Python": ({"top": "os._exit(0)"}, "when it is imported, line 4: it ends the program"),
    "an exception": ({"forward": "raise ValueError('not today')"}, "in forward, line 15: ValueError: not today"),
    "an attribute that is not there": ({"forward": "return self.nothing(x)"}, "in forward, line 15: AttributeError"),
    "a file that is not there": ({"init": "torch.load('weights.pt')"}, "in __init__, line 12: FileNotFoundError"),
    "a module that is not there": ({"top": "import nothing_of_that_name"}, "when it is imported, line 4: ModuleNotFou"),
    "inputs that fail": ({"inputs": "[torch.randn(-1)]"}, "in get_inputs, line 19: RuntimeError"),
    "a question": ({"top": "input('ready?')"}, "when it is imported, line 4: EOFError"),
    "a call of the GPU itself": ({"forward": "torch.cuda.synchronize(); return x"}, "make tensors on the CPU"),
    "more memory than there is": ({"forward": "torch.empty(1 << 50); return x"}, "in forward, line 15: RuntimeError"),
    "a crash": ({"init": "import ctypes; ctypes.string_at(0)"}, "in __init__, line 12: the process was killed"),
    "a death": ({"forward": "os.kill(os.getpid(), 9)"}, "the process was killed by SIGKILL"),
}  # fmt: skip
GPU_TEXTS = {
    "inputs": {"inputs": "[torch.randn(ROWS, COLUMNS, device='cuda')]"},
    "a layer": {"init": "self.layer = nn.Linear(COLUMNS, 32, device=torch.device('cuda:0'))"},
    "a moved module": {"init": "self.layer = nn.Linear(COLUMNS, 32).cuda()"},
    "a moved model": {"init": "self.layer = nn.Linear(COLUMNS, 32); self.to('cuda')"},
    "a tensor in forward": {"forward": "return self.layer(x) + torch.ones(32, device='cuda:0')"},
    "a default device": {"top": "torch.set_default_device('cuda')"},
}


def problem_with(changes: dict[str, str]) -> Problem:
    """The usual reference with other pieces of text."""
    return Problem(name="mine.py", source=FORM.format(**USUAL | changes))


@pytest.fixture(scope="module")
def trials() -> Iterator[ReferenceTrials]:
    with ReferenceTrials() as opened:
        yield opened


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_reference_is_named_with_the_line_that_is_at_fault(trials, name):
    changes, expected = BROKEN[name]
    with pytest.raises(ProblemError) as refused:
        trials.require_working(problem_with(changes))
    assert str(refused.value).startswith("the reference mine.py fails")
    assert expected in str(refused.value)


@pytest.mark.slow
def test_a_reference_that_works_is_accepted_after_one_that_killed_the_process(trials):
    with pytest.raises(ProblemError):
        trials.require_working(problem_with({"top": "os.kill(os.getpid(), 9)"}))
    trials.require_working(problem_with({}))


def test_a_reference_that_prints_is_accepted(trials):
    trials.require_working(
        problem_with({"top": "print('hello')", "forward": "print(x); return self.layer(x)"})
    )


@pytest.mark.parametrize("text", GPU_TEXTS)
def test_a_reference_written_for_a_gpu_works_on_a_cpu(trials, text):
    trials.require_working(problem_with(GPU_TEXTS[text]))


@pytest.mark.parametrize("place", ["top", "forward"])
def test_a_reference_that_loops_is_ended_and_named_with_its_line(place):
    with ReferenceTrials(seconds=1.0) as trials, pytest.raises(ProblemError) as refused:
        trials.require_working(problem_with({place: "while True: pass"}))
    where = "when it is imported, line 4" if place == "top" else "in forward, line 15"
    assert str(refused.value) == f"the reference mine.py fails {where}: it took more than 1 s"


SLOWED_DOWN = """
def slowed_down():
    import time
    begun = time.monotonic()
    while time.monotonic() < begun + 5.0:
        busy_until = time.monotonic() + 0.01
        while time.monotonic() < busy_until:
            pass
        time.sleep(0.03)
if "SLOWED_DOWN" not in os.environ:  # a trial imports its reference several times
    os.environ["SLOWED_DOWN"] = "once"
    slowed_down()
"""


@pytest.mark.slow
def test_a_reference_that_gets_a_quarter_of_a_processor_is_not_called_too_slow():
    with ReferenceTrials(seconds=3.0) as trials:
        trials.require_working(problem_with({"top": SLOWED_DOWN}))


def test_a_reference_that_sleeps_is_ended_after_its_seconds():
    with (
        ReferenceTrials(seconds=1.0) as trials,
        pytest.raises(ProblemError, match=r"it took more than 1 s"),
    ):
        trials.require_working(problem_with({"top": "import time; time.sleep(300)"}))


def test_each_reference_is_tried_once(trials, tmp_path):
    problem = problem_with({"top": f"open({str(tmp_path / 'count')!r}, 'a').write('tried ')"})
    trials.require_working(problem)
    times = (tmp_path / "count").read_text()
    trials.require_working(problem)
    assert (tmp_path / "count").read_text() == times
