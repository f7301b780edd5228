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
    SizeRelation,
    TensorContract,
    Weight,
)
from kernelwright.agent.exporting.call_text import (
    call_text,
    only_half_dtype,
    sizes_condition,
    writes_inputs,
)
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


def test_sizes_outside_of_the_judged_ones_do_not_hold():
    x = Argument(
        name="x", contract=TensorContract(dtype="float32", shape=("rows", "width"), order=(0, 1))
    )
    contract = Contract(
        inputs=(x,),
        run_sizes={"rows": (1, 2, 3), "width": (8,), "depth": (2,)},
        own_sizes={"rows": 4, "width": 16, "depth": 2},
        relations=(SizeRelation(text="width == 2 * rows"), SizeRelation(text="depth % 2 == 0")),
    )
    holds = eval(f"lambda sizes: {sizes_condition(contract)}")
    assert holds({"rows": 8, "width": 16})
    assert not holds({"rows": 9, "width": 16})
    assert not holds({"rows": 16, "width": 32})
