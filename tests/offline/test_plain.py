"""The way round for a Triton without the private names that the true specialisation needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tools.results import CompileResult
from tools.spec import input_spec
from tools.untrusted import symbols

WITHOUT = """
import json, os, sys
from tools.untrusted import offline, symbols

symbols.JIT += (("triton.compiler", "a_name_that_is_gone"),)


class Channel:
    def send(self, message):
        if "result" in message:
            print("RESULT" + json.dumps(message["result"]))


os.environ["TRITON_CACHE_DIR"] = os.getcwd() + "/cache"
offline.serve(Channel(), json.loads(open("payload.json").read()))
"""


def compiled(source: str, problem: Any, folder: Path) -> CompileResult:
    spec = input_spec(problem).model_dump(mode="json")
    payload = {"source": source, "spec": spec, "targets": ["sm_90"], "fp_fusion": "1", "tuning_seconds": 60}
    (folder / "payload.json").write_text(json.dumps(payload))
    root = os.pathsep.join([str(Path(__file__).resolve().parents[2]), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", WITHOUT]
    environment = {"PYTHONPATH": root, "CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=200)
    line = next((part for part in done.stdout.splitlines() if part.startswith("RESULT")), None)
    assert line is not None, done.stderr[-2000:]
    return CompileResult.model_validate_json(line.removeprefix("RESULT"))


def test_this_triton_has_every_name_that_is_leaned_on() -> None:
    assert symbols.missing() == ()


def test_a_softmax_compiles_in_plain_mode_too_and_says_so(offline: Any, tmp_path: Path) -> None:
    result = compiled(offline.softmax_source, offline.softmax_problem, tmp_path)
    assert result.failure is None, result.failure
    assert result.mode == "plain"
    assert any("a_name_that_is_gone" in note for note in result.notes)
    (kernel,) = result.kernels
    assert (kernel.grid, kernel.launches, kernel.vector_bits) == ((4096, 1, 1), 1, 128)
    assert kernel.signature["x_ptr"] == "*fp32:16"


def test_plain_mode_makes_the_same_code_as_the_true_specialisation(offline: Any, tmp_path: Path) -> None:
    (plain,) = compiled(offline.matmul(), offline.matmul_problem, tmp_path).kernels
    (true,) = offline.compiled(offline.matmul(), offline.matmul_problem).kernels
    assert (plain.hash, plain.registers, plain.shared) == (true.hash, true.registers, true.shared)


def test_an_error_is_still_placed_in_plain_mode(offline: Any, tmp_path: Path) -> None:
    source = offline.softmax_source.replace("tl.exp(", "tl.exponential(")
    failure = compiled(source, offline.softmax_problem, tmp_path).failure
    assert failure is not None
    assert failure.where is not None
    assert "tl.exponential(" in failure.where.text
