"""The command line as a user meets it: what it prints, where, and the exit status."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.runtime import arguments as asked
from kernelwright.agent.runtime.errors import Exit
from kernelwright.errors import InputError
from kernelwright.tools.hardware.gpus import read_driver
from kernelwright.tools.hardware.targets import TARGETS
from kernelwright.tools.options import Options
from kernelwright.tools.report import Report
from tests.agent.command_in_process import agent_here

ROOT = Path(__file__).parents[3]
KERNELS = ROOT / "tests/kernels"
SOFTMAX = str(KERNELS / "good/fused_softmax.py")
SILU = str(KERNELS / "good/fused_silu.py")


def agent(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command as a user would, in a process of its own."""
    command = [sys.executable, "-m", "kernelwright.agent", *arguments]
    shown = {**os.environ, "COLUMNS": "200", "NO_COLOR": "1", **environment}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=shown, timeout=500)


def here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in this process."""
    return agent_here(*arguments, folder=ROOT)


def refused(*arguments: str) -> str:
    """The one line on stderr of a command that ends with bad input."""
    done = here(*arguments)
    assert done.returncode == Exit.BAD_INPUT, done.stderr
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.slow
def test_a_good_softmax_is_correct_and_several_targets_make_a_portability_matrix():
    targets = [part for name in ("sm_80", "sm_120", "gfx942") for part in ("--target", name)]
    done = agent("check", SOFTMAX, "--problem", "fused softmax", "--device", "cpu", *targets)
    assert done.returncode == Exit.DONE, done.stdout + done.stderr
    assert done.stdout.startswith("correct  fused_softmax")
    rows = [
        line.split()[:2]
        for line in done.stdout.splitlines()
        if line.strip().startswith(("sm_", "gfx")) and " --" not in line
    ]
    assert rows == [["sm_80", "ok"], ["sm_120", "ok"], ["gfx942", "ok"]]


def test_a_syntax_error_is_shown_with_its_caret_before_anything_heavy_starts(tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text("import triton\n\nclass ModelNew(:\n    pass\n")
    done = agent("check", str(kernel), "--problem", "fused softmax", PYTHONPROFILEIMPORTTIME="1")
    assert done.returncode == Exit.INCORRECT
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "kernelwright.agent.cli" in imported
    assert not imported & {"torch", "triton", "numpy"}
    lines = done.stdout.splitlines()
    line = next(i for i, shown in enumerate(lines) if "class ModelNew(:" in shown)
    assert lines[line].strip().startswith("3 |")
    assert lines[line + 1].strip() == "^"


def test_a_syntax_error_is_a_report_in_json_too(tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text("import torch\n\n\ndef (:\n")
    done = here("check", str(kernel), "--problem", "fused softmax", "--json")
    assert done.returncode == Exit.INCORRECT
    report = Report.model_validate_json(done.stdout)
    assert report.failure.fault == "syntax"
    assert not report.compiles


@pytest.fixture(scope="module")
def told_in_json() -> str:
    """What a check prints that was asked for its trace and for JSON."""
    asked = ("--device", "cpu", "--sizes", "3", "--show-trace", "--json", "--quiet")
    done = here("check", SILU, "--problem", "fused silu", *asked)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
def test_a_seed_repeats_a_verdict_exactly_and_sizes_says_how_many(evaluator, told_in_json):
    first = Report.model_validate_json(told_in_json)
    seed = first.interpreted.seed
    options = ("--device", "cpu", "--sizes", "3", "--seed", str(seed), "--json", "--quiet")
    done = here("check", SILU, "--problem", "fused_silu", *options)
    assert done.stderr == ""
    again = Report.model_validate_json(done.stdout)
    assert again.interpreted.seed == seed
    assert again.interpreted.tried == first.interpreted.tried
    assert again.interpreted.checks == first.interpreted.checks
    assert len([one for one in first.interpreted.tried if one.why != "small"]) == 3
    options = Options(sizes=3, seed=seed + 1, profile=False, torch_compile=False)
    other = evaluator.evaluate(find_by_name("fused_silu"), Path(SILU).read_text(), options)
    assert other.interpreted.tried != first.interpreted.tried


def test_a_trace_is_shown_before_the_verdict_which_prints_the_command_that_repeats_it():
    asked = (
        SILU,
        "--problem",
        "fused silu",
        "--device",
        "cpu",
        "--sizes",
        "1",
        "--no-profile",
        "--show-trace",
    )
    done = here("check", *asked)
    assert done.returncode == Exit.DONE, done.stdout + done.stderr
    trace, _, verdict = done.stdout.partition("\n\ncorrect  fused_silu")
    assert verdict
    assert "silu_kernel[" in trace
    assert "(x_ptr=x0" in trace
    assert "at the problem's own size" in trace
    seed = next(
        line.split()[1].rstrip(",") for line in verdict.splitlines() if line.startswith("seed ")
    )
    command = f"agent check {SILU} --problem 'fused silu' --device cpu --sizes 1 --no-profile --seed {seed}"
    assert " ".join(command.split()) in " ".join(verdict.split())


def test_the_json_of_a_check_is_a_report_with_the_trace_as_a_key_and_nothing_else(told_in_json):
    told = json.loads(told_in_json)
    report = Report.model_validate(told)
    assert report.correct
    assert report.compile.target == "sm_90"
    own, small = told["trace"]["at"]
    assert (own["sizes"], bool(small["sizes"])) == ({}, True)
    assert any("kernel" in step for step in own["trace"]["first"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kernel", "problem", "fault", "said"),
    [
        ("bad/fallback_torch_does_the_work.py", "fused_softmax", "fallback", "torch computes here"),
        ("bad/launch_host_raises_before.py", None, "launch", "^"),
        ("bad/no_kernel_torch_only.py", None, "no kernel", "none: no_kernel"),
    ],
)
def test_a_trace_of_a_candidate_that_fails_shows_where(kernel, problem, fault, said):
    path = KERNELS / kernel
    problem = problem or path.read_text().splitlines()[0].removeprefix("# problem:").strip()
    done = here(
        "check", str(path), "--problem", problem, "--device", "cpu", "--sizes", "0", "--show-trace"
    )
    assert done.returncode == Exit.INCORRECT, done.stdout + done.stderr
    trace, _, verdict = done.stdout.partition(f"\n\n{fault}  {problem}")
    assert said in trace
    assert f": {fault}: " in verdict


def test_a_text_that_does_not_parse_has_no_trace(tmp_path):
    kernel = tmp_path / "kernel.py"
    kernel.write_text("class ModelNew(:\n")
    done = here("check", str(kernel), "--problem", "fused softmax", "--show-trace", "--json")
    assert done.returncode == Exit.INCORRECT
    told = json.loads(done.stdout)
    assert "trace" not in told
    assert told["explanation"].startswith("ended at source: syntax: ")


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("no_such_package_at_all", "no package of that name is installed"),
        ("triton.language", "give the whole package, triton"),
        ("numpy,not a name", "no package of that name is installed"),
    ],
)
def test_a_package_that_cannot_be_allowed_is_refused(asked, said):
    assert said in refused("check", SOFTMAX, "--problem", "fused softmax", "--allow-import", asked)


def test_allowed_packages_are_comma_separated_or_repeated_and_taken_once():
    from kernelwright.agent.command_line.check import allowed_packages

    assert allowed_packages(["numpy, torch", "numpy", "rich"]) == ("numpy", "torch", "rich")
    assert allowed_packages([]) == ()


LIBRARY = """\
import torch, triton, triton.language as tl

