"""Ctrl-C at forced moments of a batch: real signals, a real database, and not one sleep that a verdict depends on.

Each trajectory that was begun is paused and released when `Batch.run` returns, and the same batch goes on.
"""

import os
import signal
import threading
import time

import pytest

from kernelwright.agent.batch.runs import Batch, list_jobs
from kernelwright.agent.judging.lanes import Lanes, PolicyLane
from kernelwright.agent.loop.run_verdicts import RunJudge
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.loop.stopping import Budgets
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.policies.scripted import ScriptedPolicy
from kernelwright.policies.small.embedded import EMBEDDED_WEIGHTS
from kernelwright.policies.small.small_policy import SmallPolicy
from kernelwright.store.database import Store
from kernelwright.store.models import CandidateState
from kernelwright.tools.evaluation.pipeline import Options
from tests.agent.batch.test_batch_kills import Reading

TURNS = 3
LATE_SECONDS = 0.2
"""How long a thread goes on after Ctrl-C: enough for a batch that does not wait for it to be caught at it."""


class Interrupted:
    """A batch of `problems`, in which Ctrl-C comes the first time that a thread calls `now`."""

    def __init__(self, store, answers, problems, first=None):
        self.lanes = Lanes(2, 2, gpu=False)
        policy = PolicyLane(
            ScriptedPolicy(answers), self.lanes.policy, self.lanes.close, together=False
        )
        settings = Settings(policy="scripted:interrupted", budgets=Budgets(turns=TURNS))
        jobs, judging = (
            list_jobs([find_by_name(name) for name in problems], 1),
            RunJudge(Reading(), Options()),
        )
        run = store.open_run("interrupted")
        self.batch = Batch(store, run, jobs, policy, judging, settings, self.lanes, first=first)
        self._once = threading.Lock()
        self.came = False

    def now(self):
        """Goes on when the main thread has closed the lanes, and a little later. Who comes meanwhile waits too."""
        if self._once.acquire(blocking=False):
            self.came = True
            os.kill(os.getpid(), signal.SIGINT)
        while not self.batch._closed():
            time.sleep(0.002)
        time.sleep(LATE_SECONDS)


def at(monkeypatch, owner, name, now, before):
    """Calls `now` before or after the real method."""
    method = getattr(owner, name)

    def called(*arguments, **options):
        if before:
            now()
        done = method(*arguments, **options)
        if not before:
            now()
        return done

    monkeypatch.setattr(owner, name, called)


def rows(store):
    return {(row.stop_reason, row.finished is not None, row.owner) for row in store.trajectories()}


MOMENTS = [
    (Store, "begin", True),
    (Store, "begin", False),
    (Store, "draft", True),
    (Store, "draft", False),
    (ScriptedPolicy, "sample", True),
    (ScriptedPolicy, "sample", False),
    (Store, "complete", True),
    (Store, "complete", False),
    (Reading, "evaluate", True),
    (Store, "judge", True),
    (Store, "judge", False),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    "problems", [("fused_silu",), ("fused_silu", "row_sum")], ids=["one", "two"]
)
@pytest.mark.parametrize(
    ("owner", "name", "before"),
    MOMENTS,
    ids=[f"{'before' if b else 'after'}-{n}" for _, n, b in MOMENTS],
)
def test_whatever_a_run_is_doing_when_it_is_interrupted_it_is_paused_and_goes_on(
    store, unfinished, monkeypatch, problems, owner, name, before
):
    answers = [unfinished(k) for k in range(TURNS)]
    interrupted = Interrupted(store, answers, problems)
    with monkeypatch.context() as patch:
        at(patch, owner, name, interrupted.now, before)
        with pytest.raises(KeyboardInterrupt):
            interrupted.batch.run(2)
    assert interrupted.came
    assert rows(store) == {("interrupted", False, "")}
    assert interrupted.batch.doing == []
    Interrupted(store, answers, problems).batch.run(2)
    assert rows(store) == {("turns", True, "")}
    assert [len(store.turns(row.id)) for row in store.trajectories()] == [TURNS] * len(problems)


