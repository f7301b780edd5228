"""What the same twenty candidates earn under each preset of rewards, in `rl` and in the plugs.

    python -m bench.reward_presets [--out bench/results/reward_presets.md]

The verdicts are made up, not measured: each is a report with one outcome, and with one speedup and one share of GPU
time where it is timed. `rl` reads the report; a plug reads what the service answers of it (its `score`, as JSON),
through the file that all plugs share (kernelwright_client/scores.py). Exit code 1 where the two differ.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any

from kernelwright.agent.rewards.formula import FORMULA_PRESETS
from kernelwright.agent.rewards.scoring import ReplyForm, score
from kernelwright.agent.serving.scoring import score_of
from kernelwright.policies.base import FinishReason
from kernelwright.tools.report import (
    Check,
    CompileResult,
    CorrectnessResult,
    Failure,
    Fault,
    ProfileResult,
    Report,
    Rung,
    Timing,
)

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "plugs" / "kernelwright-client" / "src" / "kernelwright_client"
MASKED = "masked"
"""What stands for a sample that must not train."""


def failed(fault: Fault, rung: Rung, passed: int = 0, made: int = 0) -> Report:
    """Returns the report of a candidate that failed, after so many of its checks had passed."""
    checks = tuple(Check(draw="own", passed=k < passed) for k in range(made))
    return Report(
        problem="p", problem_hash="p", candidate_hash="c", rung=rung,
        failure=Failure(fault=fault, message=fault.value),
        compiles=(CompileResult(target="sm_90"),) if rung not in (Rung.SOURCE, Rung.COMPILE) else (),
        interpreted=CorrectnessResult(device="cpu", interpreted=True, checks=checks) if made else None,
    )  # fmt: skip


def correct(
    speedup: float | None = None, share: float = 1.0, compiled: float | None = None
) -> Report:
    """Returns the report of a correct candidate, timed where a speedup (its lower bound) is given."""
    report = Report(
        problem="p",
        problem_hash="p",
        candidate_hash="c",
        rung=Rung.INTERPRETED,
        correct=True,
        judged_on="cpu",
    )
    if speedup is None:
        return report
    eager = timing(1.0)
    profile = ProfileResult(
        device="GPU", candidate=timing(1.0 / speedup), eager=eager, speedup=speedup * 1.02, speedup_low=speedup,
        own_share=share, speedup_compiled_low=compiled, speedup_compiled=compiled,
    )  # fmt: skip
    return report.with_(rung=Rung.PROFILE, judged_on="GPU", profile=profile)


def timing(milliseconds: float) -> Timing:
    """Returns a time without spread."""
    return Timing(
        median=milliseconds, low=milliseconds, high=milliseconds, mean=milliseconds, std=0.0, minimum=milliseconds,
        calls=100,
    )  # fmt: skip


CANDIDATES: dict[str, Report] = {
    "no code": failed(Fault.NO_CODE, Rung.SOURCE),
    "syntax error": failed(Fault.SYNTAX, Rung.SOURCE),
    "torch does the work": failed(Fault.FALLBACK, Rung.CORRECTNESS),
    "cheat": failed(Fault.CHEAT, Rung.CORRECTNESS),
    "does not compile": failed(Fault.COMPILE, Rung.COMPILE),
    "wrong at the first check": failed(Fault.MISMATCH, Rung.INTERPRETED, 0, 1),
    "wrong after 3 of 4 checks": failed(Fault.MISMATCH, Rung.INTERPRETED, 3, 4),
    "wrong precision": failed(Fault.PRECISION, Rung.CORRECTNESS, 5, 6),
    "timeout": failed(Fault.TIMEOUT, Rung.INTERPRETED),
    "crash": failed(Fault.CRASH, Rung.CORRECTNESS),
    "correct, not timed": correct(),
    "correct, 0.25x": correct(0.25),
    "correct, 0.5x": correct(0.5),
    "correct, 1x": correct(1.0),
    "correct, 1.5x": correct(1.5),
    "correct, 2x": correct(2.0),
    "correct, 4x": correct(4.0),
    "correct, 16x": correct(16.0),
    "correct, 2x, share 0.02": correct(2.0, share=0.02),
    "correct, 2x, one size alone": correct(2.0).with_(narrow_contract="one size"),
}


def plug_scores() -> ModuleType:
    """Loads the file that every plug reads scores with; the package around it needs an HTTP client."""
    for name in ("reward_parts", "feedback", "scores"):
        spec = importlib.util.spec_from_file_location(
            f"kernelwright_client.{name}", CLIENT / f"{name}.py"
        )
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    return module


def earned_in_plug(module: ModuleType, report: Report, preset: str) -> float | None:
    """Returns what a plug pays for the service's answer; None for a sample that must not train."""
    status: dict[str, Any] = {
        "verdict_id": "v", "state": "finished", "candidate_hash": report.candidate_hash,
        "score": score_of(report).model_dump(mode="json"),
    }  # fmt: skip
    total: float | None = module.Score.of(status).reward(preset).total
    return total


def earned_in_rl(report: Report, preset: str) -> float | None:
    """Returns what `rl` pays for a report; None for a sample that must not train."""
    scored = score(FORMULA_PRESETS[preset], report, ReplyForm(finish=FinishReason.STOP))
    return None if score_of(report).mask or not scored.kept else scored.total


def main() -> int:
    """Prints the table, and writes it where --out says so."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    module, differ = plug_scores(), []
    lines = [
        f"| candidate | {' | '.join(FORMULA_PRESETS)} |",
        "|---" * (len(FORMULA_PRESETS) + 1) + "|",
    ]
    for name, report in CANDIDATES.items():
        cells = []
        for preset in FORMULA_PRESETS:
            here, there = earned_in_rl(report, preset), earned_in_plug(module, report, preset)
            differ += [f"{name}, {preset}: rl {here}, plug {there}"] if here != there else []
            cells.append(MASKED if there is None else f"{there:.3f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    cells = len(CANDIDATES) * len(FORMULA_PRESETS)
    verdict = f"equal in {cells - len(differ)} of {cells} cells"
    if differ:
        verdict += f"; rl and the plugs differ: {'; '.join(differ)}"
    text = "\n".join(
        ["# Rewards of twenty candidates under each preset", "", *lines, "",
         f"`python -m bench.reward_presets`, {date.today().isoformat()}; {verdict}.", "",
         *(__doc__ or "").split("\n\n")[2:]]
    )  # fmt: skip
    print(text)
    if asked.out:
        asked.out.write_text(text, encoding="utf-8")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
