"""`agent solve` on modules that nobody foresaw: the compiler drafts where the policy that ships does not reach the
goal.
"""

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from rich.text import Text

from kernelwright.agent.cli import main
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.problems.forms_of_users.normal_form import normal_form
from kernelwright.agent.runtime.errors import InputError
from kernelwright.agent.solve.drafting import Drafter, DraftKind, draft_kind, varied_sources
from kernelwright.agent.solve.solving import Solved
from kernelwright.agent.viewing.show.outcomes import solved_view
from kernelwright.policies.base import Message, Request, Role
from kernelwright.policies.inductor.draft import Draft
from kernelwright.policies.inductor.policy import CompilerPolicy
from kernelwright.tools.problem import Problem

ROOT = Path(__file__).parents[3]
MODULES = sorted((ROOT / "tests" / "policies" / "modules").glob("*.py"))
PARTLY = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        factor = torch.linalg.cholesky(x @ x.transpose(-1, -2) + 8 * torch.eye(x.shape[-2], device=x.device))
        return torch.nn.functional.gelu(factor * 2)


def get_inputs():
    return [torch.randn(4, 16, 24)]


def get_init_inputs():
    return []
"""
RANDOM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return []
"""
NUMBER = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, columns, limit):
        super().__init__()
        self.columns, self.limit = columns, limit

    def forward(self, x):
        return torch.min(x, torch.tensor(self.limit)) + torch.full_like(x, self.columns**-0.5)


def get_inputs():
    return [torch.randn(8, 16)]


def get_init_inputs():
    return [16, 0.5]