def test_an_interrupt_while_threads_are_being_started_pauses_those_that_were(
    store, unfinished, monkeypatch
):
    interrupted = Interrupted(
        store, [unfinished(k) for k in range(TURNS)], ("fused_silu", "row_sum")
    )
    begun = threading.Event()
    at(monkeypatch, Store, "begin", begun.set, before=False)
    start = threading.Thread.start

    def started(thread):
        start(thread)
        if not interrupted.came and thread.name != "hears signals":
            interrupted.came = True
            assert begun.wait(500)
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", started)
        with pytest.raises(KeyboardInterrupt):
            interrupted.batch.run(2)
    assert {(done, owner) for _, done, owner in rows(store)} <= {(False, ""), (True, "")}


def test_an_interrupt_of_whoever_watches_pauses_all_runs(store, unfinished, monkeypatch):
    interrupted = Interrupted(
        store, [unfinished(k) for k in range(TURNS)], ("fused_silu", "row_sum")
    )
    asked = threading.Event()
    at(monkeypatch, Store, "draft", lambda: asked.wait(500), before=False)

    def watch(batch):
        if not asked.is_set() and store.trajectories():
            signal.raise_signal(signal.SIGINT)
            asked.set()

    with pytest.raises(KeyboardInterrupt):
        interrupted.batch.run(2, watch)
    assert rows(store) == {("interrupted", False, "")}


def test_a_second_interrupt_leaves_at_once(store, unfinished, monkeypatch):
    """While a run is inside its lane and stays there: what it holds is free when the process has ended."""
    interrupted = Interrupted(store, [unfinished(1)], ("fused_silu",))
    inside, out = threading.Event(), threading.Event()
    at(monkeypatch, ScriptedPolicy, "sample", lambda: (inside.set(), out.wait(500)), before=True)

    def watch(batch):
        if inside.is_set():
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        interrupted.batch.run(1, watch)
    assert [row.owner for row in store.trajectories()] == [store.owner]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    out.set()
    while any(row.owner for row in store.trajectories()):
        time.sleep(0.01)
    assert rows(store) == {("interrupted", False, "")}


def test_a_run_that_could_not_be_opened_after_it_was_begun_is_paused(store, unfinished):
    """Its draft is a file that is not there any more."""

    def first(policy, problem, settings):
        raise FileNotFoundError("kernel.py")

    with pytest.raises(FileNotFoundError):
        Interrupted(store, [unfinished(1)], ("fused_silu",), first).batch.run(1)
    assert rows(store) == {("infrastructure", False, "")}


class InterruptedDraw(SmallPolicy):
    """Ctrl-C comes between two steps of the model, and the next step waits until the batch has heard of it."""

    steps = 0

    def _check_answering(self):
        self.steps += 1
        if self.steps == 3:
            os.kill(os.getpid(), signal.SIGINT)
            deadline = time.monotonic() + 60
            while not self._answers_no_more and time.monotonic() < deadline:
                time.sleep(0.002)
        super()._check_answering()


def test_the_answer_of_a_model_in_this_process_is_not_waited_for(store):
    """It would take minutes on a busy CPU. The trajectory is paused before its first turn, and goes on."""
    policy, lanes = InterruptedDraw(str(EMBEDDED_WEIGHTS), device="cpu"), Lanes(1, 2, gpu=False)
    lane = PolicyLane(policy, lanes.policy, lanes.close, together=True)
    settings = Settings(policy="embedded", budgets=Budgets(turns=1))
    jobs, judging = list_jobs([find_by_name("fused_silu")], 1), RunJudge(Reading(), Options())
    batch = Batch(
        store,
        store.open_run("interrupted"),
        jobs,
        lane,
        judging,
        settings,
        lanes,
        give_up=lane.stop_answering,
    )
    with pytest.raises(KeyboardInterrupt):
        batch.run(1)
    assert policy.steps == 3
    assert rows(store) == {("interrupted", False, "")}
    [turn] = [turn for row in store.trajectories() for turn in store.turns(row.id)]
    assert turn.state is CandidateState.DRAFTING
