"""Every form of get_inputs, get_init_inputs and signatures becomes one: lists of positional arguments."""

from __future__ import annotations

import sys
import types

import pytest
import torch

from kernelwright.agent.problems.forms_of_users.forms import complete_reference
from kernelwright.tools.problem import inner_integers, module_integers

MODEL = """
import collections
import dataclasses
import typing

import torch
from torch import nn

rows = 6
width = 8


class Model(nn.Module):
    def __init__(self, width, *, scale=1.0, offset=0.0):
        super().__init__()
        self.weight = nn.Parameter(torch.full((width,), float(scale)))
        self.offset = offset

    def forward(self, x, *, mask=None, gain=2.0):
        y = x * self.weight * gain + self.offset
        return y if mask is None else y * mask
"""
INPUTS = "def get_inputs():\n    return [torch.ones(rows, 8)]\n"
INITS = "def get_init_inputs():\n    return [8]\n"


def answer(source: str) -> list:
    """Runs the normal form: what the model gives, then what it was given."""
    module = types.ModuleType("normal_form_of_a_test")
    sys.modules[module.__name__] = module  # dataclasses look there
    exec(compile(source, "reference", "exec"), module.__dict__)
    init, inputs = module.get_init_inputs(), module.get_inputs()
    assert type(init) is list
    assert type(inputs) is list
    return [module.Model(*init)(*inputs), *inputs]


@pytest.mark.parametrize(
    ("init", "expected"),
    [
        ("return [[], {'width': 8, 'offset': 0.5}]", 2.5),
        ("return [[8], {'scale': 3.0}]", 6.0),
        ("return ([8], {'scale': 3.0})", 6.0),
        ("return ((), {'width': 8})", 2.0),
        ("return {'scale': 2.0, 'width': 8}", 4.0),
        ("return dict(width=8, offset=1.0)", 3.0),
        ("return (8,)", 2.0),
        ("return 8", 2.0),
        ("return [[8], {}]", 2.0),
        ("arguments = {'width': 8, 'scale': 4.0}\n    return arguments", 8.0),
        ("options = dict()\n    options['scale'] = 4.0\n    return [width], options", 8.0),
        ("args, kwargs = [width], {'scale': 5.0}\n    return args, kwargs", 10.0),
        ("return [[8], dict(scale=3.0, offset=1.0)]", 7.0),
        ("return list((8,))", 2.0),
    ],
)
def test_arguments_of_the_constructor_in_any_form_are_a_list(init, expected):
    made = complete_reference(f"{MODEL}\n\n{INPUTS}\n\ndef get_init_inputs():\n    {init}\n")
    out, _ = answer(made)
    assert torch.equal(out, torch.full((6, 8), expected))


@pytest.mark.parametrize(
    ("inputs", "count", "expected"),
    [
        ("return {'x': torch.ones(rows, 8), 'gain': 3.0}", 3, 3.0),
        ("return torch.ones(rows, 8)", 1, 2.0),
        ("x = torch.ones(rows, 8)\n    return x", 1, 2.0),
        ("return (torch.ones(rows, 8),)", 1, 2.0),
        ("yield torch.ones(rows, 8)", 1, 2.0),
        ("for _ in range(1):\n        yield torch.ones(rows, 8)", 1, 2.0),
        ("return (torch.ones(n, 8) for n in [rows])", 1, 2.0),
        ("return [[torch.ones(rows, 8)], {'mask': torch.zeros(8)}]", 2, 0.0),
        ("return [torch.ones(rows, 8)], {'gain': 5.0}", 3, 5.0),
        ("batch = {}\n    batch['x'] = torch.ones(rows, 8)\n    return batch", 1, 2.0),
        ("inputs = []\n    inputs.append(torch.ones(rows, 8))\n    return inputs", 1, 2.0),
        ("return tuple(torch.ones(rows, 8) for _ in range(1))", 1, 2.0),
        ("return torch.ones(rows, 8) if rows else torch.ones(8, rows)", 1, 2.0),
    ],
)
def test_inputs_in_any_form_are_a_list(inputs, count, expected):
    made = complete_reference(f"{MODEL}\n\ndef get_inputs():\n    {inputs}\n\n\n{INITS}")
    out, *given = answer(made)
    assert len(given) == count
    assert torch.equal(out, torch.full((6, 8), expected))


