"""What the same twenty candidates earn under each preset of rewards, in `rl` and in every plug.

    python -m bench.reward_presets [--environments FOLDER] [--out bench/results/reward_presets.md]

Thirteen verdicts are real: texts judged by `agent serve --device cpu`. Seven need a GPU's clock, and are made up of the
real verdict on the correct kernel with one speedup and one share of GPU time. `rl` reads the report; a plug reads what
the service answers of it. With --environments (those of bench/plugs.py) each plug's own entry point is asked about the
real thirteen, in its framework's environment; without, and for the seven, the file that all plugs share is
(kernelwright_client/scores.py). Exit code 1 where two of them differ.

A crash is asked about once more by every plug, and is the candidate's own when it comes twice; `rl` masks it after one
verdict, so that row shows what both pay for the second one.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import subprocess
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import httpx2

from bench.plugs import ALL, judge, python_of
from kernelwright.agent.rewards.formula import FORMULA_PRESETS
from kernelwright.agent.rewards.scoring import ReplyForm, score
from kernelwright.agent.serving.scoring import score_of
from kernelwright.policies.base import FinishReason
from kernelwright.tools.report import Fault, ProfileResult, Report, Rung, Timing

ROOT = Path(__file__).parents[1]
CLIENT = ROOT / "plugs" / "kernelwright-client" / "src" / "kernelwright_client"
PROBLEM = "fused_silu"
RIGHT = (ROOT / "tests" / "kernels" / "good" / "fused_silu.py").read_text(encoding="utf-8")
STORE = "    tl.store("
MASKED = "masked"
"""What stands for a sample that must not train."""
TORCH_ALONE = """import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)
"""
TEXTS: Mapping[str, str] = {
    "no code": "I cannot write this kernel.\n",
    "syntax error": RIGHT.replace("def forward(", "def forward(("),
    "no kernel, torch does the work": TORCH_ALONE,
    "torch does the work beside a kernel": RIGHT.replace(
        "return out", "return x * torch.sigmoid(x)"
    ),
    "patches torch in its own process, to no effect": f"{RIGHT}\n\ntorch.allclose = lambda *a, **k: True\n",
    "does not compile": RIGHT.replace("tl.store(", "tl.no_such_store("),
    "wrong everywhere": RIGHT.replace("x * tl.sigmoid(x)", "x * 1.0"),
    "wrong where the last block is not full": RIGHT.replace(
        "triton.cdiv(n, 2048)", "max(1, n // 2048)"
    ),
    "wrong for large values": RIGHT.replace(
        "x * tl.sigmoid(x)", "x * tl.sigmoid(tl.minimum(x, 3.0))"
    ),
    "wrong precision": RIGHT.replace(
        "tl.sigmoid(x)", "tl.sigmoid(x.to(tl.bfloat16).to(tl.float32))"
    ),
    "changes its input": RIGHT.replace("out = torch.empty_like(x)", "out = x"),
    "crash, twice": f"{RIGHT}\n\nimport os\n\nos._exit(7)\n",
    "correct, not timed": RIGHT,
}
"""Candidates that a CPU judges, by what is to be said of them."""
CORRECT = "correct, not timed"


def timed(report: Report, speedup: float, share: float = 1.0) -> Report:
    """Returns the report of a correct candidate with a made-up time: its lower speedup, and its share of GPU time."""
    profile = ProfileResult(
        device="GPU", candidate=timing(1.0 / speedup), eager=timing(1.0), speedup=speedup * 1.02, speedup_low=speedup,
        own_share=share,
    )  # fmt: skip
    return report.with_(rung=Rung.PROFILE, judged_on="GPU", profile=profile)


def timing(milliseconds: float) -> Timing:
    """Returns a time without spread."""
    return Timing(
        median=milliseconds, low=milliseconds, high=milliseconds, mean=milliseconds, std=0.0, minimum=milliseconds,
        calls=100,
    )  # fmt: skip


TIMED: Mapping[str, tuple[float, float]] = {
    "correct, 0.25x": (0.25, 1.0),
    "correct, 0.5x": (0.5, 1.0),
    "correct, 1x": (1.0, 1.0),
    "correct, 2x": (2.0, 1.0),
    "correct, 4x": (4.0, 1.0),
    "correct, 16x": (16.0, 1.0),
    "correct, 2x, share 0.02": (2.0, 0.02),
}
"""Speedup and share of the candidates that only a GPU could time."""


def real_verdicts(url: str) -> dict[str, Report]:
    """Has the service judge each text."""
    reports = {}
    with httpx2.Client(base_url=url, timeout=400) as http:
        for name, text in TEXTS.items():
            body = {"problem": {"name": PROBLEM}, "candidate": text}
            status = http.post("/v1/verdicts", json=body).raise_for_status().json()
            while status["state"] in ("queued", "running"):
                address = f"/v1/verdicts/{status['verdict_id']}"
                status = http.get(address, params={"wait": 60}).raise_for_status().json()
            reports[name] = Report.model_validate(status["report"])
            print(f"{name}: {status['score']['explanation']}"[:160], file=sys.stderr, flush=True)
    return reports


def of_every_plug(environments: Path, url: str) -> dict[str, dict[str, dict[str, float | None]]]:
    """Asks each plug's own entry point in its environment: plug -> preset -> candidate -> reward."""
    rewards = {}
    with TemporaryDirectory() as folder:
        texts = Path(folder) / "texts.json"
        texts.write_text(json.dumps(dict(TEXTS)), encoding="utf-8")
        for plug in ALL:
            script = ROOT / "bench" / "plug_rewards.py"
            words = [python_of(environments, plug), script, plug.name, url, PROBLEM, texts]
            done = subprocess.run(words, capture_output=True, text=True, check=True, cwd=folder)
            rewards[plug.name] = json.loads(done.stdout.splitlines()[-1])
    return rewards


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
    verdict = module.Score.of(status)
    if verdict.fault == Fault.CRASH:  # as the client settles it after the second time
        verdict = dataclasses.replace(verdict, mask=False)
    total: float | None = verdict.reward(preset).total
    return total


