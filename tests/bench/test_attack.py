"""bench.attack: candidates in the formats of other judges, the order in which they are tried, and the table."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench.attack import LEFT_OUT, Job, stratified, tried
from bench.attack_formats import (
    ENTRY,
    candidate_text,
    definition,
    described,
    not_expressible,
    reference_text,
    solution,
)
from bench.attack_judges import case_of, flashinfer_files, sol_files
from bench.attack_table import Result, table
from bench.judge_suites import exploits, honest, problem_of

AGREE = """
import json, sys, torch
job = json.load(sys.stdin)
reference, candidate = {"__name__": "reference"}, {}
exec(compile(job["reference"], "reference", "exec"), reference)
open("candidate.py", "w").write(job["candidate"])
sys.path.insert(0, ".")
import candidate
torch.manual_seed(1)
inputs = list(reference["kernelwright_inputs"]({}, "cpu").values())
expected = reference["run"](*inputs)
if job["destination"]:
    got = torch.empty_like(expected)
    getattr(candidate, job["entry"])(got, *inputs)
else:
    got = getattr(candidate, job["entry"])(*inputs)
torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
"""


def small(name: str):
    problem = problem_of(name)
    return described(problem.with_sizes(problem.cpu_sizes).source)


@pytest.mark.parametrize("destination", [False, True])
def test_a_candidate_gives_the_reference_s_answer_through_the_entry_of_a_format(
    tmp_path: Path, destination: bool
):
    case, kernel = small("fused_softmax"), honest(["fused_softmax"])[0]
    job = {
        "reference": reference_text(case), "candidate": candidate_text(case, kernel.source, destination),
        "entry": ENTRY, "destination": destination,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", AGREE], input=json.dumps(job), capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "TRITON_INTERPRET": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_text_of_an_exploit_is_not_changed():
    entry = exploits(["works_for_five_calls"])[0]
    assert candidate_text(small("fused_softmax"), entry.source).startswith(entry.source)


def test_what_a_format_cannot_hold_is_said_in_words():
    assert "casts every input" in not_expressible("kernelbench", small("gather_rows"))
    assert "several outputs" in not_expressible("kernelbench", small("quantize_rows_int8"))
    assert not not_expressible("sol-execbench", small("quantize_rows_int8"))
    assert "state" in not_expressible("flashinfer-bench", small("layer_norm"))
    assert not not_expressible("kernelbench", small("layer_norm"))
    assert "complex64" in not_expressible(
        "pygpubench", described(problem_of("problems/conjugate.py").source)
    )
    assert not not_expressible(
        "kernelwright", described(problem_of("problems/conjugate.py").source)
    )


def test_a_definition_names_every_axis_of_the_problem():
    told = definition(small("row_sum"), custom_inputs=True)
    assert told["inputs"] == {"x0": {"shape": ["a5", "a67"], "dtype": "float32"}}
    assert told["outputs"] == {"y0": {"shape": ["a5"], "dtype": "float32"}}
    assert told["axes"] == {
        name: {"type": "const", "value": int(name[1:])} for name in ("a5", "a67")
    }


def test_a_case_is_the_same_after_its_way_through_json():
    case = small("fused_softmax")
    assert case_of(json.loads(json.dumps(case._asdict()))) == case


def test_a_problem_too_large_for_many_processes_is_put_before_our_own_judge_alone():
    whole, large = (
        described(problem_of(name).source) for name in ("fused_softmax", "problems/bytes_copied.py")
    )
    assert not not_expressible("sol-execbench", whole)
    assert "4 GiB" in not_expressible("sol-execbench", large)
    assert not not_expressible("kernelwright", large)


def test_sol_s_inputs_are_drawn_and_flashinfer_s_are_read():
    case, text = small("fused_softmax"), honest(["fused_softmax"])[0].source
    assert sol_files(case, text)[1]["inputs"] == {"x0": {"type": "custom"}}
    assert flashinfer_files(case, text, "/d")[1]["inputs"]["x0"]["tensor_key"] == "x0"
    assert solution(case, text, {"language": "triton"}, "cuda")["spec"]["entry_point"].endswith(
        ENTRY
    )


def test_every_beginning_of_the_order_holds_each_family_in_proportion():
    known = tried([])
    whole = Counter(entry.family for entry, _ in known)
    first = Counter(entry.family for entry, _ in stratified(known)[:100])
    assert all(
        abs(first[family] - 100 * count / len(known)) <= 2 for family, count in whole.items()
    )
    assert stratified(known) == stratified(list(known))


def test_exploits_that_would_harm_the_machine_are_not_tried():
    assert {e.name for e in exploits()} >= LEFT_OUT
    names = {entry.name for entry, _ in tried([])}
    assert not names & LEFT_OUT
    assert len(names) > 500


def test_the_table_counts_what_was_tried_and_what_was_left_out_for_time(tmp_path: Path):
    case = small("fused_softmax")
    jobs = [Job("pygpubench", name, "clock", "", case) for name in ("a", "b", "c")]
    results = [
        Result("pygpubench", "a", "clock", False, True, False, "", 1.0),
        Result("pygpubench", "b", "clock", False, False, True, "", 1.0),
    ]
    text, record = table(
        results, {"pygpubench": {"d": "several outputs"}}, jobs, tmp_path, "command"
    )
    assert "| pygpubench | this one | 2 | 1 | 50.0 % | 1 | 1 | 1 | 0 of 0 |" in text
    assert record["judges"][0]["left_out"] == 1
