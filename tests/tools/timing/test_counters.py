"""Counters and the sanitizer are read as they print, bounded in time, and missing without harm."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from kernelwright.tools.report import Fault
from kernelwright.tools.timing.counters import (
    CounterRun,
    call_spec,
    find_tool,
    hardware_counters,
    memory_check,
    read_counters,
    read_memcheck,
)

CANDIDATE = """import torch
class ModelNew(torch.nn.Module):
    def __init__(self, width, bias=True):
        super().__init__()
        self.net = torch.nn.Linear(width, 3, bias=bias)
        self.calls = 0
    def forward(self, x, index, mask, factor):
        self.calls += 1
        assert 0 <= index.min() and index.max() <= 4 and mask.dtype == torch.bool and factor == 2.5
        print("call", self.calls, tuple(self.net(x)[index].shape))
        return x
"""
RAW = """==PROF== Connected to process 7
"ID","Kernel Name","gpu__time_duration.sum","dram__throughput.avg.pct_of_peak_sustained_elapsed","lts__t_sector_hit_rate.pct"
"","","ns","%","%"
"0","softmax_kernel","3,000.0","80.0","50.0"
"1","copy_kernel","1,000.0","40.0","10.0"
"""  # noqa: E501 (what ncu printed)
MEMCHECK = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at add_kernel+0x1d0 in /scratch/candidate.py:3
=========     by thread (12,0,0) in block (4,0,0)
=========     Address 0x7f0000001000 is out of bounds
========= ERROR SUMMARY: 2 errors
"""


@pytest.fixture
def spec(tmp_path):
    source = tmp_path / "candidate.py"
    source.write_text(CANDIDATE)
    inputs = [torch.randn(6, 5), torch.arange(5), torch.ones(4, dtype=torch.bool), 2.5]
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(call_spec(source, [5, False], inputs, "cpu")))
    return path


def test_a_candidate_is_called_three_times_on_random_tensors_of_the_right_form(spec):
    done = subprocess.run(
        [sys.executable, "-m", "kernelwright.tools.tracing.profiled_calls", str(spec)],
        capture_output=True,
        text=True,
        timeout=500,
        cwd=Path(__file__).parents[3],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["call 1 (5, 3)", "call 2 (5, 3)", "call 3 (5, 3)"]


def test_a_spec_holds_no_contents():
    told = call_spec(Path("c.py"), [], [torch.full((3,), 7.0)], "cuda:0")
    assert told["inputs"] == [
        {"tensor": {"shape": [3], "dtype": "float32", "low": 7.0, "high": 7.0}}
    ]


def test_counters_are_averaged_by_launch_time():
    assert read_counters(RAW) == {"dram_percent": 70.0, "l2_hit_percent": 40.0}
    assert read_counters("==ERROR== ERR_NVGPUCTRPERM") == {}


def test_a_finding_names_the_kernel_and_the_line(spec):
    failure = read_memcheck(MEMCHECK, spec)
    assert failure is not None
    assert failure.fault is Fault.OUT_OF_BOUNDS
    assert "add_kernel" in failure.message
    assert failure.where is not None
    assert (failure.where.line, failure.where.text) == (
        3,
        "    def __init__(self, width, bias=True):",
    )
    assert read_memcheck("========= ERROR SUMMARY: 0 errors") is None


def _tool(tmp_path, body):
    tool = tmp_path / "tool"
    tool.write_text(f"#!/bin/sh\n{body}\n")
    tool.chmod(0o755)
    return str(tool)


def test_a_tool_that_hangs_is_killed_with_what_it_started(tmp_path, spec):
    start = time.monotonic()
    counted = hardware_counters(
        spec, scratch=tmp_path, seconds=0.5, ncu=_tool(tmp_path, "sleep 600 & sleep 600")
    )
    assert time.monotonic() - start < 300
    assert "took over" in counted.note
    assert (
        memory_check(
            spec, scratch=tmp_path, seconds=0.5, sanitizer=_tool(tmp_path, "sleep 600")
        ).failure
        is None
    )


def test_a_tool_that_is_refused_says_why_and_harms_nothing(tmp_path, spec):
    counted = hardware_counters(
        spec,
        scratch=tmp_path,
        ncu=_tool(tmp_path, "echo '==ERROR== ERR_NVGPUCTRPERM no permission'; exit 1"),
    )
    assert counted.metrics == {}
    assert "ERR_NVGPUCTRPERM" in counted.note
    assert (
        "exit code"
        in memory_check(spec, scratch=tmp_path, sanitizer=_tool(tmp_path, "exit 9")).note
    )
    assert (
        "exit code 127"
        in hardware_counters(spec, scratch=tmp_path, ncu=str(tmp_path / "nothing")).note
    )


def test_counters_come_through_the_file_and_not_through_what_is_printed(tmp_path, spec):
    copying = f'for a in "$@"; do [ "$p" = --log-file ] && cp {tmp_path}/raw "$a"; p="$a"; done'
    body = f"echo '{RAW.splitlines()[1]}'; {copying}"
    (tmp_path / "raw").write_text(RAW)
    assert (
        hardware_counters(spec, scratch=tmp_path, ncu=_tool(tmp_path, body)).metrics["dram_percent"]
        == 70.0
    )


def test_a_missing_tool_is_a_note():
    assert find_tool("no-such-tool", ("no/such/place/*",)) is None
    assert isinstance(CounterRun(note="x"), CounterRun)


@pytest.mark.gpu
def test_ncu_and_memcheck_on_a_real_kernel(tmp_path):
    source = tmp_path / "candidate.py"
    source.write_text(
        "import torch, triton, triton.language as tl\n"
        "@triton.jit\ndef double(x, y, n, B: tl.constexpr):\n"
        "    i = tl.program_id(0) * B + tl.arange(0, B)\n"
        "    tl.store(y + i, tl.load(x + i) * 2)\n"
        "class ModelNew(torch.nn.Module):\n"
        "    def forward(self, x):\n"
        "        y = torch.empty_like(x)\n"
        "        double[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), B=1024)\n"
        "        return y\n"
    )
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps(call_spec(source, [], [torch.randn(1_000_001)], "cuda")))
    counted = hardware_counters(spec, scratch=tmp_path)
    assert counted.note or counted.metrics["dram_percent"] > 0
    checked = memory_check(spec, scratch=tmp_path)
    assert checked.note or (
        checked.failure is not None and checked.failure.fault is Fault.OUT_OF_BOUNDS
    )
