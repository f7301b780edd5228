"""One function pays rewards here and in the plugs, whose client has a copy of its file."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kernelwright.agent.rewards.formula import FORMULA_PRESETS, Formula, SpeedBaseline
from kernelwright.agent.rewards.scoring import ReplyForm, score
from kernelwright.agent.serving.scoring import score_of
from kernelwright.policies.base import FinishReason
from kernelwright.tools.report import Fault
from tests.rl.logged import verdict

ROOT = Path(__file__).parents[3]
OURS = ROOT / "src" / "kernelwright" / "agent" / "rewards" / "reward_parts.py"
PLUGS = ROOT / "plugs" / "kernelwright-client" / "src" / "kernelwright_client"
STOPPED = ReplyForm(finish=FinishReason.STOP)
REPORTS = {
    "right on a CPU": verdict(True),
    "right on a GPU": verdict(True, gpu=True, speedup=2.0, share=0.8),
    "slow on a GPU": verdict(True, gpu=True, speedup=0.1),
    "lazy": verdict(True, gpu=True, share=0.01),
    "narrow": verdict(True, gpu=True).with_(narrow_contract="one size"),
    **{fault.value: verdict(fault=fault) for fault in Fault},
}


@pytest.fixture(scope="module")
def plug() -> ModuleType:
    """The scores of the plugs' client, whose package is not installed here."""
    for name in ("reward_parts", "feedback", "scores"):
        spec = importlib.util.spec_from_file_location(
            f"kernelwright_client.{name}", PLUGS / f"{name}.py"
        )
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return module


def test_the_plugs_have_a_copy_of_the_file():
    assert (PLUGS / OURS.name).read_text() == OURS.read_text(), f"copy {OURS} over the plugs' file"


@pytest.mark.parametrize("preset", sorted(FORMULA_PRESETS))
@pytest.mark.parametrize("case", REPORTS)
def test_a_score_of_the_service_earns_in_a_plug_what_its_report_earns_here(plug, preset, case):
    report = REPORTS[case]
    ours = score(FORMULA_PRESETS[preset], report, STOPPED)
    status = {
        "verdict_id": "v", "state": "finished", "candidate_hash": report.candidate_hash,
        "score": score_of(report).model_dump(mode="json"),
    }  # fmt: skip
    theirs = plug.Score.of(status)
    assert theirs.reward(preset).parts == ours.parts
    if not theirs.mask:
        assert theirs.reward(preset).total == (ours.total if ours.kept else None)


def test_a_speedup_over_torch_compile_is_paid_where_the_formula_says_so():
    report = REPORTS["right on a GPU"]
    profile = report.profile.with_(speedup_compiled=1.5, speedup_compiled_low=1.25)
    over_compile = Formula(name="mine", speed=1.0, scale="ratio", baseline=SpeedBaseline.COMPILE)
    paid = score(over_compile, report.with_(profile=profile), STOPPED)
    assert paid.parts["speed"] == 1.25
    assert "torch.compile" in paid.words["speed"]
    assert score(over_compile, report, STOPPED).parts["speed"] == 0.0
