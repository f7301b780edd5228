"""Regions of a model: which modules become problems, and what their texts compute."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from kernelwright.agent.optimizing.capture import captured_calls, exported_module
from kernelwright.agent.optimizing.choosing import regions_below
from kernelwright.agent.optimizing.region import region_of
from kernelwright.agent.optimizing.region_text import NoRegion


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.register_buffer("shift", torch.rand(width))

    def forward(self, x, *, scale=1.0):
        return (
            self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * scale
            + self.shift
        )


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.up = Norm(width), nn.Linear(width, width)

    def forward(self, pair, unused=None):
        x, mask = pair
        return {"out": (torch.relu(self.up(self.norm(x, scale=0.5))).masked_fill(mask, 0.0), x)}


class Model(nn.Module):
    def __init__(self, width=8, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))

    def forward(self, x, mask):
        for block in self.blocks:
            x = block((x, mask), unused=x)["out"][0]
        if float(x.sum()) > 1e9:  # no graph: the whole model is no region
            x = x * 2
        return x


def example():
    torch.manual_seed(1)
    return [torch.randn(2, 5, 8), torch.rand(2, 5, 1) > 0.5]


def model_of(source: str) -> tuple[nn.Module, list[torch.Tensor]]:
    """Runs a problem's text: its model and inputs."""
    names: dict = {}
    exec(source, names)
    return names["Model"](), names["get_inputs"]()


def test_equal_blocks_are_one_region_and_the_model_is_cut_at_its_modules():
    model = Model().eval()
    calls = captured_calls(model, example())
    [region] = regions_below(calls, [""])
    assert region.paths == ("blocks.0", "blocks.1", "blocks.2")
    assert region.calls == 3
    assert region.bytes_saved > 0
    [inner] = regions_below(calls, region.paths)
    assert inner.paths == ("blocks.0.norm", "blocks.1.norm", "blocks.2.norm")


def test_the_text_of_a_region_computes_what_the_module_does_at_other_sizes_too():
    block = Model().blocks[0].eval()
    call = captured_calls(Model().eval(), example())["blocks.0"]
    call.module = block
    program = exported_module(call)
    assert program is not None
    region = region_of(call, program)
    reference, inputs = model_of(region.problem.source)
    assert [tuple(value.shape) for value in inputs] == [(2, 5, 8), (2, 5, 1)]
    state = {flat: dict(block.state_dict())[name] for flat, name in region.weights.items()}
    reference.load_state_dict(state)
    for shape in ((2, 5), (3, 7)):
        x, mask = torch.randn(*shape, 8), torch.rand(*shape, 1) > 0.5
        o = reference(x, mask)
        expected = block((x, mask))
        actual = eval(region.output, {"o": o if isinstance(o, tuple) else (o,)})
        assert list(actual) == ["out"]
        torch.testing.assert_close(actual["out"][0], expected["out"][0])


def test_the_conditions_of_a_region_name_its_calls():
    calls = captured_calls(Model().eval(), example())
    call = calls["blocks.1"]
    program = exported_module(call)
    assert program is not None
    region = region_of(call, program)

    def holds(*args, **kwargs):
        return all(eval(text, {"args": args, "kwargs": kwargs}) for text in region.conditions)

    x, mask = example()
    assert holds((x, mask), unused=x)
    assert not holds((x, mask))
    assert not holds((x, mask, mask), unused=x)
    norm = calls["blocks.1.norm"]
    program = exported_module(norm)
    assert program is not None
    assert "kwargs['scale'] == 0.5" in region_of(norm, program).conditions


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.seen.add_(1)
        return torch.relu(x) * 2 + 1


def test_a_module_that_changes_its_buffers_is_no_region():
    call = captured_calls(Counter(), [torch.randn(3)])[""]
    program = exported_module(call)
    assert program is not None
    with pytest.raises(NoRegion, match="buffers"):
        region_of(call, program)


class Attention(nn.Module):
    def forward(self, x):
        heads = x.view(*x.shape[:2], 2, 4).transpose(1, 2)
        mixed = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return mixed.transpose(1, 2).reshape(x.shape)


def test_attention_stays_a_function_of_torch_in_the_text():
    call = captured_calls(Attention().eval(), [torch.randn(2, 5, 8)])[""]
    program = exported_module(call)
    assert program is not None
    source = region_of(call, program).problem.source
    assert "nn.functional.scaled_dot_product_attention(" in source
    reference, _ = model_of(source)
    x = torch.randn(3, 6, 8)
    torch.testing.assert_close(reference(x), Attention()(x))
