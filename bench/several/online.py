"""`rl train --online` with the policy that ships: on one GPU, and with GPUs of their own for its parts.

Two trainings with the same seed, one after the other: all on the first GPU, and the trainer on the first, rollouts on
the second, and judges on the rest (on the cores of the machine where there is no rest). Without a GPU the second one is
sampled and judged by actors on a Ray cluster of this machine, where Ray is installed. Seconds a step by phase, and the
loss of each step beside that of the other training. The problems are the catalogue's: on generated ones nearly every
group of the policy that ships earns the same, and a step has no row.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from bench.several.results import Results, asked

PHASES = ("generation", "judging", "training", "waiting", "round")
SEED = 1
REPLY_TOKENS = 500
"""A reply that does not end would be 1,536 tokens long, and the whole round would wait for it."""
LEAVING_SECONDS = 20.0
"""That a training whose time is up has to end its step and save, before it is killed."""


class Size(NamedTuple):
    """The size of one training."""

    problems: int
    """A step."""
    group: int
    steps: int


SIZES = {"cpu": Size(4, 4, 2), "cuda": Size(12, 8, 4)}
MOST_JUDGES = 8
"""Interpreters of one training: each is a process that has to start first, which takes longer than a step."""


def command(devices: list[str], folder: Path, spread: bool, seconds: float) -> list[str]:
    """The command as a user would type it."""
    size = SIZES[devices[0].partition(":")[0]]
    on_gpus, rest = devices[0] != "cpu", devices[2:]
    options: dict[str, Any] = {
        "problems": "catalogue", "turns": 1, "problems-per-step": size.problems, "group": size.group,
        "max-steps": size.steps, "max-minutes": f"{seconds / 60:.2f}", "seed": SEED, "lag": 0,
        "reply-tokens": REPLY_TOKENS, "reward": "execution", "device": devices[0], "db": folder / "runs.db",
        "out": folder / "policy", "judge": ",".join(rest) if spread and on_gpus and rest else "interpreted",
    }  # fmt: skip
    if spread and not on_gpus:
        options |= {"ray": "local", "rollout-actors": 2}
    else:
        options |= {
            "engine": "process",
            "workers": max(1, min(MOST_JUDGES, (os.cpu_count() or 2) - 4)),
        }
    if spread and on_gpus:
        options["sampling-device"] = devices[1]
    told = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [sys.executable, "-m", "kernelwright.rl", "train", "--online", *told]


def trained(
    words: list[str], folder: Path, seconds: float, on_one: bool
) -> tuple[list[dict[str, Any]], float, str]:
    """History of the steps that were done in time, the seconds to the end, and what it said last."""
    environment = dict(os.environ)
    if on_one and "cuda:0" in words:
        environment["CUDA_VISIBLE_DEVICES"] = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(
            ","
        )[0]
    began, log = time.monotonic(), folder / "train.log"
    with log.open("w") as said:
        process = subprocess.Popen(
            words, stdout=said, stderr=said, env=environment, start_new_session=True
        )
        for sign, patience in (
            (signal.SIGINT, seconds - LEAVING_SECONDS),
            (signal.SIGKILL, LEAVING_SECONDS),
        ):
            try:
                process.wait(max(1.0, patience))
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
        process.wait()
    found = next((file for file in sorted(folder.glob("policy*/history.json"))), None)
    steps = json.loads(found.read_text()) if found is not None else []
    last = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()][
        -3:
    ]
    return (
        [one for one in steps if "loss" in one],
        time.monotonic() - began,
        " / ".join(last)[-400:],
    )


def mean(steps: list[dict[str, Any]], name: str) -> float:
    """Over the steps that have it; 0 where none has."""
    return statistics.fmean([float(one[name]) for one in steps if name in one] or [0.0])


def told(name: str, steps: list[dict[str, Any]], seconds: float, results: Results) -> None:
    """Means over the steps after the first, which warms everything."""
    later = steps[1:] or steps
    results.add(
        "Seconds a step", run=name, steps=len(steps), seconds_in_all=seconds, step=mean(later, "seconds"),
        **{phase: mean(later, f"seconds/{phase}") for phase in PHASES},
        tokens_sampled_a_second=mean(later, "sampled_tokens_a_second"),
        tokens_trained_a_second=mean(later, "tokens_a_second"), verdicts=mean(later, "verdicts"),
    )  # fmt: skip


def ways(devices: list[str]) -> list[tuple[str, bool, float]]:
    """Name, whether its parts are spread, and its share of the time that is left."""
    if devices[0] != "cpu":
        return [("one GPU", False, 0.5), ("GPUs of their own", True, 1.0)]
    if find_spec("ray") is None:
        return [("this machine", False, 1.0)]
    return [("this machine", False, 0.4), ("actors on Ray", True, 1.0)]


def main() -> int:
    given = asked(__doc__)
    results, found = Results(given.out), dict[str, list[dict[str, Any]]]()
    for name, spread, share in ways(given.devices):
        with TemporaryDirectory(prefix="several-", ignore_cleanup_errors=True) as made:
            folder = Path(made)
            left = share * (given.seconds - (time.monotonic() - results.began)) - 3
            words = command(given.devices, folder, spread, left)
            found[name], seconds, last = trained(words, folder, left, not spread)
        told(name, found[name], seconds, results)
        shown = " ".join(words[2:]).replace(str(folder), "DIR")
        results.say(**{name.replace(" ", "_"): f"`python -m {shown}`"})
        results.must(bool(found[name]), f"{name}: at least one step was done ({last})")
        learnt = any(one.get("rows") for one in found[name])
        results.must(not found[name] or learnt, f"{name}: a step had rows that teach something")
    for number, steps in enumerate(zip(*found.values(), strict=False), 1):
        row = {
            f"{what} ({name})": step.get(what)
            for what in ("loss", "grad_norm", "rows", "reward", "pass_at_1")
            for name, step in zip(found, steps, strict=True)
        }
        results.add("The same seed", step=number, **row)
    return results.finish()


if __name__ == "__main__":
    sys.exit(main())
