"""Where two calls ask for different things: the step, the argument that differs, and an address where it is one."""

from __future__ import annotations

import base64
import struct

from kernelwright.tools.tracing.pretended_gpu import fake_gpu
from kernelwright.tools.tracing.recorded import call_difference


def call(*steps):
    return {"inputs": [{"t": 0}], "steps": list(steps), "outputs": {"t": 1}}


def launch(**args):
    return {"kernel": "k", "grid": [1, 1, 1], "args": {"x": {"t": 0}, **args}, "line": 3}


def words(*numbers):
    data = base64.b64encode(struct.pack(f"<{len(numbers)}q", *numbers)).decode()
    return {"t": 1, "dtype": "int64", "shape": [len(numbers)], "data": data, "line": 2}


def test_the_argument_of_a_launch_that_differs_is_named():
    told = call_difference(call(launch(n=4, step=1)), call(launch(n=4, step=2)))
    assert told == "step 1, `step` of a launch: 2 where it was 1"


def test_the_argument_of_an_operator_that_differs_is_named():
    first, second = (
        {"op": "aten.slice.Tensor", "args": [{"t": 0}, 0, n], "kwargs": {}, "out": {"t": 1}}
        for n in (1, 3)
    )
    assert (
        call_difference(call(first), call(second))
        == "step 1, argument 2 of aten.slice.Tensor: 3 where it was 1"
    )


def test_another_grid_is_named():
    assert "the grid of a launch" in call_difference(
        call(launch()), call({**launch(), "grid": [2, 1, 1]})
    )


def test_addresses_of_tensors_are_told_from_other_numbers(monkeypatch):
    monkeypatch.setattr(fake_gpu, "_exposed_addresses", dict.fromkeys((4096, 8192)))
    assert "data_ptr()" in call_difference(call(launch(x_ptr=4096)), call(launch(x_ptr=8192)))
    assert "data_ptr()" not in call_difference(call(launch(n=4096)), call(launch(n=4097)))


def test_a_tensor_of_the_hosts_own_that_differs_is_named():
    told = call_difference(call(words(7, 1)), call(words(7, 2)))
    assert told.endswith("the values of a tensor that the host makes")
