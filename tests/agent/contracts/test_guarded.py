"""Kernel files with contracts. The "kernels" here are torch's operators on flat memory, which kernels read."""

import copy
import pickle
import re
import textwrap

import pytest
import torch

from kernelwright.agent.contracts.contract import Mode
from kernelwright.agent.contracts.guard_text import GUARD_MARK, checker_text, without_guard
from kernelwright.agent.contracts.guarded import guarded_kernel, without_header
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import (
    CorrectnessResult,
    Failure,
    Fault,
    InfrastructureError,
    Report,
    SizeOutcome,
    Tried,
)

FLAT = "def flat(x): return torch.as_strided(x, x.shape, torch.empty(x.shape, device='meta').stride())\n"
"""Reads a tensor as if it were contiguous."""
ATTENTION = Problem(
    name="attention.py",
    source="""
import torch
import torch.nn as nn

batch = 2
length = 4096
width = 64


class Model(nn.Module):
    def forward(self, query, key, mask=None):
        return torch.softmax(query @ key.transpose(-1, -2), dim=-1)


def get_inputs():
    return [torch.randn(batch, length, width), torch.randn(batch, length, width)]


def get_init_inputs():
    return []
""",
)
ATTENTION_KERNEL = f"""import torch
{FLAT}

class ModelNew(torch.nn.Module):
    def forward(self, q, k):
        return torch.softmax(flat(q) @ flat(k).transpose(-1, -2), dim=-1)
"""
NORM = Problem(
    name="norm.py",
    source="""
import torch
import torch.nn as nn

channels = 8
batch = 4


class Model(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super().__init__()
        self.norm = nn.BatchNorm1d(channels, eps=eps)
        self.eval()

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(batch, channels)]


def get_init_inputs():
    return [channels]
""",
)
NORM_KERNEL = f"""import torch
import torch.nn as nn
{FLAT}

class ModelNew(nn.Module):
    def __init__(self, channels, eps=1e-5):
        super(ModelNew, self).__init__()
        self.norm = nn.BatchNorm1d(channels, eps=eps)

    def forward(self, x):
        scale = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
        return ((flat(x) - self.norm.running_mean) * scale + self.norm.bias).detach()
"""


def judged(*sizes, correct=True):
    """A report of a verdict on a CPU that was right at these sizes."""
    tried = tuple(Tried(sizes=size) for size in sizes)
    stage = CorrectnessResult(device="cpu", interpreted=True, sizes=sizes[0], tried=tried)
    return Report(
        problem="p",
        problem_hash="h",
        candidate_hash="c",
        correct=correct,
        judged_on="cpu",
        interpreted=stage,
    )


