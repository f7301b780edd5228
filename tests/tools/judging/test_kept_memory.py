"""What a judge keeps for the next candidate is bounded by its bytes, and what was dropped is made again alike."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from kernelwright.tools.expected import kept_problems
from kernelwright.tools.expected.kept_problems import KeptProblems
from kernelwright.tools.expected.prepared_problem import DoesNotFit
from kernelwright.tools.judging import judge as judging
from kernelwright.tools.judging import room_on_gpu
from kernelwright.tools.judging.judge import Judge
from kernelwright.tools.judging.own_work import Rule
from kernelwright.tools.judging.room_on_gpu import RoomOnGpu
from kernelwright.tools.problem import Problem
from kernelwright.tools.references.input_distributions import Draw
from kernelwright.tools.report import Failure, Fault
from kernelwright.tools.sandbox import ProcessKind, Zygote

LAYER_BYTES = 4 * 512 * 512
LARGE = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(512, 512)

    def forward(self, x):
        return self.layer(x) + NUMBER


def get_inputs():
    return [torch.randn(4, 512)]


def get_init_inputs():
    return []
"""


def problem(number: int) -> Problem:
    return Problem(name=f"large {number}", source=LARGE.replace("NUMBER", str(number)))


@pytest.fixture(scope="module")
def zygote():
    with Zygote(ProcessKind.INTERPRET) as found:
        yield found


def bounded(zygote, monkeypatch, layers: int, sharers: int = 1) -> Judge:
    monkeypatch.setattr(kept_problems, "KEPT_BYTES_ON_CPU", layers * LAYER_BYTES)
    return Judge("cpu", zygote, sharers=sharers)


def test_a_judge_on_a_cpu_keeps_no_more_bytes_than_its_bound_however_many_large_modules_it_sees(
    zygote, monkeypatch
):
    with bounded(zygote, monkeypatch, layers=6) as judge:
        for number in range(12):
            judge.expected(problem(number), 7 << 16, Draw.OWN, 0)
            judge.expected(problem(number), 7 << 16, Draw.OWN, 1, perturbed=True)
            assert judge.cached_bytes() <= 6 * LAYER_BYTES
        assert judge.cached_bytes() > 2 * LAYER_BYTES, "the module that was used last is kept"


def test_the_bound_is_that_of_all_judges_together_and_the_last_module_stays_however_large(
    zygote, monkeypatch
):
    with bounded(zygote, monkeypatch, layers=6, sharers=12) as judge:
        first = judge.expected(problem(1), 7 << 16, Draw.OWN, 0)
        assert judge.expected(problem(1), 7 << 16, Draw.OWN, 0) is first
        judge.expected(problem(2), 7 << 16, Draw.OWN, 0)
        again = judge.expected(problem(1), 7 << 16, Draw.OWN, 0)
        assert again is not first
        assert torch.equal(again.eager[0], first.eager[0]), "made again from the same seed"


class PretendedMemory:
    """A GPU's memory, of so many layers, in which nothing lies but what one judge keeps and what is computed."""

    def __init__(self, judge: Judge, layers: float) -> None:
        self._judge, self._bytes = judge, int(layers * LAYER_BYTES)
        self.given_back = 0

    def total(self) -> int:
        return self._bytes

    def free(self) -> int:
        return self._bytes - self._judge.cached_bytes()

    def is_roomy(self) -> bool:
        return False

    def unused(self) -> int:
        return 0

    def reserved(self) -> int:
        return self._judge.cached_bytes()

    def give_back_unused(self) -> None:
        self.given_back += 1


def on_a_small_gpu(zygote, monkeypatch, layers: float) -> Judge:
    """A judge that believes to be on a GPU with room for so many layers, and computes on the CPU."""
    judge = Judge("cpu", zygote)
    judge.memory = PretendedMemory(judge, layers)
    judge._cache = KeptProblems(judge.memory, 1)
    judge.room = RoomOnGpu(judge.memory, judge._cache, judge.buffers, None, judge.unmap, None, 1)
    monkeypatch.setattr(kept_problems, "KEPT_MEMORY_DIVISOR", 1)
    monkeypatch.setattr(kept_problems, "LARGE_DRAW_DIVISOR", 1)
    monkeypatch.setattr(room_on_gpu, "COPIES_OF_A_CALL", 1)
    monkeypatch.setattr(room_on_gpu, "LARGE_DRAW_DIVISOR", 100)
    prepare_problem = judging.prepare_problem

    def with_so_much(*args, **kwargs):
        if judge.memory.free() < LAYER_BYTES:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return prepare_problem(*args, **kwargs)

    monkeypatch.setattr(judging, "prepare_problem", with_so_much)
    return judge


