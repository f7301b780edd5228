"""`rl train --online` with the policy that ships: on one GPU, and with GPUs of their own for its parts.

Two trainings with the same seed, one after the other: all on the first GPU, and the trainer on the first, rollouts on
the second, and judges on the rest (on the cores of the machine where there is no rest). Seconds a step by phase, and
the loss of each step beside that of the other training.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.several.results import Results, asked

PHASES = ("seconds", "seconds/generation", "seconds/judging", "seconds/training", "seconds/waiting", "seconds/round")
SEED = 7
ROUND = {"cpu": ("2", "2", "2"), "cuda": ("12", "8", "4")}
"""Problems a step, trajectories a problem, steps."""
POLL_SECONDS = 0.5


def command(devices: list[str], folder: Path, spread: bool) -> list[str]:
    """As a user would type it."""
    problems, group, steps = ROUND[devices[0].partition(":")[0]]
    words = [sys.executable, "-m", "kernelwright.rl", "train", "--online", "--problems", "synth", "--turns", "1"]
    words += [
        "--problems-per-step",
        problems,
        "--group",
        group,
        "--max-steps",
        steps,
        "--seed",
        str(SEED),
        "--lag",
        "0",
    ]
    words += ["--db", str(folder / "runs.db"), "--out", str(folder / "policy"), "--device", devices[0]]
    words += ["--reward", "execution", "--engine", "process"]
    on_gpus, rest = devices[0] != "cpu", devices[2:]
    words += ["--judge", ",".join(rest) if spread and on_gpus and rest else "interpreted"]
    words += ["--workers", str(max(1, min(24, (os.cpu_count() or 2) - 4)))]
    if spread and on_gpus:
        words += ["--sampling-device", devices[1]]
    return words


def trained(words: list[str], folder: Path, seconds: float, on_one: bool) -> tuple[list[dict[str, Any]], float, str]:
    """History of the steps that were done in time, the seconds to the end, and what it said last."""
    environment = dict(os.environ)
    if on_one and "cuda:0" in words:
        environment["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0]
    began, log = time.monotonic(), folder / "train.log"
    with log.open("w") as said:
        process = subprocess.Popen(words, stdout=said, stderr=said, env=environment, start_new_session=True)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    history = folder / "policy.training" / "history.json"
    history = history if history.is_file() else next(folder.glob("policy*/**/history.json"), history)
    steps = json.loads(history.read_text()) if history.is_file() else []
    last = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()][-3:]
    return [one for one in steps if "loss" in one], time.monotonic() - began, " / ".join(last)[-400:]


def phases(name: str, steps: list[dict[str, Any]], seconds: float, results: Results) -> None:
    """Means over the steps after the first, which warms everything."""
    later = steps[1:] or steps
    means = {phase: statistics.fmean([float(one[phase]) for one in later if phase in one] or [0.0]) for phase in PHASES}
    results.add(
        "Seconds a step", run=name, steps=len(steps), seconds_in_all=seconds,
        **{phase.replace("seconds/", "").replace("seconds", "step"): value for phase, value in means.items()},
        tokens_a_second=statistics.fmean([float(one.get("sampled_tokens_a_second", 0.0)) for one in later] or [0.0]),
    )  # fmt: skip


def main() -> int:
    given = asked(__doc__)
    results, found = Results(given.out), dict[str, list[dict[str, Any]]]()
    for name, spread, share in (("one GPU", False, 0.5), ("GPUs of their own", True, 1.0)):
        with TemporaryDirectory(prefix="several-") as made:
            folder = Path(made)
            words = command(given.devices, folder, spread)
            left = share * (given.seconds - (time.monotonic() - results.began)) - 3
            found[name], seconds, last = trained(words, folder, left, not spread)
        phases(name, found[name], seconds, results)
        shown = " ".join(words[2:]).replace(str(folder), "DIR")
        results.say(**{name.replace(" ", "_"): f"`python -m {shown}`"})
        results.must(bool(found[name]), f"{name}: at least one step was done ({last})")
    for number, (one, other) in enumerate(zip(*found.values(), strict=False), 1):
        results.add(
            "The same seed", step=number, loss_on_one_GPU=one["loss"], loss_on_GPUs_of_their_own=other["loss"],
            reward_on_one=one.get("reward"), reward_on_their_own=other.get("reward"),
        )  # fmt: skip
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
