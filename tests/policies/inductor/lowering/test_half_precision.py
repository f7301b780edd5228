"""Products of half precision in drafts: operands that tensor cores read from shared memory, copied ahead."""

import ast
import re

import pytest

from kernelwright.policies.inductor.draft import Draft, DraftMode, draft
from kernelwright.tools.evaluation.pipeline import Evaluator, Options
from kernelwright.tools.problem import Problem

GATED_LAYER = """
import torch
import torch.nn as nn
rows, hidden, inner = 4096, 2048, 8192
CPU_SIZES = {"rows": 24, "hidden": 48, "inner": 80}
class Model(nn.Module):
    def __init__(self, hidden, inner):
        super().__init__()
        self.norm = nn.RMSNorm(hidden)
        self.gate = nn.Linear(hidden, inner, bias=False)
        self.up = nn.Linear(hidden, inner, bias=False)
        self.down = nn.Linear(inner, hidden, bias=False)
        self.to(torch.bfloat16)
    def forward(self, x):
        y = self.norm(x)
        return x + self.down(torch.nn.functional.silu(self.gate(y)) * self.up(y))
def get_inputs():
    return [torch.randn(rows, hidden, dtype=torch.bfloat16)]
def get_init_inputs():
    return [hidden, inner]
"""


@pytest.fixture(scope="module")
def gated(drafter) -> Draft:
    made = draft(GATED_LAYER, drafter.run, mode=DraftMode.STRICT)
    assert made.usable, made.refused
    return made


def _multiplying_kernels(source: str) -> list[ast.FunctionDef]:
    functions = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return [function for function in functions if "tl.dot(" in ast.unparse(function)]


def test_every_operand_of_a_half_precision_product_is_what_was_loaded(gated):
    kernels = _multiplying_kernels(gated.source)
    assert len(kernels) == 2, "the gate's two products are one kernel"
    for kernel in kernels:
        loaded = {
            ast.unparse(node.targets[0])
            for node in ast.walk(kernel)
            if isinstance(node, ast.Assign) and ".load(" in ast.unparse(node.value)
        }
        products = [
            n
            for n in ast.walk(kernel)
            if isinstance(n, ast.Call) and ast.unparse(n.func) == "tl.dot"
        ]
        operands = {ast.unparse(operand) for product in products for operand in product.args[:2]}
        assert operands <= loaded


def test_half_precision_products_copy_ahead_and_two_of_them_share_a_tile(gated):
    launches = re.findall(
        r"ROW_BLOCK=tile_for\(rows, 128\), COLUMN_BLOCK=tile_for\(\w+, (\d+)\)", gated.source
    )
    assert launches == ["128", "256"]
    assert re.findall(r"num_stages=(\d)", gated.source) == ["4", "4"]


@pytest.mark.parametrize(
    ("layer", "tiles", "described"),
    [
        ("nn.Linear(768, 768)(x)", (128, 128), True),
        ("nn.Linear(768, 4096)(x)", (128, 256), True),
        ("nn.functional.gelu(nn.Linear(768, 768)(x))", (128, 256), False),
    ],
)
def test_a_product_with_a_cheap_epilogue_is_made_by_persistent_programs(
    drafter, layer, tiles, described
):
    called, _, rest = layer.partition("nn.Linear(")
    arguments, _, rest = rest.partition(")")
    source = f"""
import torch
import torch.nn as nn
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear({arguments}, dtype=torch.bfloat16)
    def forward(self, x):
        return {called}self.layer{rest}
def get_inputs():
    return [torch.randn(8192, 768, dtype=torch.bfloat16)]
def get_init_inputs():
    return []
"""
    written = draft(source, drafter.run, mode=DraftMode.STRICT)
    assert ("DESCRIBED=is_aligned(" in written.source) == described
    assert f"COLUMN_BLOCK={tiles[1]}" in written.source


def test_few_rows_have_tiles_of_few_rows(drafter):
    source = GATED_LAYER.replace("rows, hidden, inner = 4096", "rows, hidden, inner = 16")
    written = draft(source, drafter.run, mode=DraftMode.STRICT)
    assert "ROW_BLOCK=16, COLUMN_BLOCK=tile_for(hidden, 32)" in written.source
    assert "DESCRIBED" not in written.source


def test_a_gate_and_its_values_are_read_through_descriptors_where_they_are_aligned(gated):
    gate, down = _multiplying_kernels(gated.source)
    assert ast.unparse(gate).count("tl.make_tensor_descriptor(") == 3
    assert ast.unparse(down).count("tl.make_tensor_descriptor(") == 2
    assert "flatten=True" in ast.unparse(down)
    assert "flatten=True" not in ast.unparse(gate), "a pair of products takes all registers"
    assert "DESCRIBED=is_aligned((" in gated.source
    assert "persistent_grid(" in gated.source


@pytest.mark.parametrize("hidden", [48, 44])
def test_a_gated_layer_is_right_with_and_without_descriptors(gated, hidden):
    source = GATED_LAYER.replace('"hidden": 48', f'"hidden": {hidden}')
    with Evaluator(device="cpu") as evaluator:
        report = evaluator.evaluate(
            Problem(name="gated", source=source), gated.source, Options(seed=4, sizes=0)
        )
    assert report.correct, report.explanation


@pytest.mark.slow
def test_a_gated_layer_of_bfloat16_is_right(gated):
    with Evaluator(device="cpu") as evaluator:
        report = evaluator.evaluate(
            Problem(name="gated", source=GATED_LAYER), gated.source, Options(seed=3, sizes=2)
        )
    assert report.correct, report.explanation


ROUNDED = """
import torch
import torch.nn as nn
rows, columns = 24, 16
class Model(nn.Module):
    def forward(self, x):
        halves = x.to(torch.float16).float()
        return torch.softmax(halves.cumsum(1).to(torch.bfloat16).float(), -1)
def get_inputs():
    return [torch.randn(rows, columns)]
def get_init_inputs():
    return []
"""


def test_a_cast_to_half_precision_rounds_as_in_eager(drafter):
    source = draft(ROUNDED, drafter.run, mode=DraftMode.STRICT).source
    with Evaluator(device="cpu") as evaluator:
        report = evaluator.evaluate(
            Problem(name="rounded", source=ROUNDED), source, Options(seed=3, sizes=1)
        )
    assert report.correct, report.explanation