"""


def solve(problem: Path, folder: Path, *arguments: str) -> dict:
    command = [
        sys.executable,
        "-m",
        "kernelwright.agent",
        "solve",
        str(problem),
        "--device",
        "cpu",
        "--json",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [*command, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


@pytest.fixture
def solve_here(tmp_path: Path, monkeypatch, capsys):
    """`solve_here(problem, *arguments)`: as `solve`, in this process, which has torch and a judge already."""
    monkeypatch.chdir(tmp_path)

    def solved(problem: Path, *arguments: str) -> dict:
        with pytest.raises(SystemExit):
            main(["solve", str(problem), "--device", "cpu", "--json", *arguments])
        return json.loads(capsys.readouterr().out)

    return solved


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_compiler_alone_solves_a_module_that_no_policy_was_trained_on(
    tmp_path: Path, solve_here
):
    gated = next(p for p in MODULES if p.stem == "gated_mlp")
    solved = solve_here(gated, "--policy", "compiler")
    assert solved["correct"], solved["report"]["failure"]
    assert "class ModelNew" in (tmp_path / solved["output"]).read_text()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_stays_in_torch_by_partial_is_said(tmp_path: Path, solve_here):
    (tmp_path / "partly.py").write_text(PARTLY)
    refused = solve_here(tmp_path / "partly.py", "--policy", "compiler")
    assert not refused["correct"]
    assert any("--partial" in option for option in refused["next_steps"]["options"])
    solved = solve_here(tmp_path / "partly.py", "--policy", "compiler", "--partial")
    assert solved["correct"], solved["report"]["failure"]
    assert "linalg_cholesky_ex" in solved["left_to_torch"]
    assert 0 < solved["own_share"] < 1
    printed = Text()
    for line in Console(width=200).render_lines(solved_view(Solved.model_validate(solved))):
        printed.append("".join(segment.text for segment in line))
    assert "linalg_cholesky_ex" in printed.plain
    assert "; own kernels do" in printed.plain


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "module", [m for m in MODULES if m.stem != "top_k_router"], ids=lambda m: m.stem
)
def test_a_user_s_module_is_solved_by_both_drafts_together(module: Path, tmp_path: Path):
    assert solve(module, tmp_path, "--turns", "3")["correct"]


def test_the_first_draft_comes_from_whom_the_option_names(tmp_path: Path):
    assert draft_kind("auto", "scripted:answers.json") == DraftKind.POLICY
    assert draft_kind("auto", "embedded") == DraftKind.AUTO
    assert draft_kind("policy", "compiler") == DraftKind.COMPILER
    with pytest.raises(InputError, match="--draft is auto, policy, compiler or a file"):
        draft_kind(str(tmp_path / "none.py"), "embedded")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "there is no code"),
        ("print('my own file')\n", "no `class ModelNew`"),
        ("class ModelNew(:\n", "syntax error at line 1"),
        (b"\xff\xfe\x00", "not text in UTF-8"),
    ],
)
def test_a_file_that_holds_no_kernel_is_no_first_candidate(
    tmp_path: Path, content: str | bytes, reason: str
):
    file = tmp_path / "mine.py"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match=reason):
        draft_kind(str(file), "embedded")
    file.write_text("class ModelNew: ...\n")
    assert draft_kind(str(file), "embedded") == str(file)
    with pytest.raises(InputError, match="name a model with --policy"):
        draft_kind(str(file), "compiler")


def test_a_saved_reply_is_a_first_candidate_too(tmp_path: Path):
    file = tmp_path / "reply.md"
    file.write_text("Here it is:\n```python\nclass ModelNew: ...\n```\n")
    with Drafter() as drafter:
        settings = Settings(policy="embedded", draft=draft_kind(str(file), "embedded"))
        policy = drafter.policy_for(CompilerPolicy(), Problem(name="p", source=RANDOM), settings)
        (answer,) = policy.sample(
            [Request(messages=(Message(role=Role.USER, content="p"),), turn=0)]
        )
    assert "Here it is" not in answer.text
    assert "class ModelNew" in answer.text


@pytest.fixture(scope="module")
def drafter() -> Iterator[Drafter]:
    with Drafter() as one:
        yield one


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_module_that_draws_random_numbers_is_refused_by_name(drafter: Drafter):
    refused = drafter.draft(Problem(name="random", source=RANDOM))
    assert isinstance(refused, Draft)
    assert not refused.usable
    said, _, advice = refused.refused.partition(": ")
    assert said == "rand_like draws random numbers at line 8 (return x + torch.rand_like(x))"
    assert advice == "give forward what it draws as an input, or put zeros in its place"


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_number_that_forward_makes_a_tensor_of_is_written_in_the_draft(drafter: Drafter):
    made = drafter.draft(Problem(name="number", source=NUMBER))
    assert made.usable, made.refused
    assert "0.5" in made.source
    assert made.fixed_sizes == ()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_draft_that_takes_too_long_is_refused_with_the_place_where_it_was():
    """Sixty layers, each with other shapes, in four seconds, of which what precedes the draft takes its part."""
    layers = "\n".join(f"        x = torch.softmax(x[:, {i}:], -1).cumsum(1)" for i in range(60))
    source = RANDOM.replace("        return x + torch.rand_like(x)", f"{layers}\n        return x")
    source = source.replace("randn(8, 16)", "randn(8, 9000)")
    with Drafter(seconds=4) as drafter:
        refused = drafter.draft(Problem(name="long", source=source))
    assert re.match(r"no draft within [1-4] s, at ", refused.refused), refused.refused
    assert refused.seconds < 12


def test_the_drafting_process_begins_while_others_prepare_and_not_where_nobody_drafts():
    problem = Problem(name="p", source=RANDOM)
    with Drafter() as drafter:
        drafter.policy_for(CompilerPolicy(), problem, Settings(policy="embedded", draft="policy"))
        assert drafter._process._zygote is None
        drafter.policy_for(CompilerPolicy(), problem, Settings(policy="embedded", draft="auto"))
        assert drafter._process._zygote is not None


def test_a_file_of_the_user_s_is_the_first_candidate(tmp_path: Path):
    kernel = tmp_path / "mine.py"
    kernel.write_text("class ModelNew: ...\n")
    with Drafter() as drafter:
        policy = drafter.policy_for(CompilerPolicy(), Problem(name="p", source=RANDOM),
            Settings(policy="embedded", draft=str(kernel)))  # fmt: skip
        (answer,) = policy.sample(
            [Request(messages=(Message(role=Role.USER, content="p"),), turn=0)]
        )
    assert answer.policy == "file"
    assert "class ModelNew" in answer.text


def test_what_the_judge_makes_smaller_is_a_size_for_the_draft_too():
    """Seen on a U-Net block: groups of eight left every drawn number of channels as it was, and the draft fixed it."""
    text = "\n".join(
        [
            "import torch",
            "import torch.nn as nn",
            "class Model(nn.Module):",
            "    def __init__(self, channels, base):",
            "        super().__init__()",
            "        self.conv = nn.Conv2d(channels, base, 3, padding=1)",
            "        self.norm = nn.GroupNorm(8, base)",
            "    def forward(self, x):",
            "        return torch.sigmoid(self.norm(self.conv(x)))",
            "def get_inputs():",
            "    return [torch.rand(2, 3, 64, 64)]",
            "def get_init_inputs():",
            "    return [3, 64]",
        ]
    )
    varied = varied_sources(Problem(name="block", source=text))
    assert any("return [3, 64]" not in source for source in varied)


LAYERS = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, inside, hidden):
        super().__init__()
        sizes = [inside, *hidden]
        self.layers = nn.Sequential(*(nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])))

    def forward(self, x):
        return self.layers(x)

inside = 384
hidden = [256] * 12

def get_inputs():
    return [torch.randn(512, inside)]

def get_init_inputs():
    return [inside, hidden]
"""


