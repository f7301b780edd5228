"""TUNE as a state: when it comes, what it costs, and what is said after it."""

import pytest

from kernelwright.agent.loop.attempts import JudgedAttempt
from kernelwright.agent.loop.feedback import write_feedback
from kernelwright.agent.loop.search import NextTurn, SearchKind
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import (
    Budgets,
    Goal,
    GoalKind,
    StopReason,
    exhausted_budget,
    sum_spent,
)
from kernelwright.errors import InputError
from kernelwright.policies.base import Usage
from kernelwright.store.models import Action
from kernelwright.tools.report import (
    CompileResult,
    KernelResources,
    LaunchTime,
    ProfileResult,
    Report,
    Roofline,
    Rung,
    Timing,
)

GOAL = Goal.parse("eager:9")


def report_of(speedup, compiled=None, share=0.3):
    """A verdict of a GPU, as the store holds them."""
    time = Timing(
        median=1 / speedup, low=1 / speedup, high=1 / speedup, mean=1, std=0, minimum=1, calls=40
    )
    profile = ProfileResult(
        device="NVIDIA H100", candidate=time, speedup=speedup, speedup_low=speedup, speedup_compiled=compiled,
        speed_of_light=share, roofline=Roofline(milliseconds=share / speedup, bound="memory"),
        launches=(
            LaunchTime(kernel="large", ms=0.6, share=0.6), LaunchTime(kernel="middle", ms=0.3, share=0.3),
            LaunchTime(kernel="small", ms=0.1, share=0.1),
        ),
    )  # fmt: skip
    kernels = (
        KernelResources(name="large", config={"BLOCK": 512, "num_warps": 8}, occupancy=0.12),
    )
    return Report(
        problem="p", problem_hash="h", candidate_hash="c", rung=Rung.PROFILE, correct=True, judged_on="NVIDIA H100",
        profile=profile, compiles=(CompileResult(target="sm_90", kernels=kernels),),
    )  # fmt: skip


def attempt(turn, action=Action.DRAFT, speedup=1.0, parent=None, **more):
    usage = Usage(prompt_tokens=1, completion_tokens=1, dollars=0.0)
    report = report_of(speedup) if speedup else None
    return JudgedAttempt(
        candidate_id=turn + 10, turn=turn, action=action, parent_id=parent, source="x = 1", usage=usage, report=report,
        hash=str(turn), **more,
    )  # fmt: skip


def next_of(attempts, **settings):
    return (
        Settings(policy="embedded", tune=True, goal=GOAL, **settings).aimed_search().next(attempts)
    )


def test_a_kernel_that_was_measured_is_tuned_before_anything_else_is_asked_for():
    assert next_of([attempt(0)]) == NextTurn(action=Action.TUNE, parent=attempt(0))


def test_it_is_tuned_once_and_the_faster_of_the_two_is_refined():
    tuned = attempt(1, Action.TUNE, speedup=2.0, parent=10)
    assert next_of([attempt(0), tuned]) == NextTurn(action=Action.REFINE, parent=tuned)
    same = attempt(1, Action.TUNE, speedup=1.0, parent=10, repeats=0)
    assert next_of([attempt(0), same]).action is Action.REFINE


def test_where_policy_and_compiler_draft_the_better_one_is_tuned():
    drafted = [attempt(0, speedup=1.5), attempt(1, Action.REFINE, speedup=1.2)]
    assert next_of(drafted[:1], draft="auto").action is Action.REFINE
    assert next_of(drafted, draft="auto") == NextTurn(action=Action.TUNE, parent=drafted[0])


def test_nothing_that_was_not_measured_is_tuned_and_nothing_without_being_asked():
    on_cpu = attempt(0).with_(report=report_of(1.0).with_(profile=None, judged_on="cpu"))
    assert next_of([on_cpu]).action is Action.REFINE
    settings = Settings(policy="embedded", goal=GOAL)
    assert settings.aimed_search().next([attempt(0)]).action is Action.REFINE


def test_tuning_is_no_turn_of_the_policy_and_no_draft_of_best_of_n():
    turns = [attempt(0), attempt(1, Action.TUNE, speedup=2.0, parent=10)]
    spent = sum_spent(turns, 0.0)
    assert spent.turns == 1
    assert exhausted_budget(Budgets(turns=2), spent, asking=True) is None
    two = {"search": SearchKind.BEST_OF_N, "samples": 2}
    assert next_of(turns, **two).action is Action.DRAFT
    both = [*turns, attempt(2, speedup=0.5)]
    assert next_of(both, **two) is StopReason.SAMPLES


def test_the_command_of_a_cpu_run_is_the_same_command_as_before():
    from kernelwright.tools.problem import Problem

    problem = Problem(name="p", source="x = 1")
    plain = Settings(policy="embedded").start(problem).options
    assert "tune" not in plain
    assert Settings(policy="embedded", tune=True).start(problem).options == plain | {"tune": True}


@pytest.mark.parametrize(
    ("text", "kind", "shown"),
    [
        ("eager:2", GoalKind.SPEEDUP, "speedup:2"),
        ("speedup:2", GoalKind.SPEEDUP, "speedup:2"),
        ("compile:1.1", GoalKind.COMPILE, "compile:1.1"),
        ("sol:0.8", GoalKind.ROOFLINE, "roofline:0.8"),
    ],
)
def test_a_goal_may_be_said_in_short(text, kind, shown):
    assert Goal.parse(text).kind is kind
    assert str(Goal.parse(text)) == shown
    assert Goal.parse(shown) == Goal.parse(text)


def test_torch_compile_is_beaten_by_its_own_figure():
    goal = Goal.parse("compile:1.1")
    assert not goal.reached(attempt(0))
    assert not goal.reached(attempt(0).with_(report=report_of(3.0, compiled=1.05)))
    assert goal.reached(attempt(0).with_(report=report_of(1.2, compiled=1.2)))


def test_a_goal_over_torch_compile_takes_the_lower_bound_and_the_lowest_estimate_where_nothing_compares():
    goal, report = Goal.parse("compile:1.1"), report_of(1.2, compiled=1.2)
    uncertain = report.with_(profile=report.profile.with_(speedup_compiled_low=1.05))
    assert not goal.reached(attempt(0).with_(report=uncertain))
    mixed = report.profile.with_(speedup_compiled=None, speedup_compiled_estimate=1.15)
    assert goal.reached(attempt(0).with_(report=report.with_(profile=mixed)))
    assert not Goal.parse("compile:1.2").reached(
        attempt(0).with_(report=report.with_(profile=mixed))
    )


@pytest.mark.parametrize("text", ["sol:2", "compile", "eager:fast", "compiler:1"])
def test_a_goal_that_cannot_be_is_refused_in_one_line(text):
    with pytest.raises(InputError, match="choose correct, eager"):
        Goal.parse(text)


def test_after_tuning_the_policy_is_told_configuration_bound_distance_and_the_next_launches():
    said = write_feedback(report_of(2.0), tuned=True)
    assert "best configuration of large is BLOCK 512, num_warps 8" in said
    assert "bound by occupancy: 12% of the multiprocessor" in said
    assert "The speed of light is 0.15 ms, 0.35 ms less" in said
    assert (
        "Next by time: middle (0.3 ms, 30% of the call), then small (0.1 ms, 10% of the call)."
        in said
    )
    assert "bound by bytes" in write_feedback(report_of(2.0, share=0.9), tuned=True)
    assert "best configuration" not in write_feedback(report_of(2.0))
