"""What the operators of a trace do to tensors: views, memory, several outputs, the set-up and what outlives a call."""

from __future__ import annotations

import base64
import json
import time

import pytest
import torch

from kernelwright.tools.report import Failed, Fault
from kernelwright.tools.trace.trace import Choice, Data, Trace

TWICE = """
def twice(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)
"""


@pytest.fixture
def twice(write):
    return write.kernel(TWICE, {"x": "*fp32", "y": "*fp32", "n": "i32"}, BLOCK=32)


def plain(write, *steps, outputs, inputs=1, **more):
    """A trace of operators alone; inputs are tensors 0, 1, ..."""
    given = tuple(write.t(n) for n in range(inputs))
    return write.traced(Trace(inputs=given, first=steps, first_outputs=outputs, **more))


def test_views_keep_their_offsets(bench, write):
    x = torch.arange(24.0).reshape(4, 6)
    trace = plain(
        write,
        write.op("slice.Tensor", write.t(0), 0, 1, 3, out=1),
        write.op("transpose.int", write.t(1), 0, 1, out=2),
        write.op("select.int", write.t(2), 0, 4, out=3),
        write.op("clone", write.t(3), out=4),
        outputs=write.t(4),
    )
    bench.open(trace)
    bench.call([x], [torch.zeros(2)])
    assert torch.equal(bench.got[0], x[1:3].t()[4])


def test_a_view_made_by_as_strided_of_the_written_buffer_is_what_the_kernel_wrote(
    bench, write, twice
):
    """Its offset counts from the buffer's own first element."""
    steps = (
        write.empty(1, 128),
        write.launch("twice", 4, x=write.t(0), y=write.t(1), n=128),
        write.op("as_strided", write.t(1), [4, 16], [32, 1], 16, out=2),
    )
    bench.open(
        write.traced(Trace(inputs=(write.t(0),), first=steps, first_outputs=write.t(2)), twice)
    )
    x = torch.randn(128)
    bench.call([x], [torch.zeros(4, 16)])
    assert torch.equal(bench.got[0], (2 * x).as_strided((4, 16), (32, 1), 16))


@pytest.mark.parametrize("name", ["as_strided", "_reshape_alias"])
def test_no_view_reaches_beyond_a_tensor(bench, write, name):
    more = (0,) if name == "as_strided" else ()
    for source in (write.t(0), write.t(1)):
        bench.open(
            plain(
                write,
                write.empty(1, 16),
                write.op(name, source, [4096], [1], *more, out=2),
                outputs=write.t(2),
            )
        )
        with pytest.raises(Failed) as caught:
            bench.call([torch.zeros(16)], [torch.zeros(4096)])
        assert caught.value.failure.fault is Fault.RUNTIME


def test_an_operator_in_place_gives_back_its_argument(bench, write):
    trace = plain(
        write,
        write.op("clone", write.t(0), out=1),
        write.op("slice.Tensor", write.t(1), 0, 2, 4, out=2),
        write.op("mul_.Tensor", write.t(2), 3.0, out=2),
        write.op("add_.Tensor", write.t(1), 1.0, out=1),
        outputs=write.t(1),
    )
    x = torch.randn(6)
    bench.open(trace)
    bench.call([x], [x])
    expected = x.clone()
    expected[2:4] *= 3
    assert torch.equal(bench.got[0], expected + 1)


def test_several_outputs_come_in_order_with_what_they_share_memory_with(bench, write):
    trace = plain(
        write,
        write.op("split.Tensor", write.t(0), 2, out=[write.t(2), write.t(3)]),
        write.op("neg", write.t(1), out=4),
        outputs={
            "tuple": [
                write.t(4),
                [write.t(3)],
                {"dict": {"a": write.t(1), "b": 7}},
                {"other": "Thing"},
                None,
            ]
        },
        inputs=2,
    )
    x, y = torch.randn(4), torch.randn(3)
    bench.open(trace)
    reply = bench.call([x, y], [y, x[2:], y])
    assert [o.type for o in reply.outputs] == [
        "Tensor",
        "Tensor",
        "Tensor",
        "int",
        "Thing",
        "NoneType",
    ]
    assert [a and a.input for a in reply.aliases] == [None, 0, 1, None, None, None]
    assert reply.copied == (True, True, True)
    assert torch.equal(bench.got[0], -y)
    assert torch.equal(bench.got[1], x[2:])