@pytest.mark.timeout(300)
def test_the_layers_that_a_small_size_lacks_have_sizes_too(drafter: Drafter):
    """The CPU's sizes have fewer layers; the twelfth varies as the first does."""
    made = drafter.draft(Problem(name="layers", source=LAYERS))
    assert made.usable, made.refused
    assert made.fixed_sizes == ()
    assert not re.search(r"\b256\b", made.source.partition("class ModelNew")[2])


SIZES_OF_SIZES = """
import copy
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        layer = nn.Linear(width, width)
        self.layers = nn.ModuleList([copy.deepcopy(layer) for _ in range(2)])
        waves = 1.0 / 1e4 ** (torch.arange(0, width, 2).float() / width)
        angles = torch.outer(torch.arange(64).float(), waves)
        self.register_buffer("angles", torch.cat((angles, angles), dim=-1))

    def forward(self, x, places):
        rows, columns = x.shape
        x = self.layers[1](self.layers[0](x)) * self.angles[places]
        return x / torch.tensor([rows, columns]).float().prod()

def get_inputs():
    return [torch.randn(24, 32), torch.randint(0, 64, (24,))]

def get_init_inputs():
    return [32]
"""


@pytest.mark.timeout(300)
def test_copied_layers_even_widths_and_tensors_of_sizes_keep_sizes_free(drafter: Drafter):
    made = drafter.draft(Problem(name="sizes of sizes", source=SIZES_OF_SIZES))
    assert made.usable, made.refused
    assert made.fixed_sizes == ()
    assert not re.search(
        r"\b(16|32)\b", made.source.partition("def forward")[2].split("_kernel[")[0]
    )


DECIDES = """
import torch
import torch.nn as nn

tokens, width = 48, 32

class Model(nn.Module):
    def forward(self, x):
        if x.shape[0] == tokens:
            return x.relu()
        return x.tanh()

def get_inputs():
    return [torch.randn(tokens, width)]

def get_init_inputs():
    return []
"""


@pytest.mark.timeout(300)
def test_a_draft_refuses_the_sizes_that_it_is_not_for(drafter: Drafter):
    made = drafter.draft(Problem(name="decides", source=DECIDES))
    assert made.usable, made.refused
    assert made.fixed_sizes == ("x.shape[0]",)
    namespace: dict[str, Any] = {}
    source = made.source.replace("@triton.jit", "")
    exec(source, namespace)
    with pytest.raises(ValueError, match="first lines of its file"):
        namespace["ModelNew"]().forward(torch.randn(47, 32))
    assert "x.shape[0]" in source.partition("import ")[0]


CHANCE = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, entries, width):
        super().__init__()
        self.table, self.width = nn.Embedding(entries, width), width

    def forward(self, x):
        rows = x.permute(0, 2, 1).reshape(-1, self.width)
        nearest = torch.cdist(rows, self.table.weight).argmin(1)
        return self.table.weight[nearest].view(x.shape[0], x.shape[2], x.shape[1])

def get_inputs():
    return [torch.randn(4, 16, 32)]

def get_init_inputs():
    return {"entries": 24, "width": 16}
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_sizes_that_are_equal_by_chance_stay_two_and_a_dict_names_the_constructor_s_arguments(
    drafter: Drafter,
):
    made = drafter.draft(Problem(name="chance", source=normal_form(CHANCE)))
    assert made.usable, made.refused
    assert made.fixed_sizes == ()
    assert "x.shape" in made.source


@pytest.mark.slow
def test_a_draft_under_way_is_given_up_when_nobody_drafts_any_more():
    """The process that would draft it is still importing torch."""
    problem, begun = (
        Problem(name="late", source=MODULES[0].read_text(encoding="utf-8")),
        threading.Event(),
    )
    raised: list[BaseException] = []
    with Drafter(lambda step: begun.set()) as drafter:

        def ask() -> None:
            try:
                drafter.draft(problem)
            except BaseException as error:
                raised.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        assert begun.wait(60)
        drafter.stop_drafting()
        asking.join(20)
        assert not asking.is_alive()
        assert [type(error) for error in raised] == [KeyboardInterrupt]
        with pytest.raises(KeyboardInterrupt):
            drafter.draft(problem)
