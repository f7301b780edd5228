"""What Triton's interpreter takes for the honest kernels of tests/kernels, as it is and as the judge runs it.

    python -m bench.interpreter [--repeat 3] [--out bench/interpreter.md]

Both in turns, a process each; of every kernel the least of all its calls at its problem's CPU_SIZES. The answers of both are compared bit for bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

LEAST_MS = 5.0
"""A kernel that takes less is all start-up."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    parser.add_argument("--arm", choices=("plain", "quick"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.arm:
        print(json.dumps(measured(asked.arm == "quick")))
        return
    arms: dict[str, list[dict[str, Any]]] = {"plain": [], "quick": []}
    for _ in range(asked.repeat):
        for arm, found in arms.items():
            found.append(_in_a_process(arm))
            print(f"{arm}: {sum(one['ms'] for one in found[-1].values()) / 1e3:.1f} s", flush=True)
    asked.out.write_text(text(arms["plain"], arms["quick"], asked.repeat))
    print(asked.out.read_text())


def _in_a_process(arm: str) -> dict[str, Any]:
    """Triton chooses between compiler and interpreter when it is imported."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.interpreter", "--arm", arm], env={**os.environ, "TRITON_INTERPRET": "1"},
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def measured(quick: bool) -> dict[str, Any]:
    """Of each kernel, milliseconds a call and a hash of its answer."""
    import torch

    from bench.suite import honest, problem_of
    from tests.kernels.run_interpreted import cpu_sizes, load, tensors, with_sizes
    from tools.untrusted import interpreter
    from tools.untrusted.libdevice import provide_libdevice

    torch.set_num_threads(1)
    for change in (*interpreter.REPAIRS, *(interpreter.QUICKER if quick else ())):
        change()
    provide_libdevice()
    interpreter.without_a_gpu()
    found = {}
    for entry in honest():
        source = problem_of(entry.problem).source
        reference = load(with_sizes(source, cpu_sizes(source)), "reference")
        torch.manual_seed(0)
        model = load(entry.source, f"candidate_{entry.name}").ModelNew(*reference.get_init_inputs())
        inputs = reference.get_inputs()
        try:
            found[entry.name] = _called(lambda model=model, inputs=inputs: tensors(model(*inputs)))
        except Exception as error:
            print(f"{entry.name}: left out, {type(error).__name__}", file=sys.stderr)
    return found


def _called(call: Any) -> dict[str, Any]:
    import torch

    times = []
    with torch.no_grad():
        for _ in range(3):
            begun = time.perf_counter()
            outputs = call()
            times.append(1e3 * (time.perf_counter() - begun))
    whole = hashlib.sha256()
    for output in outputs:
        whole.update(output.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return {"ms": min(times), "hash": whole.hexdigest()}


def text(plain: list[dict[str, Any]], quick: list[dict[str, Any]], repeat: int) -> str:
    names = sorted(set(plain[0]) & set(quick[0]))
    least = {n: (min(p[n]["ms"] for p in plain), min(q[n]["ms"] for q in quick)) for n in names}
    long = [n for n in names if least[n][0] >= LEAST_MS]
    ratios = {n: least[n][0] / least[n][1] for n in long}
    mean = statistics.geometric_mean(ratios.values())
    differ = [n for n in names if len({one[n]["hash"] for one in (*plain, *quick)}) > 1]
    import triton

    rows = "\n".join(
        f"| {n} | {least[n][0]:.1f} | {least[n][1]:.1f} | {ratios[n]:.1f} |"
        for n in sorted(long, key=lambda n: -ratios[n])
    )
    return f"""# Triton's interpreter, as it is and as the judge runs it

`python -m bench.interpreter --repeat {repeat}`, {os.cpu_count()} cores ({platform.machine()}), Triton {triton.__version__}, Python {platform.python_version()}, {date.today()}.

- {len(long)} honest kernels that take {LEAST_MS:g} ms or more at their CPU sizes: faster by a geometric mean of **{mean:.1f}**, all calls together by {sum(least[n][0] for n in long) / sum(least[n][1] for n in long):.1f}.
- Their answers are the same bit for bit{f", but for {', '.join(differ)}" if differ else f" ({len(names)} kernels)"}.
- Triton's language is patched once a launch rather than at each call of a device function; no overflow is computed that nobody reads; NumPy's types are remembered
  (`tools/untrusted/interpreter.py`).

| kernel | as it is, ms | as judged, ms | ratio |
|---|---|---|---|
{rows}
"""


if __name__ == "__main__":
    main()
