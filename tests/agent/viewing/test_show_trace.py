"""What host code asks for, as people read it.

Traces are built by hand, of real values; a few come from the real tracer.
"""

from pathlib import Path

import pytest
from rich.console import Console

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.reporting.verdicts.host_trace import trace_host_code
from kernelwright.agent.reporting.verdicts.trace import CandidateTrace, TracedSize, trace_view
from kernelwright.agent.reporting.verdicts.trace_tensors import Tensors
from kernelwright.tools.report import Failure, Fault, SourceLine
from kernelwright.tools.trace.trace import Choice, Data, Function, Kernel, Launch, Operator, Trace

KERNELS = Path(__file__).parents[2] / "kernels"
SOURCE = """\
def forward(self, x):
    y = torch.relu(x)
    out = torch.empty_like(y)
    scale_kernel[(4,)](y, out, 256, BLOCK=64, num_warps=8)
    return out.view(16, 16)
"""
FUNCTION = Function(name="scale_kernel", text="def scale_kernel(x_ptr, out_ptr, n, BLOCK): pass")
KERNEL = Kernel(
    function="scale_kernel.0",
    signature={"x_ptr": "*fp32", "out_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"},
    constants=(((3,), 64),),
    options={"num_warps": 8},
)
WIDER = KERNEL.with_(constants=(((3,), 128),), options={})
INPUTS = [{"tensor": {"shape": [256], "stride": [1], "dtype": "float32"}}]


def launch(kernel="narrow", out=3, source=2):
    return Launch(
        kernel=kernel,
        grid=(4, 1, 1),
        args={"x_ptr": {"t": source}, "out_ptr": {"t": out}, "n": 256},
        line=4,
    )


RELU = Operator(op="aten.relu.default", args=({"t": 1},), out={"t": 2}, line=2)
EMPTY = Operator(op="aten.empty.memory_format", args=([256],),
    kwargs={"dtype": {"dtype": "float32"}, "device": {"device": "cuda"}, "pin_memory": False}, out={"t": 3},
    line=3)  # fmt: skip
LAUNCH = launch()
VIEW = Operator(op="aten.view.default", args=({"t": 3}, [16, 16]), out={"t": 4}, line=5)


def kind_of(step):
    return (
        "compute"
        if "relu" in step.op or "mul" in step.op
        else "read"
        if "item" in step.op
        else "layout"
    )


