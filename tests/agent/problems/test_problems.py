"""Problems are found by the names that people give them, and what cannot be found says what to do."""

import json
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from kernelwright.agent.batch.suite_choice import choose_problems
from kernelwright.agent.problems.finding import (
    catalogue,
    find_by_name,
    load_suite,
    nearest_names,
    nearest_problems,
)
from kernelwright.agent.problems.matching import match_name
from kernelwright.agent.problems.tritonbench import refused_operators
from kernelwright.tools.problem import ProblemError, module_integers, source_hash

ROOT = Path(__file__).parents[3]
OURS = {p.name: p.source for p in catalogue()}
FENCE = "#" * 146


@pytest.fixture
def kernelbench(tmp_path: Path) -> Path:
    """A checkout laid out as KernelBench is, holding our own references."""
    for place in (
        "level1/1_Sum.py",
        "level1/23_Softmax.py",
        "level1/100_Hinge_Loss.py",
        "level2/9_Linear_GELU.py",
    ):
        file = tmp_path / "KernelBench" / place
        file.parent.mkdir(parents=True, exist_ok=True)
        name = {"1_": "row_sum", "23": "fused_softmax", "10": "hinge_loss", "9_": "linear_gelu"}[
            file.name[:2]
        ]
        file.write_text(OURS[name])
    return tmp_path


def write_parquet(file: Path, **columns: list) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table(columns), file)
    return file


@pytest.fixture
def dataset(tmp_path: Path) -> Path:
    return write_parquet(
        tmp_path / "data" / "level_1-00000-of-00001.parquet",
        code=[OURS["row_sum"], OURS["fused_softmax"]],
        level=[1, 1],
        name=["1_Sum", "23_Softmax.py"],
        problem_id=[1, 23],
    )


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("fused_softmax", "fused_softmax"),
        ("fused softmax", "fused_softmax"),
        ("  Fused Softmax ", "fused_softmax"),
        ("softmx", "fused_softmax"),
        ("a fused softmax kernel", "fused_softmax"),
        ("softmax with temperature", "softmax_temperature"),
        ("layernorm", "layer_norm"),
        ("LayerNorm", "layer_norm"),
        ("layer normalization", "layer_norm"),
        ("catalogue:rmsnorm", "rms_norm"),
        ("gemm", "matmul"),
        ("matrix multiplication", "matmul"),
        ("bmm", "batched_matmul"),
        ("flash attention", "attention"),
        ("cross entropy", "cross_entropy_loss"),
        ("quantise rows", "quantize_rows_int8"),
        ("1D convolution", "conv1d"),
        ("depthwise convolution", "depthwise_conv2d"),
        ("prefix sum", "cumsum"),
    ],
)
def test_a_name_that_is_nearly_right_finds_the_problem(asked: str, meant: str):
    assert find_by_name(asked).name == meant


@pytest.mark.parametrize("asked", ["softmx", "fused sofmaxx", "prefix sums", "lair norm"])
def test_a_problem_that_is_only_near_holds_the_name_that_was_asked_for(asked):
    assert find_by_name(asked).taken_for == asked


@pytest.mark.parametrize(
    "asked", ["fused softmax", "LayerNorm", "a fused softmax kernel", "catalogue:rmsnorm", "gemm"]
)
def test_the_words_of_a_name_in_any_spelling_are_that_name(asked):
    assert find_by_name(asked).taken_for == ""


def test_a_name_that_may_mean_two_problems_is_refused():
    names = {"row_max": (), "row_mix": ()}
    with pytest.raises(
        ProblemError, match="'row mx' may mean row_max or row_mix: name one of them"
    ):
        match_name("row mx", names)


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_problem_is_found_by_its_name_and_with_spaces(name: str):
    assert find_by_name(name).name == find_by_name(name.replace("_", " ")).name == name
    assert find_by_name(name).source == OURS[name]


@pytest.mark.parametrize(
    "asked", ["banana", "conv3d", "linear attention", "sort", "fft", "x", "kernel"]
)
def test_a_name_that_is_nothing_like_any_is_an_error_that_lists_near_ones(asked: str):
    with pytest.raises(ProblemError) as caught:
        find_by_name(asked)
    message = str(caught.value)
    assert "\n" not in message
    assert "near ones are" in message
    assert sum(name in message for name in OURS) >= 5