def test_an_output_of_another_form_is_not_copied(bench, write):
    bench.open(plain(write, write.op("clone", write.t(0), out=1), outputs=write.t(1)))
    for like in (torch.zeros(5), torch.zeros(4, dtype=torch.float64)):
        reply = bench.call([torch.ones(4)], [like])
        assert reply.copied == (False,)
        assert not bench.got[0].any()
    assert reply.outputs[0].shape == (4,)


@pytest.mark.parametrize("name", ["empty_like", "new_empty", "empty_strided", "empty_permuted"])
def test_whatever_leaves_memory_unset_is_poisoned(bench, write, name):
    arguments = {
        "empty_like": (write.t(0),), "new_empty": (write.t(0), [4]), "empty_strided": ([4], [1]),
        "empty_permuted": ([4], [0]),
    }[name]  # fmt: skip
    bench.open(plain(write, write.op(name, *arguments, out=1), outputs=write.t(1)))
    bench.call([torch.zeros(4)], [torch.zeros(4)], poison=0x4B)
    assert (bench.got[0].view(torch.uint8) == 0x4B).all()


def test_a_tensor_that_grows_is_poisoned_where_it_has_grown(bench, write):
    steps = (write.op("neg", write.t(0), out=1), write.op("resize_", write.t(1), [64], out=1))
    bench.open(plain(write, *steps, outputs=write.t(1)))
    bench.call([torch.ones(4)], [torch.zeros(64)])
    assert torch.equal(bench.got[0][:4], -torch.ones(4))
    assert bench.got[0][4:].isnan().all()


@pytest.mark.parametrize(
    ("name", "value"),
    [("zeros_like", 0.0), ("ones_like", 1.0), ("full_like", 2.5), ("new_full", 2.5)],
)
def test_whatever_fills_memory_is_filled(bench, write, name, value):
    arguments = {"full_like": (write.t(0), 2.5), "new_full": (write.t(0), [2, 3], 2.5)}.get(
        name, (write.t(0),)
    )
    bench.open(plain(write, write.op(name, *arguments, out=1), outputs=write.t(1)))
    bench.call([torch.zeros(2, 3)], [torch.zeros(2, 3)])
    assert (bench.got[0] == value).all()


def test_an_input_that_is_changed_is_changed_in_the_judges_memory(bench, write):
    bench.open(plain(write, write.op("add_.Tensor", write.t(0), 1.0, out=0), outputs=write.t(0)))
    reply = bench.call([torch.zeros(3)], [torch.zeros(3)])
    assert torch.equal(bench.shared[0].tensor, torch.ones(3))
    assert bench.shared[0].margins_hold(0xFF)
    assert reply.aliases[0].input == 0


def test_values_that_the_host_made_are_there_anew_at_every_call(bench, write):
    data = base64.b64encode(torch.tensor([1.0, 2.0]).numpy().tobytes()).decode()
    steps = (
        Data(t=1, dtype="float32", shape=(2,), data=data),
        write.op("mul_.Tensor", write.t(1), write.t(0), out=1),
    )
    bench.open(plain(write, *steps, outputs=write.t(1)))
    for _ in range(2):
        bench.call([torch.tensor([3.0, 3.0])], [torch.zeros(2)])
        assert bench.got[0].tolist() == [3.0, 6.0]


def test_an_alternative_is_chosen_by_the_judge(bench, write):
    alternatives = tuple((write.op("mul.Tensor", write.t(0), float(k), out=1),) for k in (2, 3, 5))
    bench.open(plain(write, Choice(name="tuned", alternatives=alternatives), outputs=write.t(1)))
    for index, factor in ((0, 2), (1, 3), (2, 5), (3, 2)):
        bench.call([torch.ones(1)], [torch.zeros(1)], choices=index)
        assert float(bench.got[0]) == factor


