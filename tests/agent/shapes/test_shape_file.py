"""shapes.json is read in each of its forms, and what is wrong with it is said in one line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernelwright.agent.cli import app
from kernelwright.agent.shapes.shape_file import (
    WantedInput,
    WantedShape,
    read_dtypes,
    read_shapes,
)
from kernelwright.errors import InputError


@pytest.mark.parametrize(
    ("entry", "shape"),
    [
        ({"batch": 1, "seq": 2}, WantedShape(name="shape 1", sizes={"batch": 1, "seq": 2})),
        (
            {"name": "decode", "sizes": {"batch": 0}},
            WantedShape(name="decode", sizes={"batch": 0}),
        ),
        (
            [[2, 3], [3]],
            WantedShape(
                name="shape 1", inputs=(WantedInput(shape=(2, 3)), WantedInput(shape=(3,)))
            ),
        ),
        ([8, 64], WantedShape(name="shape 1", inputs=(WantedInput(shape=(8, 64)),))),
        (
            {"x": [1, 4], "name": "row"},
            WantedShape(name="row", named_inputs={"x": WantedInput(shape=(1, 4))}),
        ),
        (
            {"inputs": [{"shape": [4], "dtype": "bf16"}, None, {"value": 2}]},
            WantedShape(
                name="shape 1",
                inputs=(
                    WantedInput(shape=(4,), dtype="bfloat16"),
                    WantedInput(),
                    WantedInput(value=2),
                ),
            ),
        ),
    ],
)
def test_each_form_of_an_entry_is_read(entry: object, shape: WantedShape):
    assert read_shapes(json.dumps([entry])) == (shape,)


def test_an_object_names_its_entries(tmp_path: Path):
    file = tmp_path / "shapes.json"
    file.write_text('{"decode": {"seq": 1}, "prefill": {"seq": 512}}')
    assert [shape.name for shape in read_shapes(str(file))] == ["decode", "prefill"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("missing.json", "missing.json cannot be read: No such file"),
        ("[1, 2", "is no JSON: Expecting ',' delimiter at line 1: write a list of shapes"),
        ("[]", "holds 0 shapes: give 1 to 64"),
        ("[5]", "shape 1 is 5: write"),
        ('[{"batch": -1}]', "shape 1 has batch = -1: a size is a whole number from 0"),
        ('[{"batch": 1.5}]', "shape 1, batch is 1.5: write [1, 16, 64]"),
        ('[{"x": [1, "a"]}]', 'shape 1, x has the shape [1, "a"]: extents are whole numbers'),
        ('[{"x": {"shape": 4}}]', "shape 1, x has the shape 4: write a list"),
        ('[{"x": {"shape": [4], "dtype": "bf17"}}]', "shape 1, x: there is no dtype 'bf17'"),
        ('[{"x": {"value": null}}]', "shape 1, x has the value null: write a number or a text"),
        ('[{"x": {"value": 1, "dtype": "bf16"}}]', "a value beside shape or dtype: write either"),
        ('[[{"name": "x", "shape": [4]}]]', "shape 1, input 1 has name: an input has shape"),
        ('[{"x": {"size": [4]}}]', "shape 1, x has size: an input has shape, dtype or value"),
        ('[{"name": "a", "seq": 1}, {"name": "a", "seq": 2}]', "names a twice"),
        (
            '[{"sizes": {"seq": 1}, "stride": 1}]',
            "shape 1 has stride beside name, sizes and inputs",
        ),
        ('[{"name": "a\\u001bb", "seq": 1}]', "up to 60 letters"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, message: str):
    with pytest.raises(InputError) as error:
        read_shapes(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_dtypes_are_read_by_their_short_names():
    assert read_dtypes("bf16,fp16, fp32,bf16") == ("bfloat16", "float16", "float32")
    with pytest.raises(InputError, match="a module is cast to"):
        read_dtypes("int8")


@pytest.mark.parametrize("option", [["--backward"], ["--variants", "2"]])
def test_options_that_know_one_shape_alone_refuse_others_in_one_line(option: list[str]):
    outcome = CliRunner().invoke(app, ["solve", "fused softmax", *option, "--dtype", "bf16"])
    assert isinstance(outcome.exception, InputError)
    assert str(outcome.exception).startswith(f"{option[0]} goes with the problem's own shape")
