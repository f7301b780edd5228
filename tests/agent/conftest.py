"""The real tools and a real database; the policy is scripted, which is part of the product."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from kernelwright.agent.loop.run import Run
from kernelwright.agent.loop.run_verdicts import Participants, RunJudge
from kernelwright.agent.loop.settings import Settings
from kernelwright.agent.problems.finding import find_by_name
from kernelwright.agent.prompts import Prompts
from kernelwright.policies.base import Completion, Policy
from kernelwright.policies.scripted import ScriptedPolicy, open_scripted
from kernelwright.store.database import Store
from kernelwright.tools.evaluation.pipeline import Evaluator, Options

GOOD = Path(__file__).parents[1] / "kernels" / "good" / "fused_silu.py"


@pytest.fixture(scope="session")
def evaluator(tmp_path_factory) -> Iterator[Evaluator]:
    """Starts once; a program that one test had judged is known to the others."""
    with Evaluator(device="cpu", workers=1, cache_dir=tmp_path_factory.mktemp("verdicts")) as found:
        yield found


@pytest.fixture
def store(tmp_path) -> Iterator[Store]:
    with Store.open(tmp_path / "runs.db") as found:
        yield found


@pytest.fixture
def begin(store, evaluator):
    """`begin(answers, **settings)` gives a Run on the fused SiLU; the same arguments go on with the same trajectory."""

    def begun(
        answers: Sequence[str | Completion] | Policy, watch=lambda run, doing: None, **settings
    ) -> Run:
        policy = answers if isinstance(answers, Policy) else ScriptedPolicy(answers)
        version = Prompts(policy.prompt_form).version
        asked = Settings(policy="scripted:test", prompt_version=version, **settings)
        problem = find_by_name("fused_silu")
        trajectory = store.begin(asked.start(problem))
        participants = Participants(policy, RunJudge(evaluator, Options()))
        return Run(store, trajectory, problem, participants, asked, watch)

    return begun


@pytest.fixture(scope="session")
def right() -> str:
    return fenced(GOOD.read_text())


@pytest.fixture(scope="session")
def does_not_compile() -> str:
    return fenced(GOOD.read_text().replace("tl.sigmoid(x)", "tl.sigmoidal(x)"))


@pytest.fixture(scope="session")
def wrong() -> str:
    return fenced(GOOD.read_text().replace("mask=mask).to", "mask=offsets < n - 3, other=0.0).to"))


@pytest.fixture(scope="session")
def unfinished():
    """`unfinished(k)`: programs that differ, and that reading the text alone refuses: no process is started for
    them.
    """
    return lambda k: fenced(f"import triton\nimport triton.language as tl\nNUMBER = {k}\n")


def fenced(code: str) -> str:
    return f"Here it is.\n\n```python\n{code.rstrip()}\n```\n"


@pytest.fixture(scope="session")
def batch_script(tmp_path_factory, does_not_compile, right) -> Path:
    """Fused SiLU is right at the second turn, vector add after a reply without code, every other problem never."""
    adding = fenced((GOOD.parent / "vector_add.py").read_text())
    parts = [
        {"when": "functional.silu(x)", "answers": [does_not_compile, right]},
        {"when": "return x + y", "answers": ["<script>alert(1)</script> no code", adding]},
        {"answers": ["no", "still no", "never"]},
    ]
    path = tmp_path_factory.mktemp("script") / "script.json"
    path.write_text(json.dumps({"parts": parts, "seconds": 0.2}))
    return path


@pytest.fixture(scope="session")
def batched(tmp_path_factory, batch_script) -> Path:
    """The database of a finished run `three`: three problems, two samples each, judged by the real tools.

    Beside it lies its report.
    """
    from kernelwright.agent.batch.running import run_batch

    folder = tmp_path_factory.mktemp("batched")
    problems = [find_by_name(name) for name in ("fused_silu", "vector_add", "row_sum")]
    policy = open_scripted(batch_script)
    settings = Settings(policy=policy.name)
    told = {
        "name": "three",
        "samples": 2,
        "folder": folder / "report",
        "db": str(folder / "runs.db"),
    }
    run_batch(problems, policy, settings, **told)
    return folder / "runs.db"