def test_nested_arguments_are_bound_by_their_form(bench, write):
    inputs = (
        [{"tensor": write.t(0)}, {"tensor": write.t(1)}],
        {"dict": {"k": {"tensor": write.t(2)}}},
        5,
    )
    trace = Trace(
        inputs=inputs,
        first=(write.op("cat", [write.t(0), write.t(2), write.t(1)], out=3),),
        first_outputs=write.t(3),
    )
    bench.open(write.traced(trace))
    a, b, c = (torch.randn(2) for _ in range(3))
    shared = bench.memory([a, b, c])
    tree = [
        [{"tensor": s.spec} for s in shared[:2]],
        {"dict": {"k": {"tensor": shared[2].spec}}},
        5,
    ]
    places = bench.memory([torch.zeros(6)])
    bench.replayer.call(tree, shared, places)
    assert torch.equal(places[0].tensor, torch.cat([a, c, b]))
    with pytest.raises(Failed):
        bench.replayer.call(tree[:1], shared, places)


def test_random_operators_of_a_call_draw_by_the_calls_seed(bench, write):
    bench.open(plain(write, write.op("rand_like", write.t(0), out=1), outputs=write.t(1)), seed=3)
    for seed in (None, 4):
        bench.call([torch.zeros(5)], [torch.zeros(5)], seed=seed)
        expected = torch.rand(
            5, generator=torch.Generator().manual_seed(3 if seed is None else seed)
        )
        assert torch.equal(bench.got[0], expected)


# ------------------------------------------------------------------ first and later calls
def test_a_buffer_of_the_first_call_lives_on_in_the_later_ones(bench, write, twice):
    """The first call packs its input; later ones add it to theirs, into a buffer that the module keeps."""
    first = (
        write.empty(1, 32),
        write.launch("twice", 1, x=write.t(0), y=write.t(1), n=32),
        write.op("clone", write.t(1), out=2),
    )
    later = (
        write.op("add.Tensor", write.t(1), write.t(10), out=11),
        write.op("add_.Tensor", write.t(1), 1.0, out=1),
    )
    trace = Trace(
        inputs=(write.t(0),), first=first, first_outputs=write.t(2), later_inputs=(write.t(10),), later=later,
        later_outputs=write.t(11),
    )  # fmt: skip
    a, b = torch.randn(32), torch.randn(32)
    bench.open(write.traced(trace, twice))
    with pytest.raises(Failed):
        bench.call([b], [b], call_name="later")
    bench.call([a], [a], call_name="first")
    assert torch.equal(bench.got[0], 2 * a)
    bench.call([b], [b], call_name="later", poison=0x4B)
    assert torch.equal(bench.got[0], 2 * a + b)
    bench.call([b], [b], call_name="later")
    assert torch.equal(bench.got[0], 2 * a + 1 + b), "what a later call leaves there is there"
    bench.call([b], [b], call_name="first")
    bench.call([a], [a], call_name="later")
    assert torch.equal(bench.got[0], 2 * b + a), "and the last first call counts"


def test_without_later_steps_every_call_is_a_first_one(bench, write):
    bench.open(plain(write, write.op("neg", write.t(0), out=1), outputs=write.t(1)))
    for which in ("later", "first", "later"):
        x = torch.randn(3)
        bench.call([x], [x], call_name=which)
        assert torch.equal(bench.got[0], -x)


# ------------------------------------------------------------------ what is not executed
@pytest.mark.parametrize(
    "name",
    [
        "aten.from_file.default", "aten.set_.source_Storage", "aten.item.default", "aten.manual_seed.default",
        "aten._local_scalar_dense.default",
        "aten.__class__.default", "aten.view.__call__", "quantized.linear.default", "mylib.op.default",
        "prims.item.default", "aten.nothing.default",
        "aten._nested_view_from_buffer.default", "aten._sparse_coo_tensor_unsafe.default", "aten.record_stream.default",
        "torch.load", "",
    ],
)  # fmt: skip
def test_an_operator_that_reaches_for_more_than_tensors_is_refused(bench, write, name):
    step = write.op("neg", write.t(0), out=1).with_(op=name)
    with pytest.raises(Failed) as caught:
        bench.open(plain(write, step, outputs=write.t(1)))
    assert caught.value.failure.fault is Fault.FALLBACK


