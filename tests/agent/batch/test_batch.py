"""Batches: real scripted policies, the real evaluator on a CPU, real processes that are killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from kernelwright.agent.batch.running import run_batch
from kernelwright.agent.batch.runs import list_jobs
from kernelwright.agent.batch.suite_choice import choose_problems, default_run
from kernelwright.agent.loop.settings import EXPLORING_TEMPERATURE, Settings
from kernelwright.agent.loop.stopping import Budgets
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.prompts import Prompts
from kernelwright.agent.runtime.errors import Exit
from kernelwright.errors import InputError
from kernelwright.policies.base import Origin, PromptForm
from kernelwright.policies.scripted import ScriptedPolicy
from kernelwright.policies.small.embedded import open_embedded
from kernelwright.store.connection.errors import StoreError
from kernelwright.store.database import Store
from kernelwright.store.records import TrajectoryFilter

ROOT = Path(__file__).parents[3]


def command(folder: Path, *arguments: str) -> tuple[list[str], dict]:
    told = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200", "NO_COLOR": "1"}
    told.pop("OPENAI_API_KEY", None)
    line = [
        sys.executable,
        "-m",
        "kernelwright.agent",
        "batch",
        *arguments,
        "--device",
        "cpu",
        "--workers",
        "1",
        "--json",
    ]
    return line, {"cwd": folder, "env": told, "text": True}


def batch(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    line, how = command(folder, *arguments)
    return subprocess.run(line, capture_output=True, timeout=500, **how)


def history(path: Path) -> dict:
    """Everything that two batches of one script must share, by problem and sample."""
    with Store.open(path, readonly=True) as store:
        found = {}
        for row in store.trajectories():
            turns = store.turns(row.id)
            numbers = {turn.candidate_id: turn.turn for turn in turns}
            found[row.problem, row.sample] = (
                row.stop_reason,
                numbers.get(row.best_id),
                [(t.turn, t.action, numbers.get(t.parent_id), t.messages, t.source, t.report.failure,
                t.report.correct) for t in turns],
            )  # fmt: skip
        return found


@pytest.mark.slow
def test_every_trajectory_is_finished_and_the_lanes_say_how_busy_they_were(batched):
    told = json.loads((batched.parent / "report" / "report.json").read_text())
    [group] = told["groups"]
    assert (group["figures"]["samples"], group["figures"]["unfinished"]) == (6, 0)
    kernels = sorted((batched.parent / "report" / "kernels").iterdir())
    assert [kernel.name.partition("_sample")[0] for kernel in kernels] == ["fused_silu"] * 2 + [
        "vector_add"
    ] * 2
    assert all("class ModelNew" in kernel.read_text() for kernel in kernels)
    with Store.open(batched, readonly=True) as store:
        rows = store.trajectories(TrajectoryFilter(run="three"), newest=False)
    assert {(row.problem, row.sample, row.stop_reason) for row in rows} == {
        (problem, sample, reason)
        for problem, reason in [
            ("fused_silu", "target_reached"),
            ("vector_add", "target_reached"),
            ("row_sum", "format_errors"),
        ]
        for sample in (0, 1)
    }


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_compiler_drafts_in_a_batch_too_where_the_policy_is_wrong_and_the_report_says_so(
    tmp_path, wrong
):
    """By the defaults of the command; a scripted policy alone keeps to its script, so the settings say `auto`."""
    settings = Settings(policy="scripted:wrong", draft="auto", budgets=Budgets(turns=2))
    found = run_batch(
        [find_by_name("fused_silu")], ScriptedPolicy([wrong]), settings, name="both", samples=1,
        folder=tmp_path / "report", db=str(tmp_path / "both.db"), workers=1,
    )  # fmt: skip
    [group] = found.report.groups
    assert (group.figures.correct.value, group.figures.solved_by_compiler) == (1.0, 1)
    assert (
        "| correct by the compiler's draft | 1 of 1 sample |"
        in (tmp_path / "report" / "report.md").read_text()
    )
    with Store.open(tmp_path / "both.db", readonly=True) as store:
        [row] = store.trajectories()
        assert [turn.completion.origin for turn in store.turns(row.id)] == [
            Origin.POLICY,
            Origin.COMPILER,
        ]


@pytest.mark.slow
@pytest.mark.nightly
def test_killed_at_random_moments_the_same_command_completes_and_nothing_differs(
    tmp_path, batched, batch_script
):
    """`kill -9`; the result equals that of the batch that was never interrupted."""
    asked = (
        "fused_silu",
        "vector_add",
        "row_sum",
        "--samples",
        "2",
        "--run",
        "three",
        "--policy",
        f"scripted:{batch_script}",
    )
    dice = random.Random(7)
    for _ in range(3):
        line, how = command(tmp_path, *asked, "--db", "killed.db")
        process = subprocess.Popen(
            line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **how
        )
        wait_for_turns(process, tmp_path / "killed.db")
        time.sleep(dice.random())
        process.kill()
        process.wait()
    done = batch(tmp_path, *asked, "--db", "killed.db")
    assert done.returncode == Exit.DONE, done.stderr
    assert history(tmp_path / "killed.db") == history(batched)
    again = batch(tmp_path, *asked, "--db", "killed.db")
    assert json.loads(again.stdout)["standing"]["here"] == 0, "nothing is left to do"


def wait_for_turns(process, path):
    """Until this process has written something, or ended."""
    before = turns(path)
    for _ in range(8000):
        if process.poll() is not None or turns(path) > before:
            return
        time.sleep(0.05)


def turns(path):
    """0 also while the database is being made."""
    try:
        with Store.open(path, readonly=True, create=False) as store:
            return store.count()
    except StoreError:
        return 0


@pytest.mark.slow
def test_an_interrupt_pauses_every_run_and_the_same_command_goes_on(tmp_path, unfinished):
    script = tmp_path / "slow.json"
    script.write_text(json.dumps({"answers": [unfinished(k) for k in range(6)], "seconds": 0.5}))
    asked = (
        "fused_silu",
        "row_sum",
        "--policy",
        f"scripted:{script}",
        "--turns",
        "6",
        "--db",
        "runs.db",
    )
    line, how = command(tmp_path, *asked)
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **how)
    wait_for_turns(process, tmp_path / "runs.db")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=500)
    assert process.returncode == Exit.INTERRUPTED, err
    standing = json.loads(out)["standing"]
    assert standing["done"] == 0
    assert standing["paused"] >= 1, "the other one may not have begun"
    with Store.open(tmp_path / "runs.db", readonly=True) as store:
        assert {(row.stop_reason, row.finished, row.owner) for row in store.trajectories()} == {
            ("interrupted", None, "")
        }
    done = batch(tmp_path, *asked)
    assert done.returncode == Exit.DONE, done.stderr
    with Store.open(tmp_path / "runs.db", readonly=True) as store:
        assert [len(store.turns(row.id)) for row in store.trajectories()] == [6, 6]
        assert len(store.trajectories()) == 2, "the same ones"


def test_samples_and_another_policy_are_added_to_a_run(tmp_path, unfinished):
    problems, where = [find_by_name("fused_silu")], str(tmp_path / "runs.db")

    def go(name, samples):
        policy = ScriptedPolicy([unfinished(1), "no", "no", "no"])
        settings = Settings(policy=name)
        return run_batch(
            problems,
            policy,
            settings,
            name="grows",
            samples=samples,
            folder=tmp_path / "out",
            db=where,
        )

    assert go("scripted:one", 1).standing.here == 1
    more = go("scripted:one", 3)
    assert (more.standing.jobs, more.standing.done, more.standing.here) == (3, 3, 2)
    other = go("scripted:two", 2)
    assert other.standing.here == 2
    assert [group.label for group in other.report.groups] == ["scripted:one", "scripted:two"]
    assert other.report.against[0].second == "scripted:two"


@pytest.mark.slow
def test_of_several_samples_the_first_is_the_likeliest_and_the_others_are_drawn(tmp_path):
    """A small policy answers greedily first: once said, that teaches nobody anything, and two answers alike are one."""
    where = str(tmp_path / "runs.db")
    settings = Settings(policy="embedded", budgets=Budgets(turns=1))
    with closing(open_embedded(device="cpu")) as policy:
        run_batch(
            [find_by_name("fused_silu")],
            policy,
            settings,
            name="drawn",
            samples=3,
            folder=tmp_path / "out",
            db=where,
        )
    with Store.open(where, readonly=True) as store:
        turns = [
            store.turns(row.id)[0]
            for row in sorted(store.trajectories(), key=lambda row: row.sample)
        ]
    assert [turn.sampling.temperature for turn in turns] == [
        0.0,
        EXPLORING_TEMPERATURE,
        EXPLORING_TEMPERATURE,
    ]
    assert [turn.completion.exact for turn in turns] == [False, True, True]
    assert len({turn.sampling.seed for turn in turns}) == 3


def test_a_trajectory_that_another_process_works_on_is_left_to_it(tmp_path, unfinished):
    """Two batches on one database: each does what the other has not taken."""
    problems, where = (
        [find_by_name("fused_silu"), find_by_name("row_sum")],
        str(tmp_path / "runs.db"),
    )
    settings = Settings(policy="scripted:two", prompt_version=Prompts(PromptForm.CHAT).version)
    policy = ScriptedPolicy([unfinished(1), "no", "no", "no"])
    options = {"name": "shared", "samples": 1, "folder": tmp_path / "out", "db": where}
    with Store.open(where) as other:
        held = other.begin(settings.start(problems[0]), run_id=other.open_run("shared").id)
        standing = run_batch(problems, policy, settings, **options).standing
        assert (standing.done, standing.busy_elsewhere) == (1, 1)
        other.pause(held.id, "interrupted")
    assert run_batch(problems, policy, settings, **options).standing.done == 2
    with pytest.raises(InputError, match="no run 'nobody'"):
        run_batch(problems, policy, settings, **options, against="nobody")


@pytest.mark.slow
def test_a_wrong_key_stops_the_batch_at_once_and_says_so(tmp_path):
    from tests.policies.loopback import loopback

    def no_entry(handler):
        handler.say({"error": {"message": "invalid key", "code": "invalid_api_key"}}, status=401)

    with loopback(no_entry) as server:
        done = batch(tmp_path, "catalogue", "--policy", f"openai:m@{server.url}", "--at-once", "2")
        assert len(server.asked) <= 2, "56 problems, and nobody asks again"
    assert done.returncode == Exit.BAD_INPUT
    assert "key" in done.stderr
    assert [
        line for line in done.stderr.splitlines() if not line.startswith("[")
    ] == done.stderr.splitlines()[-1:]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing to do"),
        (("nobody's problem at all",), "no problem"),
        (("kernelbench", "--path", "nowhere"), "no KernelBench at nowhere"),
        (("nowhere.parquet",), "nowhere.parquet"),
        (("fused_silu", "--policy", "gpt"), "no policy 'gpt'"),
        (("fused_silu", "--samples", "0"), "--samples"),
        (("fused_silu", "--tune"), "--tune times kernels on a GPU"),
    ],
)
def test_what_cannot_be_used_is_refused_in_one_line(tmp_path, arguments, said):
    done = batch(tmp_path, *arguments)
    assert done.returncode == Exit.BAD_INPUT, done.stdout + done.stderr
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_every_problem_gets_its_first_sample_before_any_gets_its_second():
    problems = [find_by_name("fused_silu"), find_by_name("row_sum")]
    assert [(job.problem.name, job.sample) for job in list_jobs(problems, 2)] == [
        ("fused_silu", 0), ("row_sum", 0), ("fused_silu", 1), ("row_sum", 1),
    ]  # fmt: skip


def test_problems_are_chosen_from_suites_folders_and_files_each_once(tmp_path):
    (tmp_path / "mine.py").write_text(find_by_name("mish").source)
    found = choose_problems(["fused_silu", "fused silu", str(tmp_path)])
    assert [problem.name for problem in found] == ["fused_silu", "mine.py"]
    assert len(choose_problems(["catalogue"], limit=3)) == 3
    assert default_run(["kernelbench"], 1) == "kernelbench-level1"
    assert default_run(["fused_silu", "mish"], None) == "fused_silu-and-1-more"
    with pytest.raises(InputError):
        choose_problems([])


def test_a_log_line_of_a_batch_says_how_far_it_is_and_what_it_is_doing():
    from types import SimpleNamespace

    from kernelwright.agent.batch.runs import BatchStatus, RunActivity
    from kernelwright.agent.viewing.show.batch import LiveBatch

    standing = BatchStatus(
        jobs=9,
        done=2,
        here=2,
        correct=1,
        faster=0,
        paused=0,
        busy_elsewhere=0,
        seconds=3.0,
        lanes=(),
    )
    doing = [RunActivity("fused_silu", 0, 2, "repair", "waiting for the model", None)]
    shown = LiveBatch()
    shown.say("opening the policy")
    assert shown.line() == "opening the policy"
    shown.watch(SimpleNamespace(standing=standing, pausing=False, doing=doing))
    counts = "2 of 9 done, 1 correct here, 0 faster than eager"
    assert shown.line() == f"{counts}; fused_silu, turn 2, repair: waiting for the model"
    shown.watch(SimpleNamespace(standing=standing, pausing=True, doing=doing))
    assert shown.line() == "pausing, 1 under way"


def test_a_log_has_a_line_for_each_kernel_that_is_written_however_fast(capsys):
    from kernelwright.agent.viewing.show.batch import LiveBatch
    from kernelwright.agent.viewing.show.rendering import FIRST_LINE_SECONDS, LineLog

    shown = LiveBatch()
    log = LineLog(shown)
    for number in (1, 2, 3):
        shown.tell(f"writing kernel {number} of 3: fused_silu, sample 0")
    log.print_events(log._started + FIRST_LINE_SECONDS)
    said = capsys.readouterr().err.splitlines()
    assert [line.partition("] ")[2] for line in said] == [
        f"writing kernel {number} of 3: fused_silu, sample 0" for number in (1, 2, 3)
    ]


def test_a_batch_tells_of_each_kernel_before_it_is_written(tmp_path, right):
    where, lines = str(tmp_path / "runs.db"), []
    problems = [find_by_name(name) for name in ("fused_silu", "vector_add")]
    settings = Settings(policy="scripted:x", budgets=Budgets(turns=1))
    run_batch(
        problems, ScriptedPolicy([right]), settings, name="told", samples=2, folder=tmp_path / "out", db=where,
        tell=lines.append,
    )  # fmt: skip
    assert lines == [f"writing kernel {k} of 2: fused_silu, sample {k - 1}" for k in (1, 2)]
    assert len(list((tmp_path / "out" / "kernels").iterdir())) == 2
