"""Modules and functions as users keep them, read as problems."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest
import torch

from kernelwright.agent.problems.finding import load_suite
from kernelwright.agent.problems.forms_of_users.forms import complete_reference, is_problem
from kernelwright.agent.problems.reading import read_problem
from kernelwright.tools.problem import ProblemError, inner_integers

MODULE = """
import torch
from torch import nn


class Scale(nn.Module):
    def __init__(self, width, offset=1.0):
        super(Scale, self).__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.offset = offset

    def forward(self, x):
        return x * self.weight + self.offset
"""
MAIN = """
if __name__ == "__main__":
    device = "cuda"
    layer = Scale(48, offset=2.0).to(device)
    x = torch.randn(16, 48, device=device)
    print(layer(x).shape)
"""
FUNCTION = """
import torch


def shifted(x, shift, scale=2.0):
    return x * scale + shift


def test_shifted():
    x, shift = torch.randn(8, 5), torch.randn(5, device="cuda")
    assert shifted(x, shift).shape == x.shape
    assert shifted(x, shift, scale=3.0).shape == x.shape
"""


def answer(source: str) -> list[torch.Tensor]:
    """What the reference gives on its inputs."""
    names: dict = {"__name__": "reference"}
    exec(compile(source, "reference", "exec"), names)
    init, inputs = names["get_init_inputs"](), names["get_inputs"]()
    model = names["Model"](**init) if isinstance(init, dict) else names["Model"](*init)
    return [model(*inputs), *inputs]


def test_a_module_with_a_call_under_main_becomes_a_problem_with_its_sizes():
    made = complete_reference(MODULE + MAIN)
    out, x = answer(made)
    assert torch.equal(out, x + 2.0)
    assert "cuda" not in made
    assert 48 in inner_integers(made).values()


def test_line_numbers_stay():
    made = complete_reference(MODULE + MAIN).splitlines()
    where = MODULE.splitlines().index("        return x * self.weight + self.offset")
    assert made[where].strip() == "return x * self.weight + self.offset"


@pytest.mark.parametrize(
    "inputs",
    [
        "model = Scale(48)\nexample_inputs = (torch.randn(16, 48),)\n",
        "def get_example_inputs():\n    return torch.randn(16, 48)\n\n\nScale(48)\n",
        "model = Scale(48)\nsample_input = torch.randn(16, 48)\n",
        "width = 48\nmodel = Scale(width)\ny = model(torch.randn(16, width))\n",
        "def get_inputs():\n    return [torch.randn(16, 48)]\n\n\nmodel = Scale(width=48)\n",
        "model = Scale(48)\nwith torch.no_grad():\n    y = model(torch.randn(16, 48))\nassert y.sum() < 9e9\n",
        "model = Scale(48)\nif torch.cuda.is_available():\n    model = model.cuda()\ny = model(torch.randn(16, 48))\n",
    ],
)
def test_inputs_are_found_by_their_name_or_by_a_call(inputs):
    out, x = answer(complete_reference(MODULE + inputs))
    assert x.shape == (16, 48)
    assert torch.equal(out, x + 1.0)


@pytest.mark.parametrize(
    "call",
    [
        "layer = Scale(offset=2.0, width=48)\nlayer(x=torch.randn(16, 48))\n",
        "Scale(48, offset=2.0)(torch.randn(16, 48))\n",
        "if __name__ == '__main__':\n    print(Scale(width=48, offset=2.0).eval()(torch.randn(16, 48)).shape)\n",
    ],
)
def test_arguments_that_a_call_names_have_their_places(call):
    made = complete_reference(MODULE + call)
    out, x = answer(made)
    assert torch.equal(out, x + 2.0)
    assert inner_integers(made)["Model.width"] == 48


def test_what_is_left_out_between_two_arguments_is_its_default_and_a_star_leaves_the_signature():
    text = MODULE.replace("width, offset=1.0", "*, width, offset=1.0").replace(
        "(self, x)", "(self, x, y=None, *, z=0)"
    )
    text = (
        text.replace("x * self.weight", "x * self.weight + z")
        + "Scale(width=48)(torch.randn(16, 48), z=3.0)\n"
    )
    out, x, y, z = answer(complete_reference(text))
    assert (y, z) == (None, 3.0)
    assert torch.equal(out, x + z + 1.0)


@pytest.mark.parametrize(
    ("prepared", "training", "dtype"),
    [
        ("model = Scale(48).eval()\n", False, torch.float32),
        (
            "model = Scale(48)\nmodel.eval()\nmodel = model.to('cuda').to(torch.bfloat16)\n",
            False,
            torch.bfloat16,
        ),
        ("model = Scale(48).cuda().half()\n", True, torch.float16),
        ("model = Scale(48).to(device='cuda', dtype=torch.float64)\n", True, torch.float64),
    ],
)
def test_what_a_file_does_with_its_module_before_it_calls_it_is_done(prepared, training, dtype):
    names: dict = {"__name__": "reference"}
    exec(
        complete_reference(MODULE + prepared + "model(torch.randn(16, 48))\nmodel.double()\n"),
        names,
    )
    model = names["Model"](*names["get_init_inputs"]())
    assert (model.training, model.weight.dtype) == (training, dtype)


def test_a_function_with_a_test_becomes_a_module_without_weights():
    out, x, shift = answer(complete_reference(FUNCTION))
    assert torch.equal(out, x * 2.0 + shift)


def test_a_function_beside_get_inputs_is_the_forward():
    text = (
        FUNCTION.split("def test_")[0]
        + "def get_inputs():\n    return [torch.randn(3, 4), torch.randn(4)]\n"
    )
    out, x, shift = answer(complete_reference(text))
    assert torch.equal(out, x * 2.0 + shift)


@pytest.mark.parametrize(
    "inputs",
    ["[x, shift, 3.0]", "{'x': x, 'shift': shift, 'scale': 3.0}", "{'shift': shift, 'x': x}"],
)
def test_inputs_may_give_what_a_function_has_defaults_for(inputs):
    text = FUNCTION.split("def test_")[0] + (
        f"def get_inputs():\n    x, shift = torch.randn(3, 4), torch.randn(4)\n    return {inputs}\n"
    )
    out, x, shift, *_ = answer(complete_reference(text))
    torch.testing.assert_close(out, x * (3.0 if "3.0" in inputs else 2.0) + shift)


def test_defaults_of_the_constructor_are_sizes_that_the_judge_may_change():
    text = MODULE.replace("class Scale", "class Model").replace("super(Scale, self)", "super()")
    text = text.replace("width, offset", "width=48, offset")
    text += "\n\ndef get_inputs():\n    return [torch.randn(16, 48)]\n\n\ndef get_init_inputs():\n    return []\n"
    made = complete_reference(text)
    assert inner_integers(made)["Model.width"] == 48
    assert torch.equal(answer(made)[0], answer(made)[1] + 1.0) is False  # other draws
    out, x = answer(made)
    assert torch.equal(out, x + 1.0)


def test_what_nothing_completes_stays_as_it_is_and_says_what_to_write(tmp_path: Path):
    assert complete_reference(MODULE) == MODULE
    file = tmp_path / "scale.py"
    file.write_text(MODULE)
    with pytest.raises(ProblemError, match="rename the class Scale to Model"):
        read_problem(file)


def test_a_kernel_is_no_problem_and_a_folder_of_modules_is_a_suite(tmp_path: Path):
    kernel = MODULE.replace("Scale", "ModelNew") + MAIN.replace("Scale", "ModelNew")
    assert not is_problem(kernel)
    (tmp_path / "kernel.py").write_text(kernel)
    (tmp_path / "scale.py").write_text(MODULE + MAIN)
    (tmp_path / "shifted.py").write_text(FUNCTION)
    assert [p.name for p in load_suite(str(tmp_path))] == ["scale.py", "shifted.py"]


CONFIGURED = """
from dataclasses import dataclass

