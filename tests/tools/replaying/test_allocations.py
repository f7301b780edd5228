"""Margins and poison round what a replayed trace allocates."""

import ctypes
import gc
import weakref

import pytest

torch = pytest.importorskip("torch")

from kernelwright.tools.gpu.persistent_memory import merge_ranges  # noqa: E402
from kernelwright.tools.replaying import allocations as module  # noqa: E402
from kernelwright.tools.replaying.allocations import Allocations, _Part  # noqa: E402
from kernelwright.tools.replaying.gpu import process  # noqa: E402
from kernelwright.tools.replaying.messages import trace_as_text  # noqa: E402
from kernelwright.tools.replaying.noise import NOISE  # noqa: E402
from kernelwright.tools.replaying.service import Service  # noqa: E402
from kernelwright.tools.replaying.steps import Call, Steps  # noqa: E402
from kernelwright.tools.replaying.watching import Watch  # noqa: E402
from kernelwright.tools.trace.trace import Operator, Trace  # noqa: E402


def made(allocations, *shape, dtype=torch.float32):
    return torch.empty(*shape, dtype=dtype, device=allocations.made_on)


@pytest.mark.parametrize("margin", [0, 1 << 16])
def test_memory_that_nobody_set_is_poison_and_the_rest_is_filled(margin):
    allocations = Allocations(0xFF, margin, "cpu")
    unset = allocations.fresh(made(allocations, 3, 5), None)
    assert bool(unset.isnan().all())
    zeros = allocations.fresh(torch.zeros(3, 5, device=allocations.made_on), 0)
    assert torch.equal(zeros, torch.zeros(3, 5))


@pytest.mark.parametrize("poison", [0xFF, NOISE])
def test_how_memory_is_filled_is_not_counted_as_the_host_codes_work(poison):
    def counted(wrapped):
        watch, allocations = Watch([], {}), Allocations(poison, device="cpu")
        memory = watch.allocating(allocations) if wrapped else allocations
        form = torch.empty(3, 5, device="meta")
        with watch:
            unset, zeros = memory.fresh(form, None), memory.fresh(form, 0)
            zeros[1:].fill_(1)
            del unset
            memory.let_go()
        return sum(watch.rearranged.values())

    assert counted(wrapped=True) == 1  # the host code's own number in some of the places
    assert counted(wrapped=False) > 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.bool, torch.complex64])
def test_form_and_strides_are_kept(dtype):
    allocations = Allocations(0, device="cpu")
    form = torch.empty_strided((3, 4), (1, 7), dtype=dtype, device="meta")
    inside = allocations.fresh(form, None)
    assert (inside.shape, inside.stride(), inside.dtype) == (form.shape, form.stride(), dtype)
    assert inside.data_ptr() % 64 == 0
    assert not allocations.written_outside()


@pytest.mark.parametrize("element", [-1, 15, 16, -16384, 16383])
def test_a_write_next_to_a_tensor_is_seen(element):
    allocations = Allocations(0xFF, device="cpu")
    kept = [allocations.fresh(made(allocations, 3, 5), None) for _ in range(2)]
    assert not allocations.written_outside()
    ctypes.c_float.from_address(kept[1].data_ptr() + 4 * element).value = 1.0
    assert allocations.written_outside()


def test_a_storage_is_the_tensors_own_extent_and_outlives_what_allocated_it():
    tensor = Allocations(0xFF, device="cpu").fresh(
        torch.empty_strided((3, 4), (5, 1), device="meta"), 2.0
    )
    assert tensor.storage_offset() == 0
    assert tensor.untyped_storage().nbytes() == 14 * 4
    assert bool((tensor == 2.0).all())
    assert torch.equal(torch.as_strided(tensor, (2,), (1,), 5), torch.tensor([2.0, 2.0]))


def test_a_tensor_without_elements_has_no_margins():
    allocations = Allocations(0xFF, device="cpu")
    assert allocations.fresh(made(allocations, 0, 5), None).shape == (0, 5)
    assert allocations.ranges == []


def test_ranges_are_rounded_to_blocks_and_joined_where_they_overlap_but_not_where_they_touch():
    assert merge_ranges([(1024, 10), (512, 512), (4096, 513), (4608, 700)]) == [
        (512, 512),
        (1024, 512),
        (4096, 1536),
    ]


@pytest.fixture
def large_is_anything(monkeypatch):
    """Every tensor counts as a large one, and Python looks for no circles meanwhile."""
    monkeypatch.setattr(module, "LARGE_TENSOR_BYTES", 1)
    gc.disable()
    yield
    gc.enable()


