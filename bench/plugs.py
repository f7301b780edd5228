"""Every plug, proved by its framework in an environment of its own, with verdicts of one real judge.

    python -m bench.plugs [--environments FOLDER] [--make] [--only NAME ...] [--judge URL]
                          [--out bench/results/plugs.md]

FOLDER (default: plugs/.environments) holds a virtual environment `venv-NAME` for each framework; --make makes those
that are missing. A judge is started on the CPU of this machine unless --judge names one. Prints what each proof printed
and ends with exit code 1 where one failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import date
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PLUGS = ROOT / "plugs"
SECONDS = 1200


class Plug(NamedTuple):
    """One plug, and what its framework is."""

    name: str
    """Of the environment, and behind `kernelwright-` of the plug's folder."""
    distribution: str
    proof: str
    """What of the framework's own says that the plug fits."""
    first: tuple[tuple[str, ...], ...] = ()
    """Arguments of `pip install` before the plug itself."""
    python: str = "python3"
    no_dependencies: bool = False
    """Whether the plug is installed without what it asks for, because `first` has installed it."""


ALL = (
    Plug("client", "httpx", "the judge itself", (("pytest",),)),
    Plug(
        "trl", "trl", "two steps of GRPOTrainer with the reward function, two with its tool loop",
        (("torch==2.13.0",), ("trl>=1.16,<1.17", "pytest")),
    ),
    Plug(
        "openenv", "openenv", "openenv validate on package and running server; two steps of its client",
        (("openenv>=0.10", "pytest"),),
    ),
    Plug(
        "verifiers", "verifiers", "vf-validate, vf-eval with a scripted endpoint, two steps of Task.score",
        (("verifiers>=0.4.0", "uv", "pytest"),),
    ),
    Plug(
        "nemo", "nemo-gym", "its resources server: two steps of verify and aggregate_metrics",
        (("--ignore-requires-python", "nemo-gym>=0.7"), ("pytest",)), "python3.13",
    ),
    Plug(
        "skyrl", "skyrl-gym", "skyrl_gym.make and its step loop, two steps of groups",
        (("skyrl-gym>=0.4", "pytest"),), "python3.12",
    ),
    Plug(
        "verl", "verl", "its reward loader, NaiveRewardManager, advantage estimator and loss, two steps",
        (
            ("torch==2.13.0",),
            ("--no-deps", "verl>=0.9"),
            ("numpy", "omegaconf", "hydra-core", "tensordict>=0.8,!=0.9.0,<=0.10.0",
             "transformers>=5.5.3,!=5.6.0,<5.11",
             "codetiming", "pandas", "datasets", "dill", "pyarrow", "cachetools", "ray>=2.41", "aiohttp", "peft",
             "torchdata", "orjson", "httpx", "pytest"),
        ),
        no_dependencies=True,
    ),
)  # fmt: skip


class Proof(NamedTuple):
    """What came of one plug."""

    plug: Plug
    version: str
    python: str
    passed: bool
    said: str
    seconds: float


def python_of(environments: Path, plug: Plug) -> Path:
    return environments / f"venv-{plug.name}" / "bin" / "python"


def make(environments: Path, plug: Plug) -> None:
    """Makes the environment of one plug. Raises CalledProcessError where pip cannot."""
    place = environments / f"venv-{plug.name}"
    subprocess.run([plug.python, "-m", "venv", place], check=True)
    for arguments in plug.first:
        subprocess.run(
            [python_of(environments, plug), "-m", "pip", "install", "-q", *arguments], check=True
        )
    install(environments, plug)


def install(environments: Path, plug: Plug) -> None:
    """Installs the client and the plug as they are here."""
    folders = dict.fromkeys((PLUGS / "kernelwright-client", PLUGS / f"kernelwright-{plug.name}"))
    less = ("--no-deps",) if plug.no_dependencies or plug.name == "nemo" else ()
    subprocess.run(
        [python_of(environments, plug), "-m", "pip", "install", "-q", *less, *folders],
        check=True, stderr=subprocess.DEVNULL,
    )  # fmt: skip


