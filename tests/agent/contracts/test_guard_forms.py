"""Arguments in every form that a problem may have: nests, other layouts, inputs that are written to, mixed modes."""

import pytest
import torch

from kernelwright.agent.contracts.contract import Mode
from kernelwright.agent.contracts.guarded import guarded_kernel
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import CorrectnessResult, Report, Tried

HEAD = "import torch\nimport torch.nn as nn\n\nrows = 6\ncolumns = 10\n\n\n"
INITS = "\n\ndef get_init_inputs():\n    return []\n"
SIZES = ({"rows": 3, "columns": 5}, {"rows": 4, "columns": 7}, {"rows": 5, "columns": 2})


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Files that are loaded here take tensors of a CPU."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


def kernel_of(forward, inputs, *, kernel=None, head="", init=""):
    """A problem with this forward, and its kernel file; the kernel is the same text unless another is given."""
    body = f"{init}\n\n    def forward(self, {forward}"
    source = f"{HEAD}{head}class Model(nn.Module):{body}\n\n\ndef get_inputs():\n    return {inputs}\n{INITS}"
    problem = Problem(name="problem.py", source=source)
    stage = CorrectnessResult(
        device="cpu", interpreted=True, tried=tuple(Tried(sizes=size) for size in SIZES)
    )
    report = Report(
        problem="p",
        problem_hash="h",
        candidate_hash="c",
        correct=True,
        judged_on="cpu",
        interpreted=stage,
    )
    text = f"{HEAD}{head}class ModelNew(nn.Module):{init}\n\n    def forward(self, {kernel or forward}\n"
    written = guarded_kernel(problem, text, report)
    names = {"__name__": "kernel_file"}
    exec(compile(written.text, "kernel_file.py", "exec"), names)
    return names["ModelNew"](), written


def test_tensors_in_lists_and_dictionaries_are_checked_one_by_one():
    kernel, written = kernel_of(
        "parts, settings): return parts[0] + parts[1] * settings['scale']",
        "[[torch.randn(rows, columns), torch.randn(rows, columns)], {'scale': torch.randn(columns), 'flag': True}]",
    )
    x, scale = torch.randn(3, 5), torch.randn(5)
    torch.testing.assert_close(kernel([x, x], {"scale": scale, "flag": True}), x + x * scale)
    for parts, settings, message in (
        ([x], {"scale": scale, "flag": True}, "parts must be a list or tuple of 2"),
        ([x, x.half()], {"scale": scale, "flag": True}, r"parts\[1\] is torch.float16"),
        ([x, x], {"scale": scale}, "settings must be a dictionary with the keys scale, flag"),
        ([x, x], {"scale": scale, "flag": False}, r"settings\[.flag.\] must be True"),
        ([x, x], {"scale": scale, "flag": 1}, r"settings\[.flag.\] must be True"),
        ([x, x], {"scale": torch.randn(4), "flag": True}, "is 4 and must be columns 5"),
    ):
        with pytest.raises(ValueError, match=message):
            kernel(parts, settings)
    assert "dict of 2: scale: float32 (columns,), contiguous; flag: True only" in "\n".join(
        written.lines
    )


def test_a_size_as_a_number_must_be_that_of_the_tensors():
    kernel, _ = kernel_of("x, n): return x[:, :n]", "[torch.randn(rows, columns), columns]")
    x = torch.randn(3, 5)
    assert kernel(x, 5).shape == (3, 5)
    with pytest.raises(ValueError, match="n is 4 and must be columns 5"):
        kernel(x, 4)


def test_an_input_that_was_judged_transposed_is_brought_into_that_layout():
    flat = "x): return x.t().contiguous().view(-1).as_strided(x.shape, (1, x.shape[0])) * 2"
    kernel, written = kernel_of("x): return x * 2", "[torch.randn(columns, rows).t()]", kernel=flat)
    x = torch.randn(4, 6)
    torch.testing.assert_close(kernel(x), x * 2)
    assert "in the order (1, 0)" in "\n".join(written.lines)
    reads_memory = (
        "x): return x.as_strided((x.numel(),), (1,)).view(x.shape[1], x.shape[0]).t() * 2"
    )
    kernel, _ = kernel_of(
        "x): return x * 2", "[torch.randn(columns, rows).t()]", kernel=reads_memory
    )
    for layout in (x, x.t().contiguous().t(), x.expand(2, 4, 6)[1]):
        torch.testing.assert_close(kernel(layout), x * 2)


