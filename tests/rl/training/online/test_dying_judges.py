"""Judges are examined before a training begins, and replaced when they die."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("trl")

from kernelwright.rl.training.online.judges import TrainingJudges  # noqa: E402
from kernelwright.rl.training.online.rounds import judge_options  # noqa: E402
from kernelwright.rl.training.safety.alarms import Alarm, TrainingAlarm  # noqa: E402
from kernelwright.rl.training.safety.judge_exam import refuse_failing_judge  # noqa: E402
from kernelwright.tools.report import Report  # noqa: E402
from tests.rl.novice import KERNEL, Deadly, problem  # noqa: E402


# ---------------------------------------------------------------- judges and their examination
@pytest.mark.slow
@pytest.mark.nightly
def test_the_judges_pass_their_examination(judges):
    found = refuse_failing_judge(judges, judge_options("interpreted"))
    assert len(found) >= 8
    assert sum(one.honest for one in found) == 1


class Blind:
    """Believes everyone."""

    def evaluate(self, problem, source, options=None, progress=None):
        return Report(
            problem=problem.name,
            problem_hash=problem.hash,
            candidate_hash="h" * 64,
            correct=True,
            judged_on="cpu",
        )


def test_a_judge_that_believes_a_cheat_stops_the_training_before_it_begins():
    with pytest.raises(TrainingAlarm) as stopped:
        refuse_failing_judge(Blind(), judge_options("interpreted"))
    assert stopped.value.alarm is Alarm.JUDGE
    assert "agent doctor" in str(stopped.value)


@pytest.mark.slow
@pytest.mark.nightly
def test_a_judging_process_that_dies_is_replaced_and_the_verdict_comes(judges):
    for pid in list(judges._pool._processes):
        os.kill(pid, signal.SIGKILL)
    source = KERNEL.format("x * 4.0")
    assert not judges.evaluate(problem("double"), source, judge_options("interpreted")).correct


@pytest.mark.slow
@pytest.mark.nightly
def test_a_candidate_over_which_judges_die_fails_alone(tmp_path):
    """On a GPU every candidate that waited was held to have killed the judge, and a hundred runs were stopped for
    one.
    """
    from concurrent.futures import ThreadPoolExecutor

    from kernelwright.tools.report import InfrastructureError

    deadly = KERNEL.format("x * 666.0")
    with TrainingJudges("cpu", 1, tmp_path / "verdicts") as own, ThreadPoolExecutor(8) as threads:
        deaths = kill_over(own, deadly)
        bad = threads.submit(own.evaluate, problem("double"), deadly, judge_options("interpreted"))
        good = [
            threads.submit(
                own.evaluate,
                problem("double"),
                KERNEL.format(f"x * {n}.0"),
                judge_options("interpreted"),
            )
            for n in range(2, 8)
        ]
        assert [future.result(500).correct for future in good] == [
            True,
            False,
            False,
            False,
            False,
            False,
        ]
        with pytest.raises(InfrastructureError, match="three times on one candidate"):
            bad.result(500)
        assert len(deaths) == 3


@pytest.mark.slow
def test_judges_that_cannot_begin_are_not_begun_for_ever():
    from kernelwright.tools.report import InfrastructureError

    with (
        TrainingJudges("cpu", 1, Deadly()) as own,
        pytest.raises(InfrastructureError, match="before they judge anything"),
    ):
        own.evaluate(problem("double"), KERNEL.format("x * 2.0"), judge_options("interpreted"))


def kill_over(pool: TrainingJudges, deadly: str) -> list[int]:
    """From now on whatever judge begins with this program is killed; gives the verdicts over which that was."""
    import threading
    import time

    deaths: list[int] = []
    submitted = pool._submitted

    def submit(problem, source, options):
        waiting = submitted(problem, source, options)
        if source == deadly:
            threading.Thread(target=kill, args=(waiting,), daemon=True).start()
        return waiting

    def kill(waiting):
        note = Path(pool._folder.name) / str(waiting.number)
        while not waiting.future.done():
            if note.exists():
                deaths.append(waiting.number)
                for pid in list(pool._pool._processes):
                    os.kill(pid, signal.SIGKILL)
                return
            time.sleep(0.001)

    pool._submitted = submit
    return deaths