@contextmanager
def judge() -> Iterator[str]:
    """The URL of a judge service on this machine's CPU."""
    with tempfile.TemporaryDirectory() as folder:
        words = [
            "serve",
            "--no-token",
            "--device",
            "cpu",
            "--port",
            "0",
            "--store",
            f"{folder}/service.db",
        ]
        server = subprocess.Popen(
            [sys.executable, "-m", "kernelwright.agent", *words],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            for line in server.stdout:
                if found := re.search(r"http://\S+", line):
                    yield found[0].rstrip("/")
                    break
            else:
                raise RuntimeError("agent serve did not start: try it by hand")
        finally:
            server.terminate()
            server.wait(30)


def prove(environments: Path, plug: Plug, url: str) -> Proof:
    """Runs the plug's tests in its environment."""
    python = python_of(environments, plug)
    variables = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    variables |= {"KERNELWRIGHT_JUDGE_URL": url, "PATH": f"{python.parent}:{os.environ['PATH']}"}
    begun = time.monotonic()
    words = [
        python,
        "-m",
        "pytest",
        "-v",
        "-c",
        "pytest.ini",
        "-W",
        "ignore",
        f"kernelwright-{plug.name}/tests",
    ]
    done = subprocess.run(
        words, cwd=PLUGS, env=variables, capture_output=True, text=True, timeout=SECONDS
    )
    asked = (
        "import sys; from importlib.metadata import version; "
        f"print(version({plug.distribution!r}), sys.version.split()[0])"
    )
    version, own = subprocess.run(
        [python, "-c", asked], capture_output=True, text=True, check=True
    ).stdout.split()
    return Proof(
        plug, version, own, done.returncode == 0, told(done.stdout), time.monotonic() - begun
    )


def told(output: str) -> str:
    """The outcome of each test and the summary, without paths, percentages and seconds of the run."""
    kept = [
        line
        for line in output.splitlines()
        if re.search(r"::.* (PASSED|FAILED|ERROR|SKIPPED)|^=.*(passed|failed|error)", line)
    ]
    return "\n".join(
        re.sub(r"\s+\[\s*\d+%\]$", "", line.split("::")[-1]).strip("= ") for line in kept
    )


def report(proofs: list[Proof]) -> str:
    head = ["| plug | framework | Python | proved by | passed | s |", "|---|---|---|---|---|---|"]
    rows = [
        f"| kernelwright-{p.plug.name} | {p.plug.distribution} {p.version} | {p.python} | {p.plug.proof} | "
        f"{'yes' if p.passed else '**no**'} | {p.seconds:.0f} |"
        for p in proofs
    ]
    outputs = [f"## kernelwright-{p.plug.name}\n\n```\n{p.said}\n```\n" for p in proofs]
    where = f"`python -m bench.plugs`, {os.cpu_count()} cores, no GPU, {date.today().isoformat()}"
    load = f"load average at the end {os.getloadavg()[0]:.1f}"
    return "\n".join(["# Plugs", "", *head, *rows, "", f"{where}, {load}.", "", *outputs])


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--environments", type=Path, default=PLUGS / ".environments")
    parser.add_argument(
        "--make", action="store_true", help="make the environments that are missing"
    )
    parser.add_argument("--only", nargs="*", default=())
    parser.add_argument("--judge", help="the URL of a judge that runs already")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    environments, proofs = asked.environments.resolve(), []
    with nullcontext(asked.judge) if asked.judge else judge() as url:
        for plug in ALL:
            if asked.only and plug.name not in asked.only:
                continue
            if not python_of(environments, plug).exists():
                if not asked.make:
                    print(
                        f"{plug.name}: no environment in {environments}: --make makes it",
                        file=sys.stderr,
                    )
                    continue
                make(environments, plug)
            install(environments, plug)
            proofs.append(prove(environments, plug, url))
            print(f"{plug.name}: {proofs[-1].said.splitlines()[-1:]}", file=sys.stderr, flush=True)
            if (
                asked.out
            ):  # after each, so that what was proved is kept where the next is interrupted
                asked.out.parent.mkdir(parents=True, exist_ok=True)
                asked.out.write_text(report(proofs), encoding="utf-8")
    print(report(proofs))
    return 0 if proofs and all(proof.passed for proof in proofs) else 1


if __name__ == "__main__":
    sys.exit(main())