def test_near_names_share_words_with_what_was_asked():
    assert nearest_names("conv2d", 4)[0] == "conv2d"
    assert set(nearest_names("conv2d", 4)) == {
        "conv2d",
        "depthwise_conv2d",
        "pointwise_conv2d",
        "conv1d",
    }
    assert [p.name for p in nearest_problems("attention", 1)] == ["attention"]


def test_a_file_of_the_users_is_a_problem_with_its_own_title(tmp_path: Path):
    file = tmp_path / "model.py"
    file.write_text(OURS["row_sum"])
    found = find_by_name(str(file))
    assert (found.name, found.suite, found.title) == ("model.py", "file", "Sum of each row")
    assert find_by_name(file) == found


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"def broken(:\n", "not Python at line 1"),
        (b"x = 1\n", "lacks Model, get_inputs, get_init_inputs"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (OURS["row_sum"].replace('"rows": 5', '"lines": 5').encode(), "CPU_SIZES names lines"),
        (OURS["row_sum"].replace('"rows": 5', '"rows": -5').encode(), "positive integers"),
    ],
)
def test_a_file_that_is_no_problem_says_why_in_one_line(
    tmp_path: Path, text: bytes, complaint: str
):
    file = tmp_path / "model.py"
    file.write_bytes(text)
    with pytest.raises(ProblemError, match=complaint) as caught:
        find_by_name(file)
    assert "\n" not in str(caught.value)
    assert "model.py" in str(caught.value)


@pytest.mark.parametrize("asked", ["missing.py", "some/where", "", "."])
def test_a_path_that_is_no_file_says_so(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ProblemError, match=r"no file|no problem was named|is a folder"):
        find_by_name(asked)


@pytest.mark.parametrize(
    "asked", ["1/23", "1/23_Softmax", "1/23_Softmax.py", "level1/23", "1/softmax", "1/sofmax"]
)
def test_a_kernelbench_problem_is_found_in_a_checkout(kernelbench: Path, asked: str):
    for path in (kernelbench, kernelbench / "KernelBench", str(kernelbench)):
        found = find_by_name(f"kernelbench:{asked}", kernelbench=path)
        assert (found.name, found.suite, found.title) == (
            "kernelbench:1/23",
            "kernelbench",
            "23_Softmax",
        )
        assert found.source == OURS["fused_softmax"]


def test_a_parquet_file_and_its_folder_give_the_same_problems_as_a_checkout(
    kernelbench: Path, dataset: Path
):
    checkout = find_by_name("kernelbench:1/23", kernelbench=kernelbench)
    for path in (dataset, dataset.parent):
        assert find_by_name("kernelbench:1/23", kernelbench=path) == checkout
        assert [p.title for p in load_suite("kernelbench", path)] == ["1_Sum", "23_Softmax"]


def test_a_suite_comes_in_the_order_of_its_numbers(kernelbench: Path):
    assert [
        p.name.removeprefix("kernelbench:") for p in load_suite("kernelbench", kernelbench)
    ] == [
        "1/1",
        "1/23",
        "1/100",
        "2/9",
    ]
    assert [p.title for p in load_suite("kernelbench", kernelbench, level=2)] == ["9_Linear_GELU"]
    assert len(load_suite("catalogue")) == len(OURS)
    assert len(load_suite(str(ROOT / "agent" / "problems" / "catalogue"))) == len(OURS)


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ("kernelbench:1/24", "level 1 has 3 problems, 1 to 100"),
        ("kernelbench:1/zebra", "near ones are 1/"),
        ("kernelbench:3/1", "no level 3"),
        ("kernelbench:softmax", "LEVEL/NUMBER"),
    ],
)
def test_a_kernelbench_problem_that_is_not_there_says_what_is(
    kernelbench: Path, asked: str, complaint: str
):
    with pytest.raises(ProblemError, match=complaint):
        find_by_name(asked, kernelbench=kernelbench)


