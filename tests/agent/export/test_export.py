"""Exports of a real batch, each in the form that its reader expects; and the database's own commands."""

import json

import pytest

from kernelwright.agent.export.inspect_log import inspect_log
from kernelwright.agent.export.kernelbench import pass_at_k_results, write_layout
from kernelwright.agent.export.training import (
    LeftOutCounts,
    dpo_lines,
    grpo_lines,
    select_trainable,
    sft_lines,
)
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.reporting.selecting import references, samples_of
from kernelwright.errors import InputError
from kernelwright.policies.base import Completion, FinishReason, Message, Request, Role, Usage
from kernelwright.store.database import Store
from kernelwright.store.models import Action
from kernelwright.store.records import TrajectoryStart
from kernelwright.tools.problem import Problem
from kernelwright.tools.report import Failure, Fault, ProfileResult, Report, Rung, Timing
from tests.agent.command_in_process import agent_here


def report_of(problem: Problem, correct: bool, judged_on="cpu", **more) -> Report:
    failure = None if correct else Failure(fault=Fault.MISMATCH, message="wrong")
    return Report(
        problem=problem.name, problem_hash=problem.hash, candidate_hash="c", rung=Rung.CORRECTNESS, failure=failure,
        correct=correct, judged_on=judged_on, **more,
    )  # fmt: skip


def on_gpu(problem: Problem, milliseconds: float) -> Report:
    timing = Timing(
        median=milliseconds,
        low=milliseconds,
        high=milliseconds,
        mean=milliseconds,
        std=0.0,
        minimum=milliseconds,
        calls=30,
    )
    profile = ProfileResult(
        device="NVIDIA H200",
        candidate=timing,
        eager=timing.with_(mean=1.0),
        speedup=1 / milliseconds,
    )
    return report_of(problem, True, "NVIDIA H200", profile=profile)


def judged(store, problem, report, *, text="```python\nx = 1\n```", sample=0, run=None, **drawn):
    """One finished trajectory with one turn."""
    row = store.begin(
        TrajectoryStart(problem=problem, policy="scripted"),
        run_id=run and store.open_run(run).id,
        sample=sample,
        resume=False,
    )
    prompt = (Message(role=Role.USER, content=f"write {problem.name}"),)
    candidate = store.draft(row.id, Request(messages=prompt), action=Action.DRAFT)
    usage = Usage(prompt_tokens=2, completion_tokens=3, dollars=0.0)
    store.complete(
        candidate.id,
        Completion(text=text, finish=FinishReason.STOP, usage=usage, policy="scripted", **drawn),
        "x = 1",
    )
    store.judge(candidate.id, report, rewards={"correct": float(report.correct)}, formula="test/1")
    store.finish(row.id, "turns", best_id=candidate.id if report.correct else None)
    return candidate.id


def fit(store):
    left = LeftOutCounts()
    return list(select_trainable(store.samples(), references(store, None, None), left)), left


@pytest.fixture
def softmax() -> Problem:
    return find_by_name("fused_softmax")


def test_sft_lines_are_the_correct_answers_as_conversations(batched):
    with Store.open(batched, readonly=True) as store:
        turns, left = fit(store)
        lines = list(sft_lines(turns))
    assert not left.out
    assert sorted(line["problem"] for line in lines) == ["fused_silu"] * 2 + ["vector_add"] * 2
    assert [message["role"] for message in lines[0]["messages"]][-2:] == ["user", "assistant"]
    assert all(line["correct"] and line["judged_on"] == "cpu" for line in lines)


def test_dpo_pairs_share_their_prompt_and_prefer_correct_then_clearly_faster(store, softmax):
    wrong = judged(store, softmax, report_of(softmax, False), text="wrong")
    slow = judged(store, softmax, on_gpu(softmax, 1.0), text="slow")
    fast = judged(store, softmax, on_gpu(softmax, 0.5), text="fast")
    [first] = dpo_lines(fit(store)[0])
    assert (first["candidate_id"], first["rejected_candidate_id"]) == (fast, wrong)
    assert (first["chosen"][0]["content"], first["rejected"][0]["content"]) == ("fast", "wrong")
    turns = [turn for turn in fit(store)[0] if turn.candidate_id != wrong]
    [second] = dpo_lines(turns)
    assert (second["candidate_id"], second["rejected_candidate_id"]) == (fast, slow)


