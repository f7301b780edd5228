"""Calls a candidate a few times under a program that watches the process from outside (ncu, compute-sanitizer).

Run as `python -m kernelwright.tools.tracing.profiled_calls SPEC.json`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelwright.tools.wire import restore

WARM_CALLS = 2


def main(words: list[str]) -> None:
    """Runs a candidate once on random tensors, for tools that look at a process from outside."""
    import torch

    spec = json.loads(Path(words[0]).read_text())
    device = spec["device"]
    torch.manual_seed(0)
    arguments = restore(spec["init"], lambda d: random_tensor(d, device))
    inputs = restore(spec["inputs"], lambda d: random_tensor(d, device))
    module = _import_candidate(Path(spec["source"]))
    with torch.device(device):
        model = module.ModelNew(*arguments)
    if isinstance(model, torch.nn.Module):
        model = model.to(device)
    with torch.no_grad():
        for _ in range(WARM_CALLS):
            model(*inputs)
        with _profiled(device):
            model(*inputs)


def random_tensor(described: dict[str, Any], device: str) -> Any:
    """Makes a tensor of the shape, dtype and range that `tools.timing.counters.call_spec` describes."""
    import torch

    dtype = getattr(torch, described["dtype"])
    shape = described["shape"]
    if dtype == torch.bool:
        return torch.rand(shape, device=device) < 0.5
    low = described["low"]
    high = described["high"]
    if not dtype.is_floating_point:
        return torch.randint(int(low), int(high) + 1, shape, device=device, dtype=dtype)
    return (
        torch.rand(shape, device=device, dtype=torch.float32).mul_(high - low).add_(low).to(dtype)
    )


def _import_candidate(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("candidate", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate"] = module
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _profiled(device: str) -> Iterator[None]:
    import torch

    if device == "cpu":
        yield
        return
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    try:
        yield
        torch.cuda.synchronize()
    finally:
        torch.cuda.cudart().cudaProfilerStop()


if __name__ == "__main__":
    main(sys.argv[1:])