@triton.jit
def silu_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    tl.store(out_ptr + i, (x * tl.sigmoid(x)).to(out_ptr.dtype.element_ty), mask=i < n)

def silu(x):
    out = torch.empty_like(x)
    silu_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""
USES_IT = """\
import torch.nn as nn
from own_kernels.activations import silu

class ModelNew(nn.Module):
    def forward(self, x):
        return silu(x.contiguous())
"""


@pytest.mark.slow
def test_kernels_of_a_package_are_judged_where_it_is_allowed_and_nowhere_else(tmp_path):
    """An engineer's own package with sibling files, found on PYTHONPATH."""
    package = tmp_path / "own_kernels"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "activations.py").write_text(LIBRARY)
    (tmp_path / "kernel.py").write_text(USES_IT)
    asked = ("check", str(tmp_path / "kernel.py"), "--problem", "fused_silu", "--device", "cpu", "--sizes", "1",
        "--show-trace")  # fmt: skip
    allowed = agent(*asked, "--allow-import", "own_kernels", PYTHONPATH=f"{tmp_path}:{ROOT}/src")
    assert allowed.returncode == Exit.DONE, allowed.stdout + allowed.stderr
    assert "own_kernels.activations.silu_kernel[" in allowed.stdout
    refused_one = agent(*asked, PYTHONPATH=f"{tmp_path}:{ROOT}/src")
    assert refused_one.returncode == Exit.INCORRECT
    assert "--allow-import own_kernels allows it" in " ".join(refused_one.stdout.split())


@pytest.mark.parametrize(
    "options", [("--seed", "-1"), ("--seed", "x"), ("--sizes", "-1"), ("--sizes", "65")]
)
def test_an_impossible_seed_or_count_of_sizes_is_refused(options):
    assert options[0] in refused("check", SOFTMAX, "--problem", "fused softmax", *options)


def test_a_missing_file_is_refused(tmp_path):
    assert "there is no file" in refused(
        "check", str(tmp_path / "gone.py"), "--problem", "fused softmax"
    )


def test_a_folder_is_refused(tmp_path):
    assert "is a folder" in refused("check", str(tmp_path), "--problem", "fused softmax")