def test_grpo_groups_keep_token_ids_and_log_probs_as_they_were_drawn(store, softmax):
    drawn = {
        "prompt_token_ids": (1, 2),
        "token_ids": (3, 4, 5),
        "logprobs": (-0.1, -0.25, -1.5),
        "exact": True,
    }
    judged(store, softmax, report_of(softmax, True), **drawn)
    judged(store, softmax, report_of(softmax, False), **{**drawn, "token_ids": (3, 4, 6)})
    judged(store, softmax, report_of(softmax, False))
    turns, left = fit(store)
    [group] = grpo_lines(turns, left)
    assert group["prompt_token_ids"] == (1, 2)
    assert [one["token_ids"] for one in group["completions"]] == [(3, 4, 5), (3, 4, 6)]
    assert [one["rewards"] for one in group["completions"]] == [{"correct": 1.0}, {"correct": 0.0}]
    assert list(left.out) == ["without exact token ids and log-probs"]


def test_what_is_for_measuring_held_out_or_degenerate_never_becomes_training_data(store, softmax):
    bench = softmax.model_copy(update={"suite": "kernelbench", "name": "kernelbench:1/23"})
    held = softmax.model_copy(update={"source": f"HELD_OUT = True\n{softmax.source}"})
    judged(store, bench, report_of(bench, True))
    judged(store, held, report_of(held, True))
    judged(store, softmax, report_of(softmax, True, degenerate=("zeros",)))
    turns, left = fit(store)
    assert turns == []
    assert len(left.out) == 3


@pytest.fixture
def levels(store, softmax):
    """Two problems of level 1, with hand-made verdicts; the second was judged on a CPU only."""
    first, second = (
        found.model_copy(update={"suite": "kernelbench", "name": f"kernelbench:1/{n}"})
        for found, n in [(softmax, 23), (find_by_name("row_sum"), 7)]
    )
    judged(store, first, on_gpu(first, 0.5), run="kb")
    judged(store, first, report_of(first, False, "NVIDIA H200"), run="kb", sample=1)
    judged(store, second, report_of(second, True), run="kb")
    return store


def test_kernelbench_reads_its_own_layout(levels, tmp_path):
    [folder] = write_layout(
        levels, samples_of(levels, None, "kb"), tmp_path / "kb", {"kernelbench:1/23": "23_Softmax"}
    )
    names = sorted(path.name for path in folder.iterdir())
    assert names == [
        "baseline_time_torch.json", "eval_results.json", "level_1_problem_23_sample_0_kernel.py",
        "level_1_problem_23_sample_1_kernel.py", "level_1_problem_7_sample_0_kernel.py", "pass_at_k_results.json",
    ]  # fmt: skip
    results = json.loads((folder / "eval_results.json").read_text())
    assert list(results) == ["7", "23"]
    right, wrong = results["23"]
    assert set(right) == {
        "sample_id",
        "compiled",
        "correctness",
        "metadata",
        "runtime",
        "runtime_stats",
    }
    assert (right["sample_id"], right["compiled"], right["correctness"], right["runtime"]) == (
        0,
        True,
        True,
        0.5,
    )
    assert set(right["runtime_stats"]) == {
        "mean",
        "std",
        "min",
        "max",
        "num_trials",
        "hardware",
        "device",
    }
    assert (wrong["compiled"], wrong["correctness"], wrong["runtime"], wrong["runtime_stats"]) == (
        True,
        False,
        -1.0,
        {},
    )
    [cpu] = results["7"]
    assert not cpu["correctness"], "KernelBench's word means a GPU"
    assert "not run on a GPU" in cpu["metadata"]["note"]
    assert (
        json.loads((folder / "baseline_time_torch.json").read_text())["level1"]["23_Softmax.py"][
            "mean"
        ]
        == 1.0
    )
    averages = json.loads((folder / "pass_at_k_results.json").read_text())["averages"]
    assert averages == {"avg_pass@1": 0.25}


def test_pass_at_k_of_no_results_is_empty():
    assert pass_at_k_results({})["averages"] == {}


