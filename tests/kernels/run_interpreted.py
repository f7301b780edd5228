"""Proves tests/kernels without the judge: each file in a forked process under TRITON_INTERPRET, at CPU_SIZES and one
off them.

    python tests/kernels/run_interpreted.py                      every good kernel
    python tests/kernels/run_interpreted.py tests/kernels/good/matmul.py ...

It shares no code with the judge but two repairs of Triton's interpreter: what both accept is right for two independent
reasons. It does not cover what needs a compiler, a GPU or an adversary.
"""

from __future__ import annotations

import os

os.environ["TRITON_INTERPRET"] = "1"

import ast
import importlib.util
import multiprocessing
import re
import sys
import tempfile
import time
import traceback
from pathlib import Path
from types import ModuleType

import torch

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PLACES = (HERE / "problems", ROOT / "agent" / "problems" / "catalogue")
DEADLINE = 120
"""Seconds a file."""


def header(path: Path) -> dict[str, list[str]]:
    """`# key: value` lines at the top of a candidate."""
    found: dict[str, list[str]] = {}
    for line in path.read_text().splitlines():
        if not (match := re.fullmatch(r"#\s*([\w-]+):\s*(.*?)\s*", line)):
            break
        found.setdefault(match[1], []).append(match[2])
    return found


def reference_source(name: str) -> str:
    """A problem's text: this folder's own problems first, then the catalogue."""
    for place in PLACES:
        for path in sorted(place.rglob(f"{name}.py")):
            return path.read_text()
    raise FileNotFoundError(f"no problem named {name} in {', '.join(map(str, PLACES))}")


def cpu_sizes(source: str) -> dict[str, int]:
    """The literal CPU_SIZES of a reference."""
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "CPU_SIZES":
            return ast.literal_eval(node.value)
    raise ValueError("the reference has no CPU_SIZES")


def with_sizes(source: str, sizes: dict[str, int]) -> str:
    """The text with `name = 1` lines of the named integers replaced."""
    for name, value in sizes.items():
        source, count = re.subn(rf"(?m)^{name}\s*(:\s*int\s*)?=\s*[\d_]+\b", f"{name} = {value}", source)
        if count != 1:
            raise ValueError(f"CPU_SIZES names {name}, which is no module-level integer")
    return source


def load(source: str, name: str) -> ModuleType:
    """Imported from a real file: Triton reads kernels' sources from there."""
    path = Path(tempfile.mkdtemp()) / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def variants(source: str) -> list[dict[str, int]]:
    """CPU_SIZES, and each of its sizes one up and one down."""
    sizes = cpu_sizes(source)
    off = [{**sizes, name: value + step} for name, value in sizes.items() for step in (-1, 1) if value + step > 0]
    return [sizes, *off]


def tensors(value) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [t for v in value for t in tensors(v)]


def copied(values, dtype=None):
    def one(v):
        if not isinstance(v, torch.Tensor):
            return v
        v = v.detach().clone(memory_format=torch.preserve_format)
        return v.to(dtype) if dtype and v.is_floating_point() else v

    return [one(v) for v in values]


def exact_outputs(reference, model, init, inputs) -> list[torch.Tensor] | None:
    """The reference in float64; None where it has a dtype of its own in it."""
    try:
        wide = reference.Model(*copied(init, torch.float64)).double()
        wide.load_state_dict({k: v.double() if v.is_floating_point() else v for k, v in model.state_dict().items()})
        return tensors(wide(*copied(inputs, torch.float64)))
    except (RuntimeError, TypeError):
        return None


def disagreement(got, eager, exact) -> str:
    """Why one output is wrong, empty where it is right."""
    if type(got) is not torch.Tensor:
        return f"a {type(got).__name__}, not a tensor"
    if got.shape != eager.shape or got.dtype != eager.dtype:
        return f"{tuple(got.shape)} {got.dtype}, expected {tuple(eager.shape)} {eager.dtype}"
    if not eager.is_floating_point():
        wrong = int((got != eager).sum())
        return f"{wrong} of {eager.numel()} integers differ" if wrong else ""
    exact = eager.double() if exact is None else exact.double()
    scale = exact.abs().amax(-1, keepdim=True) if exact.dim() else exact.abs()
    allowed = 4 * (eager.double() - exact).abs().max() + 8 * torch.finfo(eager.dtype).eps * scale
    error = (got.double() - exact).abs()
    if (
        not torch.isfinite(got).equal(torch.isfinite(eager))
        or not (error[torch.isfinite(exact)] <= allowed.expand_as(error)[torch.isfinite(exact)]).all()
    ):
        return f"off by {error.nan_to_num(float('inf')).max():.3g}, allowed {allowed.max():.3g}"
    return ""