def asked(judge: Judge, number: int, seed: int = 7 << 16):
    """What a verdict on this problem begins with."""
    one = problem(number)
    return judge._retried_with_memory(one, lambda: judge.expected(one, seed, Draw.OWN, 0))


def is_kept(judge: Judge, number: int) -> bool:
    return any(key[1].startswith(f"large {number} ") for key in judge._cache._problems)


def test_the_problems_used_longest_ago_are_let_go_of_before_one_finds_no_memory(
    zygote, monkeypatch
):
    with on_a_small_gpu(zygote, monkeypatch, layers=3.5) as judge:
        for number in (1, 2, 3):
            asked(judge, number)
        asked(judge, 1)
        asked(judge, 4)
        assert [is_kept(judge, number) for number in (1, 2, 3, 4)] == [True, False, True, True]
        assert judge.memory.given_back


def test_ten_problems_in_turns_on_a_gpu_that_holds_one_are_all_answered(zygote, monkeypatch):
    with on_a_small_gpu(zygote, monkeypatch, layers=1.5) as judge:
        first = [asked(judge, number) for number in range(10)]
        again = [asked(judge, number) for number in range(10)]
        assert all(torch.equal(a.eager[0], b.eager[0]) for a, b in zip(first, again, strict=True))


def test_room_is_made_once_for_candidates_of_one_problem_and_again_once_it_was_given_away(
    zygote, monkeypatch
):
    with on_a_small_gpu(zygote, monkeypatch, layers=1.5) as judge:
        unmapped = []
        judge.room = RoomOnGpu(
            judge.memory, judge._cache, judge.buffers, None, lambda: unmapped.append(1), None, 1
        )
        asked(judge, 1)
        first = len(unmapped)
        asked(judge, 2), asked(judge, 2), asked(judge, 2)
        assert len(unmapped) == first + 1, "what is kept of the first one is let go of, once"
        judge.memory.free_for_all = judge.memory.free
        judge.room.give(judge.memory.total())
        given = len(unmapped)
        judge.expected(problem(1), 7 << 16, Draw.OWN, 0)  # something else lies there now
        asked(judge, 2)
        assert len(unmapped) == given + 1, "what was given away is not there any more"


def test_what_was_not_foreseen_is_tried_once_more_alone(zygote, monkeypatch):
    with on_a_small_gpu(zygote, monkeypatch, layers=2.5) as judge:
        monkeypatch.setattr(room_on_gpu, "COPIES_OF_A_CALL", 0)
        asked(judge, 1), asked(judge, 2)
        assert asked(judge, 3) is not None
        assert [is_kept(judge, number) for number in (1, 2, 3)] == [False, False, True]


def test_a_problem_that_does_not_fit_alone_either_is_told_so(zygote, monkeypatch):
    with (
        on_a_small_gpu(zygote, monkeypatch, layers=0.5) as judge,
        pytest.raises(DoesNotFit, match="use smaller sizes"),
    ):
        asked(judge, 1)


def test_a_candidate_that_finds_no_memory_is_asked_again_alone(zygote, monkeypatch):
    """The candidate's process cannot say whose memory it lacks: the judge's draws go first, then the answer counts."""
    from kernelwright.tools.judging.rules import Rules

    class OnceWithoutRoom:
        runs = 0

        def __init__(self, judge, *_):
            self.judge = judge

        def run(self, base, others):
            type(self).runs += 1
            return (
                None
                if not is_kept(self.judge, 1)
                else Failure(fault=Fault.MEMORY, message="CUDA out of memory")
            )

        def judged(self, failure):
            return failure

    with on_a_small_gpu(zygote, monkeypatch, layers=4) as judge:
        monkeypatch.setattr(judging, "VerdictProcess", OnceWithoutRoom)
        asked(judge, 1)
        base = judging.AtSize(index=0, problem=problem(2))
        rules = Rules(own_work=Rule.parse("strict"), seconds=9)
        assert judge.judge(None, base, (), 7 << 16, rules) is None
        assert OnceWithoutRoom.runs == 2


def test_the_last_used_problem_stays_but_where_it_is_asked_for_too():
    kept = KeptProblems(None, 1)
    for number in range(3):
        kept.keep(
            (f"source {number}", f"large {number} 1"), SimpleNamespace(model=torch.nn.Linear(2, 2))
        )
    assert [kept.drop_oldest() for _ in range(3)] == [True, True, False]
    assert kept.find(("source 2", "large 2 1")) is not None
    assert kept.drop_oldest(last_too=True)
    assert not kept
