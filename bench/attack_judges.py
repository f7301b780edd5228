"""One candidate before one public judge, in a process that serves for nothing else.

    python -m bench.attack_judges JOB.json

JOB names the judge, the folder of its checkout, the case (bench/attack_formats.py) and the candidate. The judge's own
code runs as its own command would run it. The verdict is a line on the standard output that begins with the job's word.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

from bench.attack_formats import (
    ENTRY,
    SEED,
    Case,
    Spec,
    candidate_text,
    definition,
    reference_text,
    solution,
)

SECONDS = 45
"""For judges that take a time limit of their own."""


def kernelbench(case: Case, candidate: str, folder: Path, data: Path) -> dict[str, Any]:
    """`eval_kernel_against_ref` with 5 correctness and 20 timing trials."""
    import torch
    from kernelbench.eval import eval_kernel_against_ref

    precision = next(
        (getattr(torch, s.dtype) for s in case.inputs if s.shape is not None), torch.float32
    )
    found = eval_kernel_against_ref(
        case.source, candidate, num_correct_trials=5, num_perf_trials=20, measure_performance=True, backend="triton",
        device=torch.device("cuda:0"), precision=precision,
    )  # fmt: skip
    if found is None:
        return {"accepted": False, "why": "no result"}
    why = (
        "excessive speedup"
        if found.metadata.get("excessive_speedup")
        else "compiled"
        if found.compiled
        else ""
    )
    return {
        "accepted": bool(found.compiled and found.correctness),
        "why": why + _short(found.metadata),
    }


def _short(metadata: dict[str, Any]) -> str:
    told = {
        k: str(v)[:160]
        for k, v in metadata.items()
        if k not in ("hardware", "device", "excessive_speedup")
    }
    return f" {told}" if told else ""


def sol_files(case: Case, candidate: str) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Definition, workload and solution. Inputs are the problem's own, drawn anew for each of its ten rounds."""
    workload = {
        "uuid": "w0",
        "axes": {},
        "inputs": {f"x{i}": {"type": "custom"} for i in range(len(case.inputs))},
    }
    return (
        definition(case, True),
        workload,
        solution(case, candidate, {"languages": ["triton"]}, "LOCAL"),
    )


def sol_execbench(case: Case, candidate: str, folder: Path, data: Path) -> dict[str, Any]:
    """Runs SOL-ExecBench's packager and driver, a process of the driver's own, as its command line starts them."""
    import subprocess

    from sol_execbench.core import BenchmarkConfig, Definition, Solution, Workload
    from sol_execbench.driver import ProblemPackager

    told, workload, answer = sol_files(case, candidate)
    packager = ProblemPackager(
        Definition(**told),
        [Workload(**workload)],
        Solution(**answer),
        BenchmarkConfig(),
        folder / "staging",
        True,
    )
    command = packager.execute()
    done = subprocess.run(
        [sys.executable, *command[1:]], cwd=packager.output_dir, capture_output=True, text=True, timeout=SECONDS,
        check=False, env={**os.environ, "PYTORCH_ALLOC_CONF": "expandable_segments:True"},
    )  # fmt: skip
    traces = packager.convert_stdout_to_traces(done.stdout)
    if not traces:
        return {
            "crashed": True,
            "why": f"no trace, exit {done.returncode}: {done.stderr.strip()[-200:]}",
        }
    states = [t.evaluation.status.value if t.evaluation else "none" for t in traces]
    logs = " ".join((t.evaluation.log or "")[-200:] for t in traces if t.evaluation)
    return {"accepted": all(s == "PASSED" for s in states), "why": " ".join(states) + " " + logs}


