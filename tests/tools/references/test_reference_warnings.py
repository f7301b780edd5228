"""A reference that warns is heard once, at however many sizes it is loaded and run."""

import warnings

from kernelwright.tools.problem import Problem
from kernelwright.tools.references.reference import Reference

SOURCE = """
import warnings
import torch
import torch.nn as nn

ROWS = {rows}

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        warnings.warn("a model of {name} is built")

    def forward(self, x):
        warnings.warn("forward of {name} runs", RuntimeWarning)
        return torch.nn.functional.softmax(x)

def get_inputs():
    return [torch.rand(ROWS, 4)]

def get_init_inputs():
    return []
"""


def run_twice(name: str, rows: int) -> None:
    reference = Reference(Problem(name=name, source=SOURCE.format(name=name, rows=rows)), "cpu")
    model = reference.model(0)
    for seed in (1, 2):
        reference.run(model, reference.inputs(seed), seed)


def test_each_warning_of_a_reference_is_shown_once_whatever_the_size():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for rows in (3, 5, 7):
            run_twice("that_warns", rows)
    texts = [str(one.message) for one in shown]
    assert texts[0] == "a model of that_warns is built"
    assert texts[1] == "forward of that_warns runs"
    assert [text.split(" for ")[0] for text in texts[2:]] == ["Implicit dimension choice"]


def test_another_problem_is_heard_too():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        run_twice("that_warns_first", 3)
        run_twice("that_warns_second", 3)
    texts = [str(one.message) for one in shown]
    assert "forward of that_warns_second runs" in texts
    assert len(texts) == 6


def test_what_shows_warnings_is_afterwards_what_it_was():
    before = warnings.showwarning
    run_twice("that_warns_again", 3)
    assert warnings.showwarning is before