def shown(*sizes, width=140, functions=None, source=SOURCE, **more):
    found = CandidateTrace(
        problem="relu", target="sm_90", at=sizes, functions=functions or {"scale_kernel.0": FUNCTION},
        kernels={"narrow": KERNEL, "wide": WIDER}, **more,
    )  # fmt: skip
    console = Console(width=width, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(trace_view(found, source, kind_of))
    return [line.rstrip() for line in capture.get().splitlines()]


def own_size(steps=(RELU, EMPTY, LAUNCH, VIEW), **more):
    told = {"inputs": ({"t": 1},), "first": tuple(steps), "first_outputs": {"t": 4}} | more
    return TracedSize(inputs=INPUTS, trace=Trace(**told))


def test_each_step_stands_under_the_line_of_the_candidate_that_asks_for_it():
    lines = shown(own_size())
    at = lines.index("     3 | out = torch.empty_like(y)")
    assert lines[at + 1] == "       t3 = empty([256], dtype=float32)"
    assert lines[at + 2] == "     4 | scale_kernel[(4,)](y, out, 256, BLOCK=64, num_warps=8)"
    assert (
        lines[at + 3]
        == "       scale_kernel[4, 1, 1](x_ptr=t2, out_ptr=t3, n=256, BLOCK=64)   num_warps=8"
    )
    assert "       t4 = view(t3, [16, 16])   float32[16, 16]" in lines
    assert "       returns t4   float32[16, 16]" in lines


def test_what_torch_computes_is_marked_with_its_line_and_named_at_the_end():
    lines = shown(own_size())
    at = lines.index("     2 | y = torch.relu(x)")
    assert lines[at + 1] == "     ! t2 = relu(x0)"
    assert "fallback" in lines[at + 2]
    assert any(line.split() == ["torch", "computes", "relu"] for line in lines)
    reading = Operator(op="aten.item.default", args=({"t": 1},), line=2)
    assert any(
        "the host reads what a tensor holds" in line
        for line in shown(own_size((reading, EMPTY, launch())))
    )


def test_what_only_the_first_call_does_is_set_up_and_is_not_held_against_it():
    lines = shown(own_size((RELU, EMPTY, launch()), later_inputs=({"t": 9},), later=(launch(source=9),),
        later_outputs={"t": 3}))  # fmt: skip
    assert [
        line.split("  ")[1] for line in lines if line.startswith(("  the first", "  every"))
    ] == [
        "the first call",
        "every later call",
    ]
    assert not any("fallback" in line for line in lines)
    assert any("x_ptr=x0" in line for line in lines), "the later call's input has the same name"


def test_weights_go_by_their_names_and_their_own_filling_is_left_out():
    filled = Operator(op="aten.uniform_.default", args=({"t": 7}, -0.1, 0.1), out={"t": 7}, line=2)
    packed = Operator(op="aten.t.default", args=({"t": 7},), out={"t": 8}, line=3)
    state = {
        "state": {"linear.weight": 7},
        "shapes": {"linear.weight": (3, 5)},
        "dtypes": {"linear.weight": "float32"},
    }
    lines = shown(own_size(setup=(filled, packed), **state))
    assert any(line.split() == ["weights", "w:linear.weight", "float32[3,", "5]"] for line in lines)
    assert any(
        "set-up, once  filling the weights is left out (1 of its steps)" in line for line in lines
    )
    assert "       t8 = t(w:linear.weight)   float32[5, 3]" in lines


def test_an_autotuned_launch_shows_its_configurations_and_counts_once():
    choice = Choice(
        name="scale_kernel",
        alternatives=((launch(),), (launch("wide"),)),
        labels=("a", "b"),
        line=4,
    )
    lines = shown(own_size((EMPTY, choice)))
    assert "       scale_kernel, autotuned: the fastest of 2 configurations" in lines
    assert (
        "         scale_kernel[4, 1, 1](x_ptr=t2, out_ptr=t3, n=256, BLOCK=64)   num_warps=8"
        in lines
    )
    assert (
        "         scale_kernel[4, 1, 1](x_ptr=t2, out_ptr=t3, n=256, BLOCK=128)   num_warps=4"
        in lines
    )
    assert any(line.split() == ["launches", "scale_kernel"] for line in lines)


def test_a_call_without_a_launch_says_so():
    assert any("none: no_kernel" in line for line in shown(own_size((RELU,))))


def test_data_tuples_descriptors_and_dtypes_are_written_as_people_write_them():
    values = Data(t=5, dtype="int64", shape=(3,), data="", line=2)
    descriptor = {"descriptor": {"base": {"t": 1}, "shape": [256], "block": [64]}}
    step = launch().with_(
        args={"x_ptr": descriptor, "out_ptr": {"tuple": [{"t": 3}]}, "n": {"float": "inf"}}
    )
    lines = shown(own_size((values, step), first_outputs={"dict": {"out": {"t": 3}, "n": 2}}))
    assert "       t5 int64[3] = 3 values that the host code made itself" in lines
    called = "scale_kernel[4, 1, 1](x_ptr=descriptor(base=x0, shape=[256], block=[64]), out_ptr=(t3,), n=inf, BLOCK=64)"
    assert any(called in line for line in lines)
    assert "       returns {out: t3, n: 2}" in lines


def test_a_size_that_fails_shows_the_failure_with_its_line_and_caret_and_the_same_one_once():
    where = SourceLine(line=2, column=8, text="    y = x.max().item()")
    failure = Failure(
        fault=Fault.UNTRACEABLE, message="host code reads what a tensor holds", where=where
    )
    small = TracedSize(sizes={"rows": 5}, why="small", failure=failure)
    lines = shown(TracedSize(failure=failure), small)
    line = next(i for i, text in enumerate(lines) if "x.max().item()" in text)
    assert lines[line + 1].index("^") == lines[line].index("x.max()")
    assert "at rows=5 (small)" in lines
    assert sum("untraceable" in line for line in lines) == 1


def test_a_long_part_is_cut_and_says_how_much_is_left():
    lines = shown(own_size([launch()] * 250))
    assert sum("scale_kernel[4, 1, 1]" in line for line in lines) == 200
    assert any("and 50 more steps (--json has all)" in line for line in lines)


def test_names_of_a_candidate_are_never_markup_nor_control_codes():
    hostile = FUNCTION.with_(name="[red]k[/red]\x1b[31m")
    text = "\n".join(
        shown(own_size(), functions={"scale_kernel.0": hostile}, source="[link=x]y[/link]\n" * 5)
    )
    assert "[red]k[/red]" in text
    assert "[link=x]y[/link]" in text
    assert "\x1b" not in text


def test_a_forged_trace_of_kernels_that_are_not_there_can_still_be_shown():
    step = Launch(kernel="nowhere", grid=(1, 1, 1), args={"x": {"t": 99}}, line=10**6)
    odd = Operator(op="nonsense", args=([{"t": 1}],), out={"t": 2}, line=-3)
    lines = shown(own_size((step, odd)))
    assert any("nowhere[1, 1, 1](x=t99)" in line for line in lines)
    assert any("called from no line of this file" in line for line in lines)


@pytest.mark.parametrize(
    ("op", "args", "shape"),
    [
        ("aten.t.default", (), (4, 6)),
        ("aten.transpose.int", (0, -1), (4, 6)),
        ("aten.permute.default", ([1, 0],), (4, 6)),
        ("aten.unsqueeze.default", (-1,), (6, 4, 1)),
        ("aten.view.default", ([-1],), (24,)),
        ("aten.view.default", ([3, -1],), (3, 8)),
        ("aten.select.int", (0, 2), (4,)),
        ("aten.clone.default", (), (6, 4)),
        ("aten.new_empty.default", ([2, 2],), (2, 2)),
    ],
)
def test_shapes_follow_views_and_allocations_as_torch_does_them(op, args, shape):
    import torch

    trace = Trace(inputs=({"t": 0},))
    tensors = Tensors(trace, [{"tensor": {"shape": [6, 4], "stride": [4, 1], "dtype": "float32"}}])
    tensors.learn(Operator(op=op, args=({"t": 0}, *args), out={"t": 1}))
    _, name, overload = op.split(".")
    real = getattr(getattr(torch.ops.aten, name), overload)(torch.zeros(6, 4), *args)
    assert tensors.described(1) == f"float32[{', '.join(map(str, real.shape))}]"
    assert tuple(real.shape) == shape


def test_what_makes_no_sense_has_no_shape():
    tensors = Tensors(Trace(inputs=({"t": 0},)), INPUTS)
    for args in (({"t": 0}, 7, 9), ({"t": 0},), ({"t": 0}, ["a"])):
        tensors.learn(Operator(op="aten.transpose.int", args=args, out={"t": 1}))
        tensors.learn(Operator(op="aten.view.default", args=args, out={"t": 1}))
    assert tensors.described(1) == ""


@pytest.mark.slow
def test_the_real_tracer_gives_the_problems_own_size_and_the_one_that_is_judged_on_a_cpu():
    source = (KERNELS / "good/linear_gelu.py").read_text()
    found = trace_host_code(find_by_name("linear_gelu"), source, "sm_90", "cpu")
    own, small = found.at
    assert not own.sizes
    assert small.sizes
    assert all(size.trace is not None for size in found.at)
    from kernelwright.tools.judging.own_work import kind_of as real_kind

    console = Console(width=200, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(trace_view(found, source, real_kind))
    assert "x_ptr=x0, weight_ptr=w:linear.weight, bias_ptr=w:linear.bias" in capture.get()
    assert "BLOCK_M=64, BLOCK_N=64, BLOCK_K=16)   num_warps=4" in capture.get()
    again = CandidateTrace.model_validate_json(found.model_dump_json())
    assert again.at[0].trace == own.trace


@pytest.mark.slow
def test_the_real_tracer_shows_why_a_candidate_is_a_fallback_and_where():
    source = (KERNELS / "bad/fallback_torch_does_the_work.py").read_text()
    problem = source.splitlines()[0].removeprefix("# problem:").strip()
    found = trace_host_code(find_by_name(problem), source, "sm_90", "cpu")
    from kernelwright.tools.judging.own_work import kind_of as real_kind

    console = Console(width=200, color_system=None, force_terminal=False)
    with console.capture() as capture:
        console.print(trace_view(found, source, real_kind))
    assert "torch computes here: fallback" in capture.get()
