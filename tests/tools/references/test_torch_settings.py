"""What one problem's reference sets for all of torch holds for that problem, and for nobody else in the process."""

from __future__ import annotations

import random
from functools import partial

import numpy
import pytest
import torch

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.expected.prepared_problem import expected_outputs, prepare_problem, run_on
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.references.arithmetic import errors_of_tf32_convolutions
from kernelwright.tools.references.dry_run import measure_cost
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.references.reference import Reference
from kernelwright.tools.references.torch_settings import KeptSettings, _now, may_change_settings
from kernelwright.tools.report import TimingMethod
from kernelwright.tools.timing.reference_clock import ReferenceClock

MODEL = """
import random
import numpy
import torch
import torch.nn as nn

TOP

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        INIT
        self.scale = 2.0

    def forward(self, x):
        FORWARD
        return x * self.scale


def get_inputs():
    INPUTS
    return [torch.randn(4, 8)]


def get_init_inputs():
    return []
"""
SETTINGS = {
    "tf32": "torch.backends.cuda.matmul.allow_tf32 = True",
    "tf32 by its newer name": "torch.backends.cuda.matmul.fp32_precision = 'tf32'",
    "tf32 of everything": "torch.backends.fp32_precision = 'tf32'",
    "tf32 of convolutions": "torch.backends.cudnn.allow_tf32 = False",
    "precision of products": "torch.set_float32_matmul_precision('medium')",
    "reduced sums": "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False",
    "benchmark": "torch.backends.cudnn.benchmark = True",
    "cudnn": "torch.backends.cudnn.enabled = False",
    "attention": "torch.backends.cuda.enable_flash_sdp(False)",
    "deterministic algorithms": "torch.use_deterministic_algorithms(True, warn_only=True)",
    "default type": "torch.set_default_dtype(torch.float64)",
    "default device": "torch.set_default_device('cpu')",
    "threads": "torch.set_num_threads(3)",
    "autocast": "torch.set_autocast_enabled('cpu', True)",
    "type of autocast": "torch.set_autocast_dtype('cuda', torch.bfloat16)",
    "gradients": "torch.set_grad_enabled(False)",
}
PLACES = ("TOP", "INIT", "FORWARD", "INPUTS")


def problem(name: str, **lines: str) -> Problem:
    source = MODEL
    for place in PLACES:
        source = source.replace(place, lines.get(place, "" if place == "TOP" else "pass"))
    return Problem(name=name, source=source)


def go_through(one: Problem) -> None:
    """Everything that a verdict asks of a reference."""
    measure_cost(one, 1000)
    prepared = prepare_problem(one, "cpu", 3)
    expected_outputs(prepared, Draw.OWN, 5)


OTHER_WAYS = (
    "getattr(torch, 'set_' + 'default_dtype')(torch.float64)",
    "import helpers",
    "import torch, helpers",
    "from helpers import *",
    "torch.no_grad().__enter__()",
    "torch.inference_mode().__enter__()",
    "torch.autocast('cpu').__enter__()",
    "vars(torch)['use_' + 'det' + 'erministic_algorithms'](True)",
    "exec('x = 1')",
)


@pytest.mark.parametrize("line", [*SETTINGS.values(), *OTHER_WAYS])
def test_a_text_that_may_change_a_setting_is_known_by_its_words(line):
    assert may_change_settings(problem("sets", TOP=line).source)
    assert may_change_settings(problem("sets", FORWARD=line).source)


def test_settings_are_not_looked_at_for_a_text_that_names_none():
    assert not may_change_settings(problem("plain").source)
    assert not may_change_settings(
        "from torch import nn\nimport torch.nn.functional as F\nimport math\n" + MODEL
    )
    assert not any(
        may_change_settings(find_by_name(name).source)
        for name in ("attention", "rope", "layer_norm")
    )


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", SETTINGS)
def test_what_a_reference_sets_is_as_before_after_it(name, place):
    with KeptSettings():  # a failure of this test is none of the next
        before = _now()
        go_through(problem(name, **{place: SETTINGS[name]}))
        assert _now() == before
        assert torch.overrides._get_current_function_mode_stack() == []