def test_an_input_with_gaps_is_let_in_as_it_was_judged_alone():
    kernel, _ = kernel_of("x): return x * 2", "[torch.randn(rows, 2 * columns)[:, ::2]]")
    x = torch.randn(4, 14)
    torch.testing.assert_close(kernel(x[:, ::2]), x[:, ::2] * 2)
    with pytest.raises(ValueError, match="has strides that were not judged"):
        kernel(x[:, ::2].contiguous())


def test_an_input_that_forward_writes_to_is_never_copied():
    kernel, written = kernel_of("x): return x.mul_(2)", "[torch.randn(rows, columns)]")
    x = torch.ones(3, 5)
    kernel(x)
    assert torch.equal(x, torch.full((3, 5), 2.0))
    with pytest.raises(
        ValueError, match="x has strides that were not judged, and must not be copied"
    ):
        kernel(torch.ones(5, 3).t())
    assert "contiguous, written to" in "\n".join(written.lines)


def test_a_function_keeps_the_arguments_that_its_problem_left_at_a_default():
    head = "def scaled(x, scale=1.0, *, power=2): return x * scale\n\n\n"
    kernel, written = kernel_of("x): return scaled(x)", "[torch.randn(rows, columns)]", head=head)
    x = torch.randn(3, 5)
    assert torch.equal(kernel(x, scale=1.0, power=2), x)
    with pytest.raises(ValueError, match=r"scale must be 1\.0 and is 2\.0"):
        kernel(x, 2.0)
    assert "argument    power: 2 only" in "\n".join(written.lines)


def test_layers_in_different_modes_refuse_both_modes():
    init = (
        "\n    def __init__(self):\n        super().__init__()\n        self.norm = nn.BatchNorm1d(4).eval()\n"
        "        self.drop = nn.Dropout(0.5)\n"
    )
    kernel, written = kernel_of(
        "x): return self.drop(self.norm(x[:, :1].expand(-1, 4)))",
        "[torch.randn(rows, columns)]",
        init=init,
    )
    assert written.contract.mode is Mode.TRAINING or written.contract.mode is Mode.MIXED
    with pytest.raises(ValueError, match=r"judged in different modes|judged in training mode only"):
        kernel.eval()(torch.randn(3, 5))


def test_a_constructor_that_replaces_forward_is_refused():
    init = "\n    def __init__(self):\n        super().__init__()\n        self.forward = lambda x: x\n"
    with pytest.raises(ValueError, match="replaces forward"):
        kernel_of("x): return x", "[torch.randn(rows, columns)]", init=init)


def test_an_output_that_depends_on_no_weight_needs_no_gradient():
    init = "\n    def __init__(self):\n        super().__init__()\n        self.scale = nn.Parameter(torch.ones(1))\n"
    kernel, _ = kernel_of(
        "x): return x + 1, x * self.scale", "[torch.randn(rows, columns)]", init=init
    )
    first, second = kernel(torch.randn(3, 5))
    assert (first.requires_grad, second.requires_grad) == (False, True)
    with pytest.raises(ValueError, match="no backward"):
        second.sum().backward()


def test_names_of_the_kernel_and_of_the_checks_do_not_meet():
    head = "def tensor(x): return x\n\n\ndef _enforce_contract(x): return x + 1\n\n\n"
    kernel, _ = kernel_of(
        "tensor, sizes): return _enforce_contract(tensor) + sizes",
        "[torch.randn(rows, columns), torch.randn(rows, columns)]",
        head=head,
    )
    x = torch.randn(3, 5)
    torch.testing.assert_close(kernel(x, x), 2 * x + 1)
    with pytest.raises(ValueError, match=r"sizes is torch\.float64"):
        kernel(x, x.double())


def test_empty_sizes_infinities_and_texts_are_plain_values():
    kernel, _ = kernel_of(
        "x, low, mode, axes=(0, 1), high=float('inf')): return x.clamp(low, high)",
        "[torch.randn(rows, columns), float('-inf'), 'mean']",
    )
    x = torch.randn(3, 5)
    assert torch.equal(kernel(x, float("-inf"), "mean"), x)
    for arguments in ((0.0, "mean"), (float("-inf"), "sum"), (float("-inf"), "mean", (1, 0))):
        with pytest.raises(ValueError, match="must be"):
            kernel(x, *arguments)