def test_a_large_tensor_that_is_dropped_gives_its_memory_back_within_the_call(large_is_anything):
    allocations = Allocations(0xFF, device="cpu")
    dropped, kept = (allocations.fresh(made(allocations, 3, 5), None) for _ in range(2))
    view = kept[1:]
    del kept
    held = [weakref.ref(memory) for memory, _, _ in allocations._large]
    allocations.let_go()
    assert [one() is not None for one in held] == [True, True]
    del dropped
    allocations.let_go()
    assert [one() is not None for one in held] == [False, True], "a view holds what it shows"
    assert not allocations.written_outside()
    del view


def test_of_several_large_tensors_the_one_that_is_dropped_goes(large_is_anything):
    allocations = Allocations(0xFF, device="cpu")
    first, last = (allocations.fresh(made(allocations, *shape), None) for shape in ((3, 5), (5, 7)))
    del last
    allocations.let_go()
    assert [used for _, used, _ in allocations._large] == [first.nbytes]


def test_what_was_written_beside_a_tensor_is_seen_though_its_memory_is_gone(large_is_anything):
    allocations = Allocations(0xFF, device="cpu")
    tensor = allocations.fresh(made(allocations, 3, 5), None)
    ctypes.c_float.from_address(tensor.data_ptr() + 4 * 15).value = 1.0
    del tensor
    allocations.let_go()
    assert allocations._large == []
    assert allocations.written_outside()


def test_a_chain_of_large_tensors_needs_no_more_than_two_at_a_time(large_is_anything):
    allocations = Allocations(0xFF, device="cpu")
    most = []

    def empty_then_copy(number: int) -> list[Operator]:
        fresh = Operator(
            op="aten.empty_like.default", args=({"t": number},), kwargs={}, out={"t": number + 1}
        )
        return [fresh]

    steps = [step for number in range(6) for step in empty_then_copy(number)]
    call = Call(lambda *_: None, allocations, poison=0xFF)
    let_go = allocations.let_go

    def counted() -> None:
        let_go()
        most.append(len(allocations._large))

    allocations.let_go = counted
    table = {0: torch.zeros(3, 5)}
    Steps(steps, {6}, "cpu").run(table, call)
    assert set(table) == {0, 6}
    assert max(most) == 1


def test_memory_between_margins_on_a_gpu_is_held_by_nothing_that_points_at_itself():
    memory = torch.empty(64, dtype=torch.uint8)
    alive = weakref.ref(memory)
    gc.disable()
    try:
        part = _Part(memory, 8, 16)
        del memory
        assert alive() is not None
        del part
        assert alive() is None
    finally:
        gc.enable()


class NoChannel:
    """Of a process that is asked directly."""

    def take_descriptors(self):
        return []


class NoKernels:
    """Launches that do nothing."""

    reverse = False

    def __init__(self, *_):
        pass

    def load(self):
        pass

    def launch(self, *_):
        pass


def test_the_memory_of_a_call_is_given_back_before_it_is_answered(
    large_is_anything, monkeypatch, write
):
    """A call's output of gigabytes would lie there while the judge computes what it compares it with."""
    memory, left = [], []
    fresh = Allocations.fresh

    def noted(self, form, fill):
        tensor = fresh(self, form, fill)
        memory.extend(weakref.ref(one) for one, _, _ in self._large[-1:])
        return tensor

    monkeypatch.setattr(Allocations, "fresh", noted)
    monkeypatch.setattr(process.gpu, "Binaries", NoKernels)
    monkeypatch.setattr(process.gpu, "synchronize", lambda what: None)
    machine = process.OnGpu("cpu")
    monkeypatch.setattr(process, "LARGE_CALL_BYTES", 1)
    monkeypatch.setattr(
        process, "give_back_unused", lambda: left.append([one() is not None for one in memory])
    )
    service = Service(NoChannel(), "cpu", machine)
    steps = (write.empty(1, 3, 5), write.op("relu_", {"t": 1}, out=1), write.empty(2, 3, 5))
    trace = Trace(first=steps, inputs=(), first_outputs={"t": 2})
    opened = {
        "do": "open",
        "traced": trace_as_text(write.traced(trace), trace),
        "seed": 1,
        "state": {},
        "binaries": {},
    }
    assert "failure" not in service._reply(opened)
    left.clear()
    asked = {
        "do": "call", "inputs": [], "places": [], "which": "first", "poison": 0xFF, "shuffle": 0, "choices": 0,
        "launches": True, "seed": 1,
    }  # fmt: skip
    for _ in range(2):
        reply = service._reply(asked)
        assert reply.get("count") == 1, reply
    assert left == [[False, False], [False] * 4]