def module_of(text):
    """The ModelNew of a written file."""
    names = {"__name__": "kernel_file"}
    exec(compile(text, "kernel_file.py", "exec"), names)
    return names["ModelNew"]


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    """Files that are loaded here take tensors of a CPU."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")


@pytest.fixture(scope="module")
def attention():
    sizes = [
        {"batch": b, "length": n, "width": w} for b, n, w in ((2, 5, 3), (1, 7, 4), (3, 16, 8))
    ]
    return guarded_kernel(ATTENTION, ATTENTION_KERNEL, judged(*sizes))


@pytest.fixture(scope="module")
def norm():
    sizes = [{"batch": b, "channels": c} for b, c in ((4, 8), (3, 5), (7, 2))]
    return guarded_kernel(NORM, NORM_KERNEL, judged(*sizes))


def test_the_judged_text_stands_in_the_file_as_it_was(attention):
    assert attention.text.startswith(ATTENTION_KERNEL.rstrip())
    assert without_guard(attention.text) == ATTENTION_KERNEL


def test_the_comments_name_inputs_sizes_mode_and_gradients(attention, norm):
    text = "\n".join((*attention.lines, *norm.lines))
    assert "input       query: float32 (batch, length, width), contiguous" in text
    assert "input       key: float32 (batch, length, width), contiguous" in text
    assert "argument    mask: None only" in text
    assert "output      float32 (batch, length, length), contiguous" in text
    assert "size        length: any from 1; run at 5, 7, 16, compiled for 4096" in text
    assert "constructor channels: size channels" in text
    assert "constructor eps: 1e-05 only" in text
    assert "weight      norm.weight: float32 (channels,)" in text
    assert "mode        eval only" in text
    assert "no backward" in text
    assert "enforced    by the checks at the end of this file; these checks are not judged" in text


LAYOUTS = {
    "transposed": lambda x: x.transpose(-1, -2).contiguous().transpose(-1, -2),
    "heads": lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),
    "sliced": lambda x: x.repeat_interleave(2, -1)[..., ::2],
    "expanded": lambda x: x[:1].expand_as(x),
    "offset": lambda x: torch.cat([torch.zeros(1), x.flatten()])[1:].view(x.shape),
    "negation bit": lambda x: torch._neg_view(x),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_other_strides_give_the_same_answer(attention, layout):
    kernel, reference = module_of(attention.text)(), module_of_reference(ATTENTION)()
    x, y = torch.randn(3, 5, 6), torch.randn(3, 5, 6)
    change = LAYOUTS[layout]
    torch.testing.assert_close(kernel(change(x), change(y)), reference(change(x), change(y)))
    torch.testing.assert_close(kernel(x, change(y)), reference(x, change(y)))


def module_of_reference(problem):
    """The Model of a problem."""
    names = {"__name__": "reference"}
    exec(compile(problem.source, "reference.py", "exec"), names)
    return names["Model"]


REFUSED = {
    "float16": (
        lambda x, y: (x.half(), y),
        "query is torch.float16 (3, 5, 6) and must be torch.float32",
    ),
    "float64": (lambda x, y: (x, y.double()), "key is torch.float64"),
    "two dimensions": (
        lambda x, y: (x[0], y[0]),
        "query is torch.float32 (5, 6) and must be torch.float32 ('batch',",
    ),
    "four dimensions": (lambda x, y: (x, y[None]), "key is torch.float32 (1, 3, 5, 6)"),
    "longer keys": (
        lambda x, y: (x, torch.cat([y, y], 1)),
        "key.shape[1] is 10 and must be length 5",
    ),
    "one batch for all": (lambda x, y: (x, y[:1]), "key.shape[0] is 1 and must be batch 3"),
    "empty": (
        lambda x, y: (x[:, :0], y[:, :0]),
        "query.shape[1] is 0, and no empty tensor was judged",
    ),
    "gradient": (lambda x, y: (x.requires_grad_(), y), "query requires grad"),
    "sparse": (lambda x, y: (x.to_sparse(), y), "must be a dense tensor"),
    "a list": (lambda x, y: (x, y.tolist()), "must be a dense tensor, not <class 'list'>"),
    "another device": (lambda x, y: (x.to("meta"), y.to("meta")), "is on meta"),
    "two devices": (lambda x, y: (x, y.to("meta")), "key is on meta and must be on cpu"),
    "another argument": (lambda x, y: (x, y, x), "mask must be None and is tensor("),
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_was_not_judged_raises_one_line(attention, call):
    change, message = REFUSED[call]
    with pytest.raises(ValueError) as raised:
        module_of(attention.text)()(*change(torch.randn(3, 5, 6), torch.randn(3, 5, 6)))
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_tensor_of_a_cpu_without_the_interpreter_raises_what_to_do(attention, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET")
    kernel, x = module_of(attention.text)(), torch.randn(1, 3, 4)
    with pytest.raises(
        ValueError,
        match="query is on cpu and not on the current GPU: move it, or start with TRITON",
    ):
        kernel(x, x)


def test_a_call_under_autocast_raises(attention):
    kernel, x = module_of(attention.text)(), torch.randn(1, 3, 4)
    with (
        torch.autocast("cpu", dtype=torch.bfloat16),
        pytest.raises(ValueError, match="autocast is on"),
    ):
        kernel(x, x)


def test_torch_compile_has_the_checks_in_its_graph_without_a_break(norm):
    kernel = module_of(norm.text)(6)
    with torch.no_grad():
        compiled = torch.compile(kernel, fullgraph=True, backend="eager", dynamic=True)
        for x in (torch.randn(3, 6), torch.randn(7, 6), torch.randn(6, 5).t()):
            torch.testing.assert_close(compiled(x), kernel(x))


def test_weights_on_another_device_than_the_inputs_raise(norm):
    kernel = module_of(norm.text)(6)
    kernel.norm.weight = torch.nn.Parameter(kernel.norm.weight.to("meta"))
    with (
        torch.no_grad(),
        pytest.raises(ValueError, match=r"norm\.weight is on meta and the inputs are not"),
    ):
        kernel(torch.randn(3, 6))


def test_the_checker_is_the_same_text_in_every_file_and_short(attention, norm):
    text = textwrap.indent(checker_text(), "    ")
    written = [re.sub(r"(?m)^ +$", "", kernel.text) for kernel in (attention, norm)]
    assert all(re.sub(r"(?m)^ +$", "", text) in file for file in written)
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 62


def test_arguments_bear_the_names_of_the_reference(attention):
    kernel, x = module_of(attention.text)(), torch.randn(1, 3, 4)
    assert torch.equal(kernel(key=x, query=x, mask=None), kernel(x, x))


def test_a_gradient_is_allowed_where_grad_mode_is_off(attention):
    x = torch.randn(1, 3, 4, requires_grad=True)
    with torch.no_grad():
        assert not module_of(attention.text)()(x, x).requires_grad


def test_weights_keep_their_names_and_can_be_loaded_copied_and_pickled(norm):
    kind, reference = module_of(norm.text), module_of_reference(NORM)(6)
    kernel = kind(6)
    assert list(kernel.state_dict()) == list(reference.state_dict())
    kernel.load_state_dict(reference.state_dict())
    x = torch.randn(3, 6)
    copied = copy.deepcopy(kernel)
    with torch.no_grad():
        torch.testing.assert_close(copied(x), reference(x))
    with pytest.raises(
        ValueError, match=r"norm\.weight is torch\.float16 True and must be as it was built"
    ):
        copied.half()(x)
    assert kernel.norm.weight.dtype is torch.float32
    assert pickle.loads(pickle.dumps(kernel.state_dict())).keys() == reference.state_dict().keys()


def test_a_module_judged_in_eval_mode_begins_in_it_and_raises_in_training(norm):
    kernel = module_of(norm.text)(6)
    assert not kernel.training
    with pytest.raises(ValueError, match=r"judged in eval mode only: call \.eval\(\)"):
        kernel.train()(torch.randn(3, 6))


def test_backward_of_an_output_that_depends_on_weights_raises(norm):
    output = module_of(norm.text)(6)(torch.randn(3, 6))
    assert output.requires_grad
    with pytest.raises(ValueError, match="this kernel has no backward"):
        output.sum().backward()


def test_an_argument_of_the_constructor_that_never_varied_is_fixed(norm):
    kind = module_of(norm.text)
    with pytest.raises(ValueError, match=r"eps must be 1e-05 and is 0\.001"):
        kind(6, eps=1e-3)


def test_an_input_must_fit_the_size_of_the_constructor(norm):
    with pytest.raises(ValueError, match=r"x\.shape\[1\] is 5 and must be channels 6"):
        module_of(norm.text)(6)(torch.randn(3, 5))


def test_weights_of_another_default_type_raise(norm):
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ValueError, match="weights were judged in"):
            module_of(norm.text)(6)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_size_that_was_run_at_two_values_is_allowed_at_these_and_the_problems_own_alone():
    sizes = [{"batch": 1, "length": n, "width": w} for n, w in ((5, 16), (7, 16), (9, 8))]
    kernel = module_of(guarded_kernel(ATTENTION, ATTENTION_KERNEL, judged(*sizes)).text)()
    for width in (16, 8, 64):
        kernel(torch.randn(1, 5, width), torch.randn(1, 5, width))
    with pytest.raises(ValueError, match="width must be 8 or 16 or 64 and is 32"):
        kernel(torch.randn(1, 5, 32), torch.randn(1, 5, 32))


@pytest.mark.slow
def test_the_text_with_its_checks_is_judged_and_the_comments_say_so():
    seen = []

    def judge(text):
        seen.append(text)
        return judged({"batch": 1})

    kernel = guarded_kernel(ATTENTION, ATTENTION_KERNEL, judged({"batch": 2}, {"batch": 3}), judge)
    assert seen == [kernel.text]
    assert kernel.is_enforced
    assert "this very text was judged once more and is correct" in kernel.lines[-1]


@pytest.mark.slow
def test_checks_that_the_judge_refuses_are_left_out_and_the_comments_say_so():
    refused = judged({"batch": 1}, correct=False).with_(
        failure=Failure(fault=Fault.RUNTIME, message="it fails")
    )
    kernel = guarded_kernel(ATTENTION, ATTENTION_KERNEL, judged({"batch": 2}), lambda text: refused)
    assert kernel.text == ATTENTION_KERNEL
    assert "enforced    no: the judge refused the text with its checks" in kernel.lines[-1]


@pytest.mark.slow
def test_a_kernel_is_not_lost_where_the_judge_itself_fails():
    def judge(text):
        raise InfrastructureError("no memory")

    kernel = guarded_kernel(ATTENTION, ATTENTION_KERNEL, judged({"batch": 2}), judge)
    assert kernel.is_enforced
    assert "these checks are not judged" in kernel.lines[-1]


@pytest.mark.slow
def test_a_file_that_is_written_again_has_one_header_and_one_guard(attention):
    again = guarded_kernel(
        ATTENTION, f"# Written by kernelwright 1\n# problem x\n\n{attention.text}", judged({})
    )
    assert again.text.count(GUARD_MARK) == 1
    assert without_guard(without_header(again.text)) == ATTENTION_KERNEL


def test_a_text_that_is_not_correct_has_no_contract():
    kernel = guarded_kernel(ATTENTION, ATTENTION_KERNEL, judged({}, correct=False))
    assert kernel.text == ATTENTION_KERNEL
    assert "this text is not correct" in kernel.lines[0]


def test_sizes_at_which_the_kernel_was_refused_are_no_part_of_its_contract():
    report = judged({"batch": 1, "length": 4, "width": 2})
    refused = Tried(sizes={"batch": 9, "length": 4, "width": 2}, outcome=SizeOutcome.REFUSED)
    stage = report.interpreted.with_(tried=(*report.interpreted.tried, refused))
    contract = guarded_kernel(ATTENTION, ATTENTION_KERNEL, report.with_(interpreted=stage)).contract
    assert contract.run_sizes["batch" if "batch" in contract.run_sizes else "query_dim0"] == (1,)


def test_the_mode_is_free_where_the_reference_gives_the_same_in_both(attention):
    assert attention.contract.mode is Mode.ANY


def test_a_reference_that_ends_its_process_leaves_the_kernel_without_a_contract():
    """It works when the kernel is judged, and not when the contract is derived: this process goes on."""
    ending = "        import os\n        os.kill(os.getpid(), 9)\n        return torch"
    ends = Problem(name="ends.py", source=ATTENTION.source.replace("        return torch", ending))
    kernel = guarded_kernel(ends, ATTENTION_KERNEL, judged({"batch": 2}))
    assert kernel.contract is None
    assert "SIGKILL" in kernel.lines[0]
    assert kernel.text == ATTENTION_KERNEL