def flashinfer_files(
    case: Case, candidate: str, data: str
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Definition, workload and solution. Inputs come from a file: its other kind is a standard normal draw."""
    inputs = {
        f"x{i}": {"type": "scalar", "value": s.value}
        if s.shape is None
        else {"type": "safetensors", "path": data, "tensor_key": f"x{i}"}
        for i, s in enumerate(case.inputs)
    }
    workload = {"uuid": "w0", "axes": {}, "inputs": inputs}
    return (
        definition(case, False),
        workload,
        solution(case, candidate, {"language": "triton"}, "cuda"),
    )


def drawn_to_file(case: Case, path: Path) -> Path:
    """The problem's own inputs, in a file that later jobs of the problem use too."""
    if path.is_file():
        return path
    import torch
    from safetensors.torch import save_file

    module: dict[str, Any] = {"__name__": "problem"}
    exec(compile(case.source, "<problem>", "exec"), module)
    torch.manual_seed(SEED)
    values = module["get_inputs"]()
    tensors = {f"x{i}": v.contiguous() for i, v in enumerate(values) if isinstance(v, torch.Tensor)}
    part = path.with_suffix(f".{os.getpid()}")
    save_file(tensors, part)
    part.replace(path)
    return path


def flashinfer_bench(case: Case, candidate: str, folder: Path, data: Path) -> dict[str, Any]:
    """`Benchmark.run_all` over one definition, one workload and one solution, with its own defaults."""
    from flashinfer_bench import (
        Benchmark,
        BenchmarkConfig,
        Definition,
        Solution,
        Trace,
        TraceSet,
        Workload,
    )

    told, workload, answer = flashinfer_files(case, candidate, str(drawn_to_file(case, data)))
    traces = TraceSet(
        root=folder, definitions={"problem": Definition(**told)}, solutions={"problem": [Solution(**answer)]},
        workloads={"problem": [Trace(definition="problem", workload=Workload(**workload))]},
    )  # fmt: skip
    benchmark = Benchmark(traces, BenchmarkConfig(timeout_seconds=SECONDS))
    try:
        found = benchmark.run_all(dump_traces=False).traces.get("problem", [])
    finally:
        benchmark.close()
    if not found:
        return {"crashed": True, "why": "no trace"}
    states = [t.evaluation.status.value for t in found]
    log = " ".join((t.evaluation.log or "")[-200:] for t in found)
    return {"accepted": all(s == "PASSED" for s in states), "why": " ".join(states) + " " + log}


def landlock_is_there() -> bool:
    """Whether the kernel has Landlock (landlock_create_ruleset with LANDLOCK_CREATE_RULESET_VERSION)."""
    return bool(ctypes.CDLL(None, use_errno=True).syscall(444, None, 0, 1) > 0)


def pygpubench(case: Case, candidate: str, folder: Path, data: Path) -> dict[str, Any]:
    """`do_bench_isolated` with 20 repeats; Landlock where the kernel has it."""
    (folder / "kernelwright_case.py").write_text(reference_text(case), encoding="utf-8")
    (folder / "kernelwright_submission.py").write_text(
        candidate_text(case, candidate, True), encoding="utf-8"
    )
    sys.path.insert(0, str(folder))
    os.environ["PYTHONPATH"] = os.pathsep.join(
        p for p in sys.path if p
    )  # for the process that it spawns
    import pygpubench as judge

    import kernelwright_case

    found = judge.do_bench_isolated(
        f"kernelwright_submission.{ENTRY}", getattr(kernelwright_case, f"{ENTRY}_case"), {}, 20, SEED,
        timeout=SECONDS, landlock=landlock_is_there(), allow_root=True,
    )  # fmt: skip
    return {
        "accepted": bool(found.success),
        "why": f"errors {found.errors}, every repeat timed: {found.full}",
    }


JUDGES = {
    "kernelbench": kernelbench,
    "sol-execbench": sol_execbench,
    "flashinfer-bench": flashinfer_bench,
    "pygpubench": pygpubench,
}


def case_of(told: dict[str, Any]) -> Case:
    """From JSON."""
    specs = {
        name: tuple(Spec(tuple(s[0]) if s[0] is not None else None, *s[1:]) for s in told[name])
        for name in ("inputs", "outputs")
    }
    return Case(**{**told, **specs})


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    folder = Path(job["folder"])
    try:
        found = JUDGES[job["judge"]](
            case_of(job["case"]), job["candidate"], folder, Path(job["data"])
        )
    except Exception as error:
        found = {"crashed": True, "why": f"{type(error).__name__}: {str(error)[-300:]}"}
    print("\n" + job["word"] + " " + json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