def test_a_suite_without_its_path_or_with_a_wrong_one_says_what_to_give(tmp_path: Path):
    wrong = [
        (lambda: find_by_name("kernelbench:1/1"), "--kernelbench"),
        (
            lambda: find_by_name("kernelbench:1/1", kernelbench=tmp_path / "none"),
            "no KernelBench at",
        ),
        (
            lambda: find_by_name("kernelbench:1/1", kernelbench=tmp_path),
            "holds no KernelBench problems",
        ),
        (lambda: find_by_name("tritonbench-t:relu"), "--tritonbench"),
        (lambda: load_suite("tritonbench-t", tmp_path), "holds no TritonBench-T"),
        (lambda: load_suite("kernelbench"), "needs the path"),
        (lambda: load_suite("humaneval"), "choose catalogue, kernelbench, tritonbench-t"),
        (lambda: load_suite("folder", tmp_path), "holds no problems"),
        (
            lambda: load_suite("catalogue", level=2),
            "--level is a level of KernelBench, and catalogue has none",
        ),
        (
            lambda: choose_problems(["fused softmax"], level=2),
            "and fused softmax has none: leave it out",
        ),
    ]
    for ask, complaint in wrong:
        with pytest.raises(ProblemError, match=complaint) as caught:
            ask()
        assert "\n" not in str(caught.value)


def test_a_malformed_parquet_file_says_what_it_should_hold(tmp_path: Path):
    text = tmp_path / "level_1.parquet"
    text.write_text("not parquet")
    lacking = write_parquet(tmp_path / "other.parquet", code=["x = 1"], level=[1])
    null = write_parquet(
        tmp_path / "null.parquet", code=["x = 1"], level=[None], name=["1_A"], problem_id=[1]
    )
    for file in (text, lacking, null):
        with pytest.raises(ProblemError, match="code, level, name, problem_id") as caught:
            find_by_name("kernelbench:1/1", kernelbench=file)
        assert "\n" not in str(caught.value)


OPERATOR = f'''import torch

def scaled_add(input, other, alpha=1, out=None):
    """Adds."""
    return torch.add(input, other, alpha=alpha)

{FENCE}

import torch

def test_scaled_add():
    results = {{}}
    device = 'cuda' if torch.cuda.is_available() else 'cpu'
    a = torch.arange(6.0, device='cuda').reshape(2, 3)
    unused = torch.ones(9, device=device)
    b = torch.full((2, 3), 2.0).to(device)
    b[0, 0] = 7.0
    results["test_case_1"] = scaled_add(a, b)
    alpha = 3
    results["test_case_2"] = scaled_add(a.cuda(), other=b, alpha=alpha)
    for k in range(2):
        results[k] = scaled_add(a, b)
    return results

test_results = test_scaled_add()
'''


def tritonbench_file(root: Path, name: str, text: str) -> Path:
    folder = root / "data" / "TritonBench_T_v1"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    listing = [{"file": f"{name}.py", "description": "Adds two tensors, one scaled. Then more."}]
    (root / "data" / "TritonBench_T_v1.jsonl").write_text(json.dumps(listing))
    return root


def test_an_operator_of_tritonbench_becomes_a_reference_that_runs(tmp_path: Path):
    from kernelwright.tools.references.dry_run import run_once

    root = tritonbench_file(tmp_path, "scaled_add", OPERATOR)
    found = find_by_name("tritonbench-t:scaled add", tritonbench=root)
    assert (found.name, found.suite) == ("tritonbench-t:scaled_add", "tritonbench-t")
    assert found.title == "Adds two tensors, one scaled"
    assert "unused" not in found.source
    assert "cuda" not in found.source.split("class Model")[1]
    assert run_once(found)[0].tolist() == [[7.0, 3.0, 4.0], [5.0, 6.0, 7.0]]
    second = find_by_name("tritonbench-t:scaled_add#2", tritonbench=root)
    assert run_once(second)[0].tolist() == [[21.0, 7.0, 8.0], [9.0, 10.0, 11.0]]
    assert "alpha=3" in second.source
    with pytest.raises(ProblemError, match="its test has 2 calls"):
        find_by_name("tritonbench-t:scaled_add#3", tritonbench=root)


