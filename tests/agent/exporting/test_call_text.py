"""The text of an operator's module: its schema, and the calls that go to the kernel."""

import pytest

from kernelwright.agent.contracts.contract import (
    Argument,
    Contract,
    FixedContract,
    ItemsContract,
    Mode,
    OpenContract,
    SizeContract,
    TensorContract,
    Weight,
)
from kernelwright.agent.exporting.call_text import call_text, only_half_dtype, writes_inputs
from kernelwright.errors import InputError


def tensor(dtype="float32", **more) -> TensorContract:
    return TensorContract(dtype=dtype, shape=("rows",), order=(0,), **more)


def test_tensors_of_containers_become_inputs_of_the_operator():
    pair = ItemsContract(kind="tuple", items=(tensor(), FixedContract(literal="None")))
    named = ItemsContract(kind="dict", keys=("mask",), items=(tensor("bool"),))
    text = call_text(
        Contract(
            inputs=(Argument(name="pair", contract=pair), Argument(name="extra", contract=named))
        )
    )
    assert text.schema == ["Tensor pair_0", "Tensor extra_mask"]
    assert text.values == ["pair[0]", "extra['mask']"]
    assert text.arguments == ["(pair_0, None)", "{'mask': extra_mask}"]
    assert "pair[1] is None" in text.conditions


def test_a_fixed_value_is_compared_and_an_integer_is_passed():
    fixed = Argument(name="scale", contract=FixedContract(literal="2.0"), default="2.0")
    count = Argument(name="count", contract=SizeContract(size="count"))
    text = call_text(Contract(inputs=(count, fixed)))
    assert text.parameters == ["count", "scale=2.0"]
    assert text.schema == ["SymInt count"]
    assert any("scale == 2.0" in condition for condition in text.conditions)


@pytest.mark.parametrize("name", ["self", "torch", "lambda", "OPERATOR", "x y"])
def test_an_argument_never_hides_a_name_of_the_module(name):
    text = call_text(Contract(inputs=(Argument(name=name, contract=tensor()),)))
    assert text.passed == ["argument_0"]
    compile(f"lambda {', '.join(text.names)}: 0", "text", "eval")


def test_a_device_cannot_be_an_input():
    device = Argument(name="device", contract=OpenContract(shown="any device"))
    with pytest.raises(InputError, match="device"):
        call_text(Contract(inputs=(device,)))


def test_a_kernel_judged_in_eval_mode_runs_in_eval_mode_only():
    assert call_text(Contract(inputs=(), mode=Mode.EVAL)).conditions == ["not self.training"]
    assert call_text(Contract(inputs=(), mode=Mode.TRAINING)).conditions == ["self.training"]
    assert call_text(Contract(inputs=(), mode=Mode.ANY)).conditions == []


def test_autocast_casts_only_where_every_float_has_one_half_dtype():
    x = Argument(name="x", contract=tensor("bfloat16"))
    weight = Weight(name="w", dtype="float32", shape=("rows",))
    assert only_half_dtype(Contract(inputs=(x,))) == "bfloat16"
    assert only_half_dtype(Contract(inputs=(x,), weights=(weight,))) == ""


def test_an_input_that_is_written_to_is_known():
    assert writes_inputs(Contract(inputs=(Argument(name="x", contract=tensor(written=True)),)))
    assert not writes_inputs(Contract(inputs=(Argument(name="x", contract=tensor()),)))