def test_a_list_and_a_dictionary_are_two_arguments_where_the_signature_says_so():
    text = MODEL.replace("self, x, *, mask=None, gain=2.0", "self, parts, options").replace(
        "y = x * self.weight * gain + self.offset", "mask = None; y = parts[0] * options['gain']"
    )
    text += (
        "\n\ndef get_inputs():\n    return [[torch.ones(rows, 8)], {'gain': torch.ones(8) * 7}]\n\n\n"
        + INITS
    )
    made = complete_reference(text)
    assert "return [[torch.ones(rows, 8)], {'gain': torch.ones(8) * 7}]" in made
    assert torch.equal(answer(made)[0], torch.full((6, 8), 7.0))


def test_names_that_only_kwargs_takes_are_passed_on_by_a_subclass():
    text = MODEL.replace("self, x, *, mask=None, gain=2.0", "self, x, **options").replace(
        "* gain", "* options['gain']"
    )
    text = text.replace("return y if mask is None else y * mask", "return y + options['more']")
    given = "return {'x': torch.ones(rows, 8), 'gain': 3.0, 'more': torch.ones(8)}"
    made = complete_reference(f"{text}\n\ndef get_inputs():\n    {given}\n\n\n{INITS}")
    out, *_ = answer(made)
    assert torch.equal(out, torch.full((6, 8), 4.0))
    assert inner_integers(made)["more.shape[0]"] == 8


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (
            "@dataclasses.dataclass\nclass Batch:\n    x: torch.Tensor\n    gain: float = 2.0\n",
            "Batch(x=torch.ones(rows, 8))",
        ),
        (
            "@dataclasses.dataclass\nclass Batch:\n    x: torch.Tensor\n    gain: float\n",
            "Batch(torch.ones(rows, 8), gain=2.0)",
        ),
        (
            "class Batch(typing.NamedTuple):\n    x: torch.Tensor\n    gain: float = 2.0\n",
            "Batch(torch.ones(rows, 8))",
        ),
        ("Batch = collections.namedtuple('Batch', 'x gain')\n", "Batch(torch.ones(rows, 8), 2.0)"),
        (
            "Batch = collections.namedtuple('Batch', ['x', 'gain'])\n",
            "Batch(gain=2.0, x=torch.ones(rows, 8))",
        ),
    ],
)
@pytest.mark.parametrize(
    "returned", ["return [{}]", "batch = {}\n    return [batch]", "return {{'batch': {}}}"]
)
def test_a_dataclass_and_a_named_tuple_are_given_as_dictionaries(kind, call, returned):
    text = MODEL.replace("self, x, *, mask=None, gain=2.0", "self, batch").replace(
        "x * self", "batch.x * self"
    )
    text = text.replace("* gain", "* batch.gain").replace(
        "return y if mask is None else y * mask", "return y"
    )
    body = returned.format(call)
    made = complete_reference(f"{text}\n\n{kind}\n\ndef get_inputs():\n    {body}\n\n\n{INITS}")
    out, batch = answer(made)
    assert type(batch) is dict
    assert torch.equal(out, torch.full((6, 8), 2.0))


def test_sizes_stay_names_of_the_module_and_lines_their_numbers():
    source = (
        MODEL
        + "\n\n"
        + INPUTS
        + "\n\ndef get_init_inputs():\n    return [\n        [],\n        {'width': width},\n    ]\n\n\nLAST = 1\n"
    )
    made = complete_reference(source)
    assert module_integers(made) | {"rows": 6, "width": 8} == module_integers(made)
    assert made.splitlines().index("LAST = 1") == source.splitlines().index("LAST = 1")


def test_what_has_the_normal_form_stays_as_it_is():
    source = f"{MODEL}\n\n{INPUTS}\n\n{INITS}".replace("*, ", "")
    assert complete_reference(
        source.replace("scale=1.0, offset=0.0", "scale, offset").replace("[8]", "[8, 1.0, 0.0]")
    ) == (source.replace("scale=1.0, offset=0.0", "scale, offset").replace("[8]", "[8, 1.0, 0.0]"))
