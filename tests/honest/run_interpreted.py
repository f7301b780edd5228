"""Proves the unusual kernels without the judge, as tests/kernels/run_interpreted.py proves the usual ones: it is that
program, on this folder.

    python tests/honest/run_interpreted.py [FILE ...]

Problems that stand in no catalogue lie in tests/exploits/problems; a file's header names them as `problems/NAME.py`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
TESTS = HERE.parent


def _plain() -> Any:
    spec = importlib.util.spec_from_file_location("run_interpreted", TESTS / "kernels" / "run_interpreted.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main(arguments: list[str]) -> int:
    import torch

    plain = _plain()
    catalogued, flat = plain.reference_source, plain.tensors

    def source(name: str) -> str:
        return (TESTS / "exploits" / name).read_text() if name.endswith(".py") else catalogued(name)

    def load_in_order(model: Any, state: dict[str, torch.Tensor]) -> None:
        """Parameters by name, or in order where the names are the candidate's own."""
        own = dict(model.named_parameters()) | dict(model.named_buffers())
        named = state if set(state) <= set(own) else dict(zip(own, state.values(), strict=False))
        with torch.no_grad():
            for name, value in named.items():
                own[name].copy_(value)

    plain.reference_source = source
    plain.cpu_sizes = _or_nothing(plain.cpu_sizes)
    plain.tensors = lambda value: flat(list(value.values()) if isinstance(value, dict) else value)
    torch.nn.Module.load_state_dict = load_in_order  # type: ignore[assignment, method-assign]
    given = [p for p in sorted(HERE.glob("*.py")) if "problem" in plain.header(p)]
    return plain.main(arguments or [str(p) for p in given])


def _or_nothing(read: Any) -> Any:
    def cpu_sizes(source: str) -> dict[str, int]:
        try:
            return read(source)
        except ValueError:
            return {}

    return cpu_sizes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
