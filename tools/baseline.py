"""torch.compile's time for a reference, beside eager's, in a process of its own: the compiler's workers and caches stay out of the judge.

    python -m tools.baseline DEVICE        (the problem's source on standard input; one JSON object comes out)

Kept by problem, GPU and versions: compiling takes seconds and never changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from pydantic import ValidationError

from tools.problem import Problem
from tools.results import Environment, Number, Timing, Value

SECONDS = 180.0
CALLS = 50


class Baseline(Value):
    compiled: Timing | None = None
    eager: Timing | None = None
    note: str = ""

    @property
    def ratio(self) -> Number | None:
        """torch.compile's median over eager's, measured side by side."""
        return self.compiled.median / self.eager.median if self.compiled and self.eager else None


def baseline(problem: Problem, device: str, environment: Environment, cache_dir: Path | None) -> Baseline:
    """Never raises: what does not work is in `note`."""
    versions = environment.model_dump_json(include={"torch", "triton", "gpu", "driver"})
    path = (
        cache_dir / "baselines" / f"{hashlib.sha256((problem.hash + versions).encode()).hexdigest()}.json"
        if cache_dir
        else None
    )
    if path and path.is_file():
        try:
            return Baseline.model_validate_json(path.read_bytes())
        except ValidationError:
            path.unlink()
    found = _ask(problem, device)
    if path and found.compiled:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent)
        with os.fdopen(handle, "w") as file:
            file.write(found.model_dump_json())
        os.replace(name, path)
    return found


def _ask(problem: Problem, device: str) -> Baseline:
    root = str(Path(__file__).resolve().parents[1])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "tools.baseline", device], input=problem.model_dump_json().encode(), capture_output=True, timeout=SECONDS, env=environment, check=False,
        )  # fmt: skip
        return Baseline.model_validate_json(done.stdout.strip().splitlines()[-1])
    except subprocess.TimeoutExpired:
        return Baseline(note=f"torch.compile took longer than {SECONDS:g} s")
    except (IndexError, ValidationError):
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return Baseline(note=f"torch.compile failed: {said[-1][:200] if said else 'no word'}")


def measure(problem: Problem, device: str) -> Baseline:
    """Both on the same inputs, call by call in turns, the L2 cache written over before each."""
    import torch

    from tools.reference import Reference
    from tools.timing import timing

    torch.cuda.set_device(device)
    reference = Reference(problem, device)
    model, inputs = reference.model(0), reference.inputs(0)
    compiled = torch.compile(model)
    flush = torch.empty(1 << 26, dtype=torch.int32, device=device)
    times: dict[str, list[float]] = {"eager": [], "compiled": []}
    with torch.no_grad():
        for _ in range(3):
            model(*inputs), compiled(*inputs)
        for _ in range(CALLS):
            for name, call in (("eager", model), ("compiled", compiled)):
                start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                flush.zero_()
                start.record()
                call(*inputs)
                end.record()
                torch.cuda.synchronize()
                times[name].append(start.elapsed_time(end))
    return Baseline(compiled=timing(times["compiled"]), eager=timing(times["eager"]))


def main() -> None:
    problem = Problem.model_validate_json(sys.stdin.buffer.read())
    out = os.dup(1)
    os.dup2(2, 1)
    os.write(out, (json.dumps(measure(problem, sys.argv[1]).model_dump(mode="json")) + "\n").encode())


if __name__ == "__main__":
    main()