import torch


@dataclass
class Config:
    width: int = 6


class Model(torch.nn.Module):
    def __init__(self, config, activation):
        super(Model, self).__init__()
        self.lin, self.activation = torch.nn.Linear(config.width, config.width), activation

    def forward(self, x):
        return self.activation(self.lin(x))


def get_inputs():
    return [torch.randn(4, 6)]


def get_init_inputs():
    return [Config(), torch.relu]
"""


def test_objects_and_layers_that_a_constructor_is_given_are_made_by_the_model_itself():
    module: dict[str, object] = {"__name__": "configured"}
    sys.modules["configured"] = types.ModuleType("configured")  # dataclasses look there
    exec(complete_reference(CONFIGURED), module)
    assert module["get_init_inputs"]() == []  # type: ignore[operator]
    assert module["Model"]()(torch.randn(4, 6)).min() >= 0  # type: ignore[operator]
    for given in ("[6, 'relu']", "[6, torch.float32]", "[torch.ones(3), 2.0]"):
        plain = CONFIGURED.replace("[Config(), torch.relu]", given)
        assert complete_reference(plain) == plain
    for given in (
        "[6, torch.relu]",
        "[6, nn.ReLU()]",
        "[6, lambda x: x]",
        "[size, act]\nact = F.relu",
    ):
        assert "class Model(ModelOfArguments)" in complete_reference(
            CONFIGURED.replace("[Config(), torch.relu]", given)
        )


LAYERS = """
import torch
from torch import nn

wide = 12
net = nn.Sequential(nn.Linear(8, wide), nn.GELU(), nn.Linear(wide, 3)).to("cuda").double().eval()
criterion = nn.CrossEntropyLoss()
x = torch.randn(5, 8, device="cuda", dtype=torch.float64)
with torch.no_grad():
    y = net(x)
loss = criterion(y, torch.zeros(5, dtype=torch.long))
"""


def test_layers_of_torch_that_a_file_calls_are_a_problem():
    made = complete_reference(LAYERS)
    out, x = answer(made)
    assert x.shape == (5, 8)
    assert out.shape == (5, 3)
    assert out.dtype == torch.float64
    assert "cuda" not in made
    assert "criterion" not in made


def test_a_class_of_the_file_that_is_called_goes_before_layers_and_layers_may_hold_it():
    call = "x = torch.randn(16, 48, device='cuda')\n"
    out, x = answer(
        complete_reference(
            f"{MODULE}loss = nn.MSELoss()\nmodel = Scale(48)\n{call}loss(model(x), x)\n"
        )
    )
    assert torch.equal(out, x + 1.0)
    out, x = answer(
        complete_reference(
            f"{MODULE}model = nn.Sequential(Scale(48), Scale(48)).half()\n{call}model(x)\n"
        )
    )
    assert out.dtype == torch.float32
    assert torch.equal(out, x + 1.0 + 1.0)
