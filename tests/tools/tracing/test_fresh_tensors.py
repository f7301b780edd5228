"""Tensors that a candidate allocates on the pretended GPU have the form that torch's own fake tensors have."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

SCRIPT = """
import json
import torch
from kernelwright.tools.hardware.targets import parse_target
from kernelwright.tools.tracing.pretended_gpu import fake_gpu

fake_gpu.install(parse_target("sm_90"))
answered = 0
fresh = fake_gpu.Fakes._fresh


def counted(self, func, args, kwargs):
    global answered
    made = fresh(self, func, args, kwargs)
    answered += made is not None
    return made


def forms():
    x = torch.empty(3, 4, device="cuda")
    image = torch.empty((2, 3, 4, 5), device="cuda", memory_format=torch.channels_last)
    host, weight = torch.empty(3, 4), torch.nn.Parameter(torch.empty(8, device="cuda"))
    made = [
        x, image, host, weight, torch.empty((), device="cuda:0", dtype=torch.bool), torch.empty(0, 4, device="cuda"),
        torch.empty_strided((3, 4), (8, 2), dtype=torch.float16, device="cuda"), torch.empty_like(x),
        torch.empty_like(x, dtype=torch.int64), torch.empty_like(x.t()), torch.empty_like(x[:, ::2]),
        torch.empty_like(image), torch.empty_like(image, memory_format=torch.contiguous_format),
        torch.empty_like(x, device="cpu"), torch.empty_like(host), torch.empty_like(host, device="cuda"),
        torch.empty_like(weight), torch.empty_like(x, requires_grad=True), x.new_empty(5, 6),
        torch.empty_like(x.expand(2, 3, 4)),
    ]
    return [
        (type(t).__name__, list(t.shape), list(t.stride()), t.storage_offset(), str(t.dtype), str(t.device),
         t.requires_grad, t.untyped_storage().nbytes())
        for t in made
    ]


def refused():
    told = []
    for ask in (lambda: torch.empty(-1, device="cuda"), lambda: torch.empty_strided((3,), (1, 2), device="cuda")):
        try:
            ask()
        except Exception as error:
            told.append([type(error).__name__, str(error).splitlines()[0]])
    return told


with fake_gpu.fake():
    fake_gpu.Fakes._fresh = counted
    quick = [forms(), refused()]
    fake_gpu.Fakes._fresh = lambda *_: None
    print(json.dumps({"quick": quick, "own": [forms(), refused()], "answered": answered}))
"""


@pytest.mark.slow
def test_a_fresh_tensor_has_the_form_that_torch_gives_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=400, check=True
    )
    found = json.loads(done.stdout)
    assert found["quick"] == found["own"]
    assert len(found["own"][1]) == 2
    assert found["answered"] >= 12