def judge_once(candidate, reference, seed: int) -> str:
    """One draw: empty, or what is wrong."""
    torch.manual_seed(seed)
    init = reference.get_init_inputs()
    model, ours = reference.Model(*copied(init)), candidate.ModelNew(*copied(init))
    ours.load_state_dict(model.state_dict())
    inputs = reference.get_inputs()
    theirs, mine = copied(inputs), copied(inputs)
    exact = exact_outputs(reference, model, init, inputs)
    with torch.no_grad():
        expected, got = tensors(model(*theirs)), tensors(ours(*mine))
    if len(expected) != len(got):
        return f"{len(got)} outputs, expected {len(expected)}"
    for i, (e, g) in enumerate(zip(expected, got, strict=True)):
        if problem := disagreement(g, e, exact[i] if exact else None):
            return f"output {i}: {problem}"
    for i, (a, b) in enumerate(
        zip(
            tensors([v for v in theirs if isinstance(v, torch.Tensor)]),
            tensors([v for v in mine if isinstance(v, torch.Tensor)]),
            strict=True,
        )
    ):
        if not torch.allclose(a.double(), b.double(), rtol=1e-4, atol=1e-5, equal_nan=True):
            return f"input {i} is not as the reference leaves it"
    return ""


def judge(path: Path) -> list[str]:
    """Every variant; each line says what is wrong."""
    source = reference_source(header(path)["problem"][0])
    candidate = load(path.read_text(), "candidate_" + path.stem)
    found = []
    for sizes in variants(source):
        reference = load(with_sizes(source, sizes), "reference")
        try:
            torch.manual_seed(0)
            with torch.no_grad():
                reference.Model(*reference.get_init_inputs())(*reference.get_inputs())
        except Exception:
            continue  # the reference itself has no such shape
        if problem := judge_once(candidate, reference, seed=len(found) + 17):
            found.append(f"{sizes}: {problem}")
    return found


class StubDriver:
    """What @triton.autotune asks for where there is no GPU."""

    def get_benchmarker(self):
        return lambda fn, quantiles=None, **_: (fn(), [1.0] * len(quantiles or [0]))[1]

    def get_active_torch_device(self):
        return torch.device("cpu")


def work(path: Path, answer) -> None:
    torch.set_num_threads(1)
    from triton.runtime import driver

    sys.path.insert(0, str(ROOT))
    from kernelwright.tools.replaying.interpreter.patches.libdevice import provide_libdevice
    from kernelwright.tools.replaying.interpreter.patches.repairs import repair_splat

    driver.set_active(StubDriver())
    repair_splat()
    provide_libdevice()
    try:
        answer.send(judge(path))
    except BaseException:
        answer.send(["raised: " + traceback.format_exc(limit=-4)])


def prove(path: Path) -> list[str]:
    """One file in a process of its own."""
    import triton  # noqa: F401  the parent pays for the import once

    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(path, send))
    process.start()
    send.close()
    try:
        return receive.recv() if receive.poll(DEADLINE) else [f"took over {DEADLINE} s"]
    except EOFError:
        process.join()
        return [f"died with exit code {process.exitcode}"]
    finally:
        process.kill()
        process.join()


def main(arguments: list[str]) -> int:
    paths = [Path(a) for a in arguments] or sorted((HERE / "good").glob("*.py"))
    failed = 0
    for path in paths:
        began = time.monotonic()
        found = prove(path)
        failed += bool(found)
        print(f"{'WRONG' if found else 'right'} {time.monotonic() - began:5.1f}s {path.name}", flush=True)
        for line in found[:3]:
            print("      " + line.replace("\n", "\n      "))
    print(f"{len(paths) - failed} of {len(paths)} right")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