def test_an_inspect_log_has_a_sample_for_every_trajectory(batched):
    with Store.open(batched, readonly=True) as store:
        log = inspect_log(store, "three", samples_of(store, None, "three"))
    json.dumps(log, allow_nan=False)
    assert (log["version"], log["status"], len(log["samples"])) == (2, "success", 6)
    assert {(s["id"], s["epoch"]) for s in log["samples"]} == {
        (p, e) for p in ("fused_silu", "vector_add", "row_sum") for e in (1, 2)
    }
    assert [
        s["scores"]["kernelwright"]["value"] for s in log["samples"] if s["id"] == "row_sum"
    ] == ["I", "I"]
    metrics = log["results"]["scores"][0]["metrics"]
    assert metrics["correct"]["value"] == pytest.approx(2 / 3)


def test_one_trajectory_a_run_or_all_can_be_chosen_and_nothing_else(batched):
    with Store.open(batched, readonly=True) as store:
        assert len(samples_of(store, None, None)) == len(samples_of(store, None, "three")) == 6
        assert [sample.trajectory_id for sample in samples_of(store, "2", None)] == [2]
        assert samples_of(store, "last", None)[0].trajectory_id == max(
            row.id for row in store.trajectories()
        )
        for wrong in [("1", "three"), (None, "four"), ("first", None)]:
            with pytest.raises(InputError):
                samples_of(store, *wrong)


def test_the_command_writes_every_format_and_says_what_it_cannot(batched, tmp_path):
    where = ("--db", str(batched))
    kernel = agent_here("export", "1", *where, folder=tmp_path)
    assert kernel.returncode == 0, kernel.stderr
    assert kernel.stdout.startswith("# Written by kernelwright")
    assert "not run on a GPU" in kernel.stdout.replace("\n#            ", " ")
    assert "\n# written by policy scripted" in kernel.stdout
    assert max(map(len, kernel.stdout.split("\n\n")[0].splitlines())) <= 120
    assert "these checks are not judged" in kernel.stdout
    compile(kernel.stdout, "kernel", "exec")
    done = agent_here("export", "--run", "three", "--out", "kernels", *where, folder=tmp_path)
    assert len(list((tmp_path / "kernels").glob("*.py"))) == 4, done.stderr
    turns = [
        json.loads(line)
        for line in agent_here(
            "export", "--run", "three", "--format", "jsonl", *where, folder=tmp_path
        ).stdout.splitlines()
    ]
    assert len(turns) == 14
    assert {"messages", "completion", "source", "report", "sampling"} <= set(turns[0])
    for line, said in [
        (("--format", "xml"), "choose py"),
        (("--run", "three", "--format", "kernelbench"), "none of these problems"),
        (
            ("--run", "three", "--format", "grpo"),
            "nothing here makes a line of grpo, which is made of several answers",
        ),
    ]:
        refused = agent_here("export", *line, *where, folder=tmp_path)
        assert refused.returncode == 2
        assert said in refused.stderr


def test_the_database_says_where_it_is_what_it_holds_and_finds_words(batched, tmp_path):
    where = ("--db", str(batched))
    assert agent_here("db", "path", *where, folder=tmp_path).stdout.strip() == str(batched)
    assert (
        json.loads(agent_here("db", "stats", "--json", *where, folder=tmp_path).stdout)[
            "trajectories"
        ]
        == 6
    )
    found = json.loads(
        agent_here("db", "search", "sigmoidal", "--json", *where, folder=tmp_path).stdout
    )
    assert [line["problem"] for line in found] == ["fused_silu", "fused_silu"]
    assert "sigmoidal" in agent_here("db", "search", "sigmoidal", *where, folder=tmp_path).stdout
    assert agent_here("db", "gc", *where, folder=tmp_path).returncode == 0
    assert "schema" in agent_here("db", "migrate", *where, folder=tmp_path).stdout
    assert json.loads(agent_here("db", "path", "--json", *where, folder=tmp_path).stdout) == {
        "database": str(batched)
    }
    assert json.loads(agent_here("db", "migrate", "--json", *where, folder=tmp_path).stdout)[
        "database"
    ] == str(batched)
    for line, said in [
        (("drop",), "choose path"),
        (("search",), "needs words"),
        (("stats", "more"), "take none"),
    ]:
        refused = agent_here("db", *line, *where, folder=tmp_path)
        assert refused.returncode == 2
        assert said in refused.stderr
    assert agent_here("db", "stats", "--db", "nowhere.db", folder=tmp_path).returncode == 2