@pytest.mark.parametrize(
    ("step", "fault"),
    [
        ({"op": "aten.neg.default", "args": [{"t": 99}], "out": {"t": 1}}, Fault.CHEAT),
        ({"op": "aten.neg.default", "args": [{"t": 0}], "out": [{"t": 1}, {"t": 2}]}, Fault.CHEAT),
        ({"op": "aten.neg.default", "args": [{"x": 0}], "out": {"t": 1}}, Fault.CHEAT),
        ({"op": "aten.neg.default", "args": [{"dtype": "load"}], "out": {"t": 1}}, Fault.CHEAT),
        ({"op": "aten.neg.default", "args": ["text"], "out": {"t": 1}}, Fault.RUNTIME),
        ({"op": "aten.mm.default", "args": [{"t": 0}, {"t": 0}], "out": {"t": 1}}, Fault.RUNTIME),
        ({"t": 1, "dtype": "float32", "shape": [1 << 40], "data": "AAAA"}, Fault.CHEAT),
        ({"t": 1, "dtype": "load", "shape": [1], "data": "AAAA"}, Fault.CHEAT),
        ({"name": "x", "alternatives": []}, Fault.CHEAT),
    ],
)
def test_a_forged_step_is_a_failure_of_the_candidate(bench, write, step, fault):
    trace = Trace.model_validate_json(
        json.dumps({"inputs": [{"t": 0}], "first": [step], "first_outputs": {"t": 1}})
    )

    def replay():
        bench.open(write.traced(trace))
        bench.call([torch.zeros(3)], [torch.zeros(3)])

    with pytest.raises(Failed) as caught:
        replay()
    assert caught.value.failure.fault is fault


@pytest.mark.parametrize("name", ["_thnn_fused_lstm_cell", "_thnn_fused_gru_cell"])
def test_cells_that_torch_fuses_on_a_gpu_are_computed_on_a_cpu(bench, write, name):
    cell = torch.nn.LSTMCell(5, 6) if "lstm" in name else torch.nn.GRUCell(5, 6)
    x, h, c = torch.randn(3, 5), torch.randn(3, 6), torch.randn(3, 6)
    with torch.no_grad():
        gates = x @ cell.weight_ih.t(), h @ cell.weight_hh.t()
        lstm = "lstm" in name
        wanted = cell(x, (h, c)) if lstm else (cell(x, h),)
    out = {"tuple": [write.t(n) for n in range(10, 13 if lstm else 12)]}
    step = write.op(name, *(write.t(n) for n in range(5)), out=out)
    outputs = [write.t(10), write.t(11)] if lstm else [write.t(10)]
    bench.open(plain(write, step, outputs=outputs, inputs=5))
    bench.call([*gates, c if lstm else h, cell.bias_ih.detach(), cell.bias_hh.detach()], wanted)
    assert all(
        torch.allclose(got, one, atol=1e-6) for got, one in zip(bench.got, wanted, strict=True)
    )


# ------------------------------------------------------------------ bombs
@pytest.mark.parametrize(
    "steps",
    [
        lambda w: [w.empty(1, 1 << 50)],
        lambda w: [w.op("expand", w.t(0), [1 << 34, 3], out=2), w.op("clone", w.t(2), out=1)],
        lambda w: [w.op("repeat", w.t(0), [1 << 36], out=1)],
        lambda w: [w.empty(n, 1 << 26) for n in range(1, 200)],
        lambda w: [w.op("new_zeros", w.t(0), [1 << 27], out=n) for n in range(1, 200)],
        lambda w: [w.op("constant_pad_nd", w.t(0), [0, 1 << 26], out=n) for n in range(1, 200)],
    ],
)
def test_a_trace_that_asks_for_too_much_memory_fails_and_the_process_lives(bench, write, steps):
    before = bench.replayer.process
    bench.open(plain(write, *steps(write), outputs=write.t(1)))
    with pytest.raises(Failed) as caught:
        bench.call([torch.zeros(3)], [torch.zeros(3)])
    assert caught.value.failure.fault is Fault.MEMORY
    bench.open(plain(write, write.op("neg", write.t(0), out=1), outputs=write.t(1)))
    bench.call([torch.ones(3)], [torch.zeros(3)])
    assert bench.got[0].tolist() == [-1.0] * 3
    assert before is None or bench.replayer.process is before


def test_twenty_thousand_steps_end_in_seconds(bench, write):
    steps = [write.op("neg", write.t(0), out=1)] + [
        write.op("neg", write.t(1), out=1) for _ in range(19_998)
    ]
    began = time.monotonic()
    bench.open(plain(write, *steps, outputs=write.t(1)))
    bench.call([torch.ones(3)], [torch.zeros(3)])
    assert time.monotonic() - began < 200, "not a time that grows with the square"
    assert bench.got[0].tolist() == [-1.0] * 3