@pytest.mark.parametrize("name", SETTINGS)
def test_it_holds_for_every_later_call_of_the_same_reference(name):
    reference = Reference(problem(name, TOP=SETTINGS[name]), "cpu")
    go_through(problem("another"))
    outside = _now()
    with KeptSettings():
        exec(SETTINGS[name])
        wanted = _now()
    for _ in range(2):
        with reference.settings():
            assert _now() == wanted
        assert _now() == outside


def test_a_default_type_of_float64_is_that_of_its_own_tensors_only():
    wide = prepare_problem(problem("wide", TOP="torch.set_default_dtype(torch.float64)"), "cpu", 3)
    narrow = prepare_problem(problem("narrow"), "cpu", 3)
    assert expected_outputs(wide, Draw.OWN, 5).eager[0].dtype is torch.float64
    assert expected_outputs(narrow, Draw.OWN, 5).eager[0].dtype is torch.float32
    assert expected_outputs(wide, Draw.OWN, 6).inputs[0].dtype is torch.float64


def test_a_default_device_is_that_of_its_own_tensors_only():
    elsewhere = problem(
        "elsewhere", TOP="torch.set_default_device('meta')", FORWARD="y = torch.empty(1)"
    )
    with KeptSettings():
        assert Reference(elsewhere, "cpu").inputs(1)[0].device.type == "cpu"
        assert torch.empty(1).device.type == "cpu"
        with pytest.raises(ProblemError, match="Cannot copy out of meta tensor"):
            Reference(problem("lost", INPUTS="torch.set_default_device('meta')"), "cpu").inputs(1)
        assert torch.empty(1).device.type == "cpu"


def test_a_reference_that_fails_leaves_nothing_behind():
    before = _now()
    with pytest.raises(ProblemError):
        prepare_problem(
            problem(
                "fails", TOP="torch.set_default_dtype(torch.float64)", FORWARD="raise ValueError(1)"
            ),
            "cpu",
            3,
        )
    assert _now() == before


def test_generators_stand_where_they_stood():
    torch.manual_seed(1), random.seed(1), numpy.random.seed(1)
    wanted = torch.rand(1).item(), random.random(), numpy.random.rand()
    torch.manual_seed(1), random.seed(1), numpy.random.seed(1)
    lines = (
        "torch.manual_seed(9); random.seed(9); numpy.random.seed(9); torch.rand(3); random.random()"
    )
    go_through(problem("draws", **dict.fromkeys(PLACES, lines)))
    assert (torch.rand(1).item(), random.random(), numpy.random.rand()) == wanted


def test_inputs_drawn_by_python_and_numpy_follow_the_seed():
    drawn = "return [torch.full((4, 8), random.random() + numpy.random.rand())]"
    reference = Reference(problem("of Python", INPUTS=drawn), "cpu")
    first, again, other = reference.inputs(5)[0], reference.inputs(5)[0], reference.inputs(6)[0]
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_reference_is_timed_with_its_own_settings(monkeypatch):
    from kernelwright.tools.timing import reference_clock

    reference = Reference(problem("timed", TOP="torch.set_default_dtype(torch.float64)"), "cpu")
    seen = []
    monkeypatch.setattr(reference_clock, "host_time", lambda call: call() and 1.0)
    monkeypatch.setattr(
        reference_clock, "timed_block", lambda calls, *_: [[c() and 1.0 for c in calls]]
    )
    clock = ReferenceClock(
        lambda: seen.append(torch.get_default_dtype()) or 1.0, [[]], settings=reference.settings
    )
    clock.why = "no GPU here"
    clock.open(TimingMethod.QUEUED)
    clock.block(2)
    assert seen == [torch.float64] * 3
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.parametrize(
    ("line", "excused"), [("", True), ("torch.backends.cudnn.allow_tf32 = False", False)]
)
def test_a_reference_that_forbids_tf32_is_not_compared_by_its_error(line, excused):
    convolved = "return torch.nn.functional.conv1d(x[:, None], torch.ones(1, 1, 3) / 3)"
    one = prepare_problem(problem("convolves", TOP=line, FORWARD=convolved), "cpu", 3)
    drawn = expected_outputs(one, Draw.OWN, 5)
    run = partial(run_on, one, drawn, drawn.weights, drawn.inputs)
    assert (errors_of_tf32_convolutions(run, drawn.exact) is not None) == excused