def earned_in_rl(report: Report, preset: str) -> float | None:
    """Returns what `rl` pays for a report; None for a sample that must not train."""
    scored = score(FORMULA_PRESETS[preset], report, ReplyForm(finish=FinishReason.STOP))
    is_masked = score_of(report).mask and _fault_of(report) != Fault.CRASH
    return None if is_masked or not scored.kept else scored.total


def main() -> int:
    """Prints the table, and writes it where --out says so."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environments", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    by_plug: dict[str, dict[str, dict[str, float | None]]] = {}
    with judge() as url:
        reports = real_verdicts(url)
        if options.environments:
            by_plug = of_every_plug(options.environments.resolve(), url)
    faults = {name: _fault_of(report) for name, report in reports.items()}
    made_up = {name: timed(reports[CORRECT], *measured) for name, measured in TIMED.items()}
    text, differences = table({**reports, **made_up}, faults, by_plug)
    print(text)
    if options.out:
        options.out.write_text(text, encoding="utf-8")
    return 1 if differences else 0


def table(
    reports: Mapping[str, Report],
    faults: Mapping[str, str],
    by_plug: Mapping[str, Mapping[str, Mapping[str, float | None]]],
) -> tuple[str, list[str]]:
    """Returns the page, and where `rl` and a plug differ."""
    module, differences, compared = plug_scores(), [], 0
    head = f"| candidate | verdict | {' | '.join(FORMULA_PRESETS)} |"
    lines = [head, "|---" * (len(FORMULA_PRESETS) + 2) + "|"]
    for name, report in reports.items():
        cells = []
        for preset in FORMULA_PRESETS:
            here = earned_in_rl(report, preset)
            told = {"the shared file": earned_in_plug(module, report, preset)}
            if name in TEXTS:
                told |= {
                    plug: rewards[preset][name]
                    for plug, rewards in by_plug.items()
                    if name in rewards[preset]
                }
            compared += len(told)
            differences += [
                f"{name}, {preset}: rl {here}, {plug} {there}"
                for plug, there in told.items()
                if not _are_equal(here, there)
            ]
            cells.append(MASKED if here is None else f"{here:.3f}")
        lines.append(f"| {name} | {faults.get(name, 'made-up time')} | {' | '.join(cells)} |")
    summary = f"equal in {compared - len(differences)} of {compared} comparisons with rl"
    if by_plug:
        summary += f" ({', '.join(by_plug)} by their own entry points)"
    if differences:
        summary += f"; they differ: {'; '.join(differences)}"
    command = f"`python -m bench.reward_presets {' '.join(sys.argv[1:])}`".replace(" `", "`")
    page = [
        "# Rewards of twenty candidates under each preset", "", *lines, "",
        f"{command}, no GPU, {date.today().isoformat()}; {summary}.", "", *(__doc__ or "").split("\n\n")[2:],
    ]  # fmt: skip
    return "\n".join(page), differences


def _are_equal(left: float | None, right: float | None) -> bool:
    if left is None or right is None:
        return left is right
    return abs(left - right) < 1e-9


def _fault_of(report: Report) -> str:
    return report.failure.fault.value if report.failure else "correct"


if __name__ == "__main__":
    sys.exit(main())
