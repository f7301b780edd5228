"""A problem that cannot tell wrong from right is found out, and a broken one stops nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelwright.tools.manifests import manifest as module
from kernelwright.tools.manifests.manifest import (
    Manifest,
    Passing,
    load_manifest,
    read_manifests,
    write_manifests,
)
from kernelwright.tools.manifests.measuring import measure_manifest
from kernelwright.tools.manifests.sizes import fitting_sizes
from kernelwright.tools.manifests.suite import (
    compute_suite,
    manifest_suite,
    suite_problems,
    summary,
)
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import InfrastructureError

CATALOGUE = Path(__file__).parents[3] / "agent" / "problems" / "catalogue"


def _problem(
    forward,
    inputs="torch.randn(rows, columns)",
    init="pass",
    names="x",
    name="made",
    extra="",
    init_inputs="[]",
):
    return Problem(
        name=name,
        source=f"""
import torch
import torch.nn as nn
import torch.nn.functional as F
batch_size = 16
rows = 24
columns = 65
{extra}
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {init}
    def forward(self, {names}):
        {forward}
def get_inputs():
    return [{inputs}]
def get_init_inputs():
    return {init_inputs}
""",
    )


RAND = "torch.rand(rows, columns)"


def test_an_honest_problem_has_nothing_that_passes_and_its_facts_are_there():
    m = measure_manifest(
        _problem(
            "return torch.relu(self.net(x)) + x", init="self.net = nn.Linear(columns, columns)"
        )
    )
    assert m.passing == {}
    assert m.degenerate == m.degenerate_kb == m.dead == ()
    assert m.tried > 8
    assert 0 < m.eager_rms < 1e-6
    assert m.work.products == 2 * 24 * 65 * 65
    assert m.finite
    assert not m.random


def test_an_output_that_is_always_zero_is_degenerate_for_everybody():
    m = measure_manifest(
        _problem(
            "y = x - x.mean(1, keepdim=True); return F.gelu(y.mean(1, keepdim=True).round()) * 0"
        )
    )
    assert "zeros" in m.degenerate
    assert "zeros" in m.degenerate_kb


def test_a_relu_on_torch_rand_is_dead_for_kernelbench_and_alive_for_us():
    m = measure_manifest(_problem("return torch.relu(x)", RAND))
    assert m.passing["input_0"] == Passing(kb_fp32=True, kb_half=True, own=True, ours=False)
    assert "without_relu_0" in m.dead
    assert m.degenerate == ()


def test_a_softmax_over_many_columns_is_zero_to_kernelbench():
    m = measure_manifest(_problem("return torch.softmax(x, -1)", "torch.rand(4, 40000)"))
    assert {"zeros", "constant", "row_0", "other_input"} <= set(m.degenerate_kb)
    assert m.degenerate == ()


def test_affine_parameters_that_begin_at_one_and_zero_may_be_ignored_until_they_are_moved():
    m = measure_manifest(_problem("return self.norm(x)", init="self.norm = nn.LayerNorm(columns)"))
    assert m.passing["ignored_weights"].kb_fp32
    assert m.passing["ignored_weights"].own
    assert not m.passing["ignored_weights"].ours


def test_a_dropped_operation_is_found_dead_by_its_place():
    m = measure_manifest(_problem("return torch.clamp(torch.sigmoid(x), min=-1) * 2"))
    assert m.dead == ("without_clamp_1",)
    assert m.passing["without_clamp_1"].ours
    assert m.degenerate == ()


def test_in_place_operations_and_several_outputs_are_measured_too():
    m = measure_manifest(_problem("x.mul_(2); a = x.relu_() + 1; return a, (a.argmax(1), a > 1)"))
    assert m.failure == ""
    assert m.degenerate == ()


def test_live_dropout_is_random_and_a_plain_problem_is_not():
    assert measure_manifest(_problem("return F.dropout(x, 0.5)")).random
    assert not measure_manifest(_problem("return x.cumsum(1)")).random


def test_a_reference_of_integers_and_flags_is_measured():
    m = measure_manifest(
        _problem(
            "return x[:, :9] @ torch.ones(9, 2, dtype=x.dtype)",
            "torch.randint(0, 9, (rows, columns))",
        )
    )
    assert m.passing == {}


def test_a_manifest_is_kept_by_the_problems_hash(tmp_path):
    problem = _problem("return x * 3")
    m = measure_manifest(problem)
    assert load_manifest(problem, tmp_path) is None
    (tmp_path / f"manifest_{m.hash}.json").write_text(m.model_dump_json())
    assert load_manifest(problem, tmp_path) == m
    assert load_manifest(_problem("return x * 4"), tmp_path) is None


def test_a_file_of_manifests_comes_back_whole_and_holds_no_source(tmp_path):
    m = measure_manifest(_problem("return torch.softmax(x, -1)", "torch.rand(4, 40000)"))
    write_manifests(
        [m, Manifest(problem="other", hash="0", failure="takes over 3 s")], tmp_path / "m.json"
    )
    assert read_manifests(tmp_path / "m.json")[0] == m
    assert "softmax(" not in (tmp_path / "m.json").read_text()
    (tmp_path / "old.json").write_text(json.dumps({"schema": 0, "problems": []}))
    with pytest.raises(ValueError, match="schema"):
        read_manifests(tmp_path / "old.json")


@pytest.mark.slow
def test_a_broken_an_endless_and_a_dying_reference_stop_nothing(tmp_path):
    problems = [
        _problem("return x.no_such_thing()", name="broken"),
        _problem("import os; os._exit(3)", name="dying"),
        _problem("print('not a manifest'); return x * 2", name="good"),
    ]
    seen = []
    done = compute_suite(
        problems,
        out=tmp_path / "m.json",
        seconds=400,
        progress=lambda place, total, m: seen.append((place, total, m.problem)),
    )
    assert [bool(m.failure) for m in done] == [True, True, False]
    assert "no_such_thing" in done[0].failure
    assert "died (3)" in done[1].failure
    assert seen[-1] == (3, 3, "good")
    assert read_manifests(tmp_path / "m.json") == done
    assert "2 not measured" in summary(done)[0]
    (endless,) = compute_suite([_problem("while True: x = x + 1", name="endless")], seconds=2)
    assert "takes over 2 s" in endless.failure


def test_a_run_goes_on_where_the_last_one_stopped(tmp_path):
    problem = _problem("return x * 2")
    (kept,) = compute_suite([problem], out=tmp_path / "m.json")
    marked = kept.with_(seconds=12345.0)
    write_manifests([marked], tmp_path / "m.json")
    assert compute_suite([problem], out=tmp_path / "m.json") == [marked]


def test_a_suite_is_read_from_a_checkout(tmp_path):
    for level, name in ((1, "10_Ten.py"), (1, "9_Nine.py"), (2, "1_One.py")):
        (tmp_path / "KernelBench" / f"level{level}").mkdir(parents=True, exist_ok=True)
        (tmp_path / "KernelBench" / f"level{level}" / name).write_text("pass")
    assert [p.name for p in suite_problems("kernelbench", tmp_path)] == [
        "kernelbench:1/9",
        "kernelbench:1/10",
        "kernelbench:2/1",
    ]
    with pytest.raises(ProblemError, match="no problems"):
        suite_problems("kernelbench", tmp_path / "nowhere")


def test_full_sizes_want_a_gpu_and_say_so():
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InfrastructureError, match="no GPU"):
        manifest_suite("catalogue", CATALOGUE, device="cuda:0")


def test_a_large_batch_is_made_smaller_before_the_widths():
    big = _problem(
        "return x * 2",
        "torch.rand(many, width)",
        extra="many_batch = 4\nbatch = 1 << 3\nmany = 65536\nwidth = 4096",
    )
    assert set(fitting_sizes(big)) == {"many"}
    named = _problem(
        "return x * 2", "torch.rand(batch_size2, width)", extra="batch_size2 = 65536\nwidth = 4096"
    )
    assert set(fitting_sizes(named)) == {"batch_size2"}
    fixed = _problem("return x * 2", "torch.rand(1 << 15, 1 << 13)")
    with pytest.raises(ProblemError, match="too large"):
        fitting_sizes(fixed)
    assert fitting_sizes(fixed, long_runs=True) == {}


def test_the_shipped_manifest_knows_the_catalogue_and_finds_none_of_it_degenerate():
    for path in sorted(CATALOGUE.glob("[!_]*.py")):
        known = load_manifest(Problem(name=path.stem, source=path.read_text()))
        assert known is not None, (
            f"{path.stem} has changed: python -m kernelwright.tools.manifests.manifest --suite catalogue "
            "--path agent/problems/catalogue --out "
            "tools/manifests/data/manifest_catalogue.json"
        )
        assert known.failure == ""
        assert known.degenerate == known.degenerate_kb == ()
        assert known.work is not None


def test_the_shipped_files_hold_facts_only():
    for path in module.DATA_FOLDER.glob("manifest_*.json"):
        text = path.read_text()
        assert not any(word in text for word in ("import ", "class ", "def ", "nn.", "\\n"))
