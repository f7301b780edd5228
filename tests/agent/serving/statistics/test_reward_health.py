"""Reward health as a function of scores."""

from kernelwright.agent.serving.scoring import score_of
from kernelwright.agent.serving.statistics.reward_health import ScoredSubmission, reward_health
from kernelwright.agent.serving.wire import Score
from kernelwright.tools.report import CompileResult, Failure, Fault, Report, Rung


def report(**fields):
    return Report(problem="p", problem_hash="h", candidate_hash="c", **fields)


def wrong(fault, rung=Rung.COMPILE):
    return Score(
        ended_at=rung,
        compiled=False,
        correct=False,
        gate=1.0,
        fault=fault,
        explanation=f"because {fault}",
    )


RIGHT = Score(ended_at=Rung.PROFILE, compiled=True, correct=True, gate=1.0, speedup=2.0)


def samples(*scores, group="g"):
    return [
        ScoredSubmission("alice", group, "p", float(place), score)
        for place, score in enumerate(scores)
    ]


def test_shares_reasons_and_trend_follow_from_the_scores():
    health = reward_health(
        samples(wrong(Fault.COMPILE), wrong(Fault.COMPILE), wrong(Fault.RESOURCES), RIGHT)
    )
    assert (health.candidates, health.correct) == (4, 1)
    assert [(one.rung, one.ended, one.correct, one.share) for one in health.rungs] == [
        ("compile", 3, 0, 0.75),
        ("profile", 1, 1, 0.25),
    ]
    assert [(one.fault, one.count) for one in health.reasons] == [("compile", 2), ("resources", 1)]
    assert health.reasons[0].example == "because compile"
    assert [one.correct_share for one in health.trend] == [0.0, 0.0, 0.0, 1.0]
    assert health.trend[-1].median_speedup == 2.0
    assert health.model_dump(mode="json", by_alias=True)["trend"][0]["from"] == 0.0


def test_a_group_is_flat_where_a_reward_could_tell_nothing_apart():
    flat = samples(wrong(Fault.COMPILE), wrong(Fault.RESOURCES), group="flat")
    right = samples(RIGHT, RIGHT, group="right")
    mixed = samples(wrong(Fault.COMPILE), RIGHT, group="mixed")
    alone, none = samples(RIGHT, group="alone"), samples(RIGHT, RIGHT, group=None)
    groups = reward_health([*flat, *right, *mixed, *alone, *none]).groups
    assert (groups.groups, groups.flat, groups.flat_wrong, groups.flat_right) == (3, 2, 1, 1)


def test_nothing_judged_is_no_division_by_zero():
    assert reward_health([]).candidates == 0


def test_the_trend_of_many_has_a_bounded_number_of_bins():
    health = reward_health(samples(*[RIGHT] * 1000))
    assert len(health.trend) <= 24
    assert sum(one.candidates for one in health.trend) == 1000


def test_a_score_says_where_it_ended_and_what_must_not_train():
    compiled = CompileResult(target="sm_90")
    assert score_of(report(rung=Rung.COMPILE, compiles=(compiled,))).compiled
    broken = compiled.with_(failure=Failure(fault=Fault.RESOURCES, message=""))
    assert not score_of(
        report(rung=Rung.COMPILE, compiles=(broken,), failure=broken.failure)
    ).compiled
    cheat = score_of(
        report(
            failure=Failure(fault=Fault.CHEAT, message=""),
            rung=Rung.INTERPRETED,
            compiles=(compiled,),
        )
    )
    assert (cheat.gate, cheat.compiled, cheat.mask) == (0.0, True, False)
    slow = score_of(report(failure=Failure(fault=Fault.TIMEOUT, message="")))
    assert (slow.gate, slow.mask, slow.fault) == (1.0, True, "timeout")
    assert score_of(report(correct=True, degenerate=("zeros",))).gate == 0.0