@pytest.mark.parametrize("content", [b"\x7fELF\x02\x01\xff\xfe", b"x = 1\0"])
def test_a_file_that_is_not_text_is_refused(tmp_path, content):
    binary = tmp_path / "kernel.py"
    binary.write_bytes(content)
    assert "not" in refused("check", str(binary), "--problem", "fused softmax")


def test_an_unknown_problem_is_refused_and_near_ones_are_named():
    assert "softmax" in refused("check", SOFTMAX, "--problem", "fused softmacs of nothing known")


def test_an_unknown_target_is_refused_and_the_known_ones_are_named():
    said = refused("check", SOFTMAX, "--problem", "fused softmax", "--target", "sm_13")
    assert all(target in said for target in TARGETS)


def test_an_unknown_device_is_refused():
    assert "auto, cpu or cuda:N" in refused(
        "check", SOFTMAX, "--problem", "fused softmax", "--device", "tpu"
    )


def test_a_gpu_that_is_not_there_is_refused():
    said = refused("check", SOFTMAX, "--problem", "fused softmax", "--device", "cuda:63")
    assert "cuda:63" in said


@pytest.mark.parametrize(
    "share", ["share:0", "share:1.5", "share:most", "share", "lax", "share:nan"]
)
def test_an_impossible_share_of_own_work_is_refused(share):
    with pytest.raises(InputError, match="strict, report or share:P"):
        asked.own_work_mode(share)


@pytest.mark.parametrize("mode", ["strict", "report", "share:0.5", "share:1"])
def test_own_work_is_taken_as_it_was_written(mode):
    assert asked.own_work_mode(mode) == mode


def test_an_unknown_option_and_an_unknown_command_are_one_line_each():
    assert "--turbo" in refused("check", SOFTMAX, "--turbo")
    assert "chekc" in refused("chekc")


def test_a_refusal_is_one_line_of_the_process_too(tmp_path):
    done = agent("check", str(tmp_path / "gone.py"), "--problem", "fused softmax")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (Exit.BAD_INPUT, "", 1)
    assert "there is no file" in done.stderr


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        (("report",), "'id': A trajectory's number, last, or a run's name"),
    ],
)
def test_what_was_not_given_is_named_with_what_it_may_be(command, missing):
    assert f"{missing} (see agent {command[0]} --help)" in refused(*command)


def test_targets_are_named_properly_and_taken_once():
    assert asked.choose_targets(["h100", "sm_90", "9.0", "mi300x"], "cpu") == ("sm_90", "gfx942")
    assert asked.choose_targets([], "cpu") == ("sm_90",)


def test_the_device_is_the_cpu_where_there_is_no_gpu():
    assert asked.choose_device("cpu") == "cpu"
    if not read_driver().gpus:
        assert asked.choose_device("auto") == "cpu"
        with pytest.raises(InputError, match="CUDA finds no GPU here"):
            asked.choose_device("cuda")


@pytest.mark.gpu
def test_the_device_is_the_first_gpu_where_there_is_one():
    assert asked.choose_device("auto") == "cuda:0"
    assert asked.choose_targets([], "cuda:0") == (read_driver().gpus[0].target,)


def test_the_doctor_says_what_it_found():
    done = agent("doctor")
    assert "isolation" in done.stdout
    assert "triton" in done.stdout
    assert done.returncode == Exit.DONE


def test_the_doctor_speaks_json():
    found = json.loads(here("doctor", "--json").stdout)
    assert found["machine"]["versions"]["torch"]
    assert all(trouble["fix"] for trouble in found["troubles"])


def test_the_catalogue_is_listed():
    done = here("problems")
    assert done.returncode == Exit.DONE
    assert "fused_softmax" in done.stdout


def test_problems_near_a_query_come_first():
    names = [
        problem["name"]
        for problem in json.loads(here("problems", "fused softmax", "--json").stdout)
    ]
    assert names[0] == "fused_softmax"


def test_the_version_names_what_a_verdict_depends_on():
    said = agent("version").stdout
    assert [line.split()[0] for line in said.splitlines()] == [
        "kernelwright",
        "torch",
        "triton",
        "python",
    ]


@pytest.mark.parametrize(
    ("given", "silent"), [({}, True), ({"HF_HUB_DISABLE_TELEMETRY": "0"}, False)]
)
def test_libraries_report_nothing_to_their_makers_unless_the_user_lets_them(given, silent):
    code = (
        "from kernelwright.rl.cli import main\n"
        "try: main(['average'])\n"
        "except SystemExit: pass\n"
        "from huggingface_hub import constants; print(constants.HF_HUB_DISABLE_TELEMETRY)\n"
    )
    surroundings = {k: v for k, v in os.environ.items() if "TELEMETRY" not in k} | given
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=surroundings, capture_output=True, text=True
    )
    assert done.stdout == f"{silent}\n", done.stderr