def test_the_folder_of_a_checkout_is_read_as_the_suite_that_it_holds(
    tmp_path: Path, kernelbench: Path
):
    assert [p.name for p in load_suite(str(kernelbench), level=2)] == ["kernelbench:2/9"]
    checkout = tritonbench_file(tmp_path / "triton", "scaled_add", OPERATOR)
    assert [p.name for p in load_suite(str(checkout))] == ["tritonbench-t:scaled_add"]
    assert [p.name for p in load_suite(str(checkout / "data"))] == ["tritonbench-t:scaled_add"]


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (
            "torch.add(input, other, alpha=alpha)",
            "torch.nn.functional.dropout(input)",
            "draws random numbers",
        ),
        ("torch.add(input, other, alpha=alpha)", "input.sum().backward()", "it needs gradients"),
        (FENCE, "", "no line of #"),
        ("scaled_add(a, b)", "scaled_add([a, b], 1)", "not a tensor"),
        ("scaled_add(a, b)", "scaled_add(1, 2)", "passes no tensor"),
        ("scaled_add(a, b)", "scaled_add(*[a, b])", r"\*args"),
        ("    b = torch", "    for i in range(2): a = a + i\n    b = torch", "made by a loop"),
    ],
)
def test_an_operator_that_cannot_be_a_problem_is_refused_with_the_reason(
    tmp_path: Path, old: str, new: str, reason: str
):
    text = OPERATOR.replace(old, new).replace(
        'results["test_case_2"] = scaled_add(a.cuda(), other=b, alpha=alpha)', ""
    )
    root = tritonbench_file(tmp_path, "scaled_add", text)
    with pytest.raises(ProblemError, match=reason):
        find_by_name("tritonbench-t:scaled_add", tritonbench=root)
    assert load_suite("tritonbench-t", root) == []
    assert list(refused_operators(root)) == ["scaled_add"]


def test_sizes_may_be_arithmetic_unpacked_or_inside_a_tuple():
    source = "height = width = 8 * 4\nd, e = 3, 5\nshape = (height, 64)\nlayers = [16] * 4\nflag = True\n"
    assert module_integers(source) == {"height": 32, "width": 32, "d": 3, "e": 5}
    from kernelwright.tools.problem import inner_integers, resized

    assert inner_integers(source) == {"shape[0]": 64, "layers[0]": 16, "layers[1]": 4}
    space: dict = {}
    exec(resized(source, {"width": 9, "e": 7, "shape[0]": 5, "layers[0]": 2}), space)
    assert (space["height"], space["width"], space["e"]) == (32, 9, 7)
    assert (space["shape"], space["layers"]) == ((32, 5), [2, 2, 2, 2])
    with pytest.raises(ProblemError, match="no module-level integer named shape"):
        resized(source, {"shape": 3})


def test_finding_problems_imports_neither_torch_nor_pyarrow():
    code = (
        "import sys; from kernelwright.agent.problems.finding import find_by_name; find_by_name('softmx'); "
        "print([m for m in ('torch', 'triton', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_a_hash_is_the_same_on_every_python():
    """Known numbers, as Python 3.11 made them: databases and the files that ship hold such hashes, and 3.12 and
    3.13 dump a tree otherwise.
    """
    text = (
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x, *rest, scale: float = "
        "2.0, **more):\n"
        "        y = f'{x.shape[0]:>4} rows'\n        return [t * scale for t in (x, *rest)], y, None, "
        "lambda a: a[1:, ..., "
        "None]\n"
    )
    assert source_hash(text) == "7a17734b25dfac9e7b384f6139bdfa9b4b1ccfd54544f2df3cd544de19f9697a"


NAMED = """
import torch

class Model(torch.nn.Module):
    def __init__(self, width, kernel):
        super().__init__()

    def forward(self, x, scale, index, *more):
        return x * scale

def get_inputs():
    mask = torch.zeros((3, 67))
    return [torch.randn(12, 67) * 4, 5, torch.randint(0, 100, (4, 9)), mask.bool(), torch.randn(2, 8).view(4, 4)]

def get_init_inputs():
    return [64, (3, 5)]
"""


def test_a_size_without_a_name_is_called_after_the_argument_that_it_makes():
    from kernelwright.tools.problem import inner_integers, resized

    assert inner_integers(NAMED) == {
        "more[0].shape[0]": 3, "more[0].shape[1]": 67,
        "x.shape[0]": 12, "x.shape[1]": 67, "x.number[2]": 4, "forward.scale": 5,
        "index.low": 0, "index.high": 100, "index.shape[0]": 4, "index.shape[1]": 9,
        "more[1].number[0]": 2, "more[1].number[1]": 8, "more[1].number[2]": 4, "more[1].number[3]": 4,
        "Model.width": 64, "Model.kernel[0]": 3, "Model.kernel[1]": 5,
    }  # fmt: skip
    text = resized(NAMED, {"x.shape[1]": 31, "index.high": 7, "Model.width": 16})
    assert "torch.randn(12, 31) * 4" in text
    assert "torch.randint(0, 7, (4, 9))" in text
    assert "return [16, (3, 5)]" in text
