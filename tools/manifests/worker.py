"""Process which measures manifests (`kernelwright.worker_process`): sends `ready`, then reads
jobs as JSON and answers each with a manifest. Output of references goes to stderr.

References are the user's own text; no candidate runs here.
"""

from __future__ import annotations

import json
import os
import warnings
from typing import Any

from kernelwright.tools.manifests.manifest import Manifest
from kernelwright.tools.problem import Problem, ProblemError
from kernelwright.tools.report import clean_text
from kernelwright.worker_process import connection_to_parent, end_with_parent


def main() -> None:
    """Measures problems as requested by the parent process over the pipe."""
    connection, _ = connection_to_parent()
    end_with_parent()
    import torch

    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    connection.send_bytes(b"ready")
    while True:
        try:
            job: dict[str, Any] = json.loads(connection.recv_bytes())
        except EOFError:
            return
        if job["device"] == "cpu":
            torch.set_num_threads(1)
        connection.send_bytes(_measure_job(job).model_dump_json().encode())
        if job["device"] != "cpu":
            torch.cuda.empty_cache()


def _measure_job(job: dict[str, Any]) -> Manifest:
    import torch

    from kernelwright.tools.manifests.measuring import measure_manifest
    from kernelwright.tools.manifests.sizes import fitting_sizes

    problem = Problem(name=job["name"], source=job["source"])
    try:
        sizes = (
            {}
            if job["sizes"] == "full"
            else fitting_sizes(problem, long_runs=job["sizes"] == "patient")
        )
        return measure_manifest(problem, job["device"], sizes)
    except (
        ProblemError,
        RuntimeError,
        ValueError,
        TypeError,
        MemoryError,
        torch.cuda.OutOfMemoryError,
    ) as error:
        why = clean_text(f"{type(error).__name__}: {error}", 200).splitlines()[0]
        return Manifest(problem=problem.name, hash=problem.hash, device=job["device"], failure=why)


if __name__ == "__main__":
    main()
