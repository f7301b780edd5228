"""Searches for a legal input on which a mutant answers otherwise than the honest kernel that it was made of.

Runs both under Triton's own interpreter, without the judge, in a process of its own (a mutant may read anywhere):

    echo '{"problem": TEXT, "honest": TEXT, "mutant": TEXT}' | python -m bench.mutations.differences

Prints `{"differs": "inputs and sizes"}`, `{"differs": ""}` where none of the inputs told them apart, or
`{"error": ...}` where the honest kernel itself does not run here. An input is legal where the honest kernel is right on
it. Inputs are drawn independently of the judge's draws.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SECONDS = 60.0
"""Wall time of one search; past it the inputs so far decide."""
TIMES_HONEST_ERROR, ULPS = 8.0, 8.0
"""A difference exceeds so many times the honest kernel's largest error, and so many units in the last place."""
MAX_HONEST_ERROR = 0.02
"""Relative to the largest output: above it the honest kernel is not taken as right."""
SIZE_VARIANTS, MAX_ELEMENTS = 6, 1 << 18


def search(problem: str, honest: str, mutant: str) -> dict[str, str]:
    """Runs the search in a child process; one that dies or hangs differs."""
    message = json.dumps({"problem": problem, "honest": honest, "mutant": mutant})
    command = [sys.executable, "-m", "bench.mutations.differences"]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    try:
        child = subprocess.run(
            command,
            input=message,
            capture_output=True,
            text=True,
            timeout=3 * SECONDS,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": "no answer in time"}
    if child.returncode < 0:
        return {"differs": f"ends its process by signal {-child.returncode}"}
    lines = child.stdout.strip().splitlines()
    if child.returncode or not lines:
        return {"error": (child.stderr.strip().splitlines() or ["no output"])[-1][:200]}
    return dict(json.loads(lines[-1]))


def _sizes(problem: Any) -> Iterator[dict[str, int]]:
    """Yields the problem's small sizes, then sizes near them."""
    from kernelwright.tools.references.small_sizes import shrink

    base = problem.cpu_sizes or shrink(problem).sizes
    yield base
    order = random.Random(1)
    for _ in range(SIZE_VARIANTS - 1):
        yield {
            name: max(1, order.choice((value - 1, value + 1, 2 * value, value + 17, 16, 64)))
            for name, value in base.items()
        }


def _scaled(factor: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda t: t * factor


def _alone(filling: float) -> Callable[[torch.Tensor], torch.Tensor]:
    """Keeps the last element of each row and one at random, and fills all others."""

    def isolated(tensor: torch.Tensor) -> torch.Tensor:
        import torch

        changed = torch.full_like(tensor, filling)
        if tensor.dim():
            for column in (-1, int(torch.randint(tensor.shape[-1], ()))):
                changed[..., column] = tensor[..., column]
        return changed

    return isolated


def _random_signs(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return tensor * (1 - 2 * torch.randint(0, 2, tensor.shape)).to(tensor.dtype)


def _normal(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    return torch.randn(tensor.shape).to(tensor.dtype)


TRANSFORMATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "own": lambda t: t,
    "own again": lambda t: t,
    "random signs": _random_signs,
    "normal": _normal,
    "large": _scaled(300.0),
    "tiny": _scaled(1e-5),
    "below zero": lambda t: -1e5 * (t.abs() + 1),
    "alone among zeros": _alone(0.0),
    "alone among minus infinities": _alone(-float("inf")),
    "offset": lambda t: t + 1e3,
}


def _module(text: str, name: str, folder: Path) -> Any:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _built(module: Any, init: list[Any], model: Any) -> Any:
    """The candidate with the reference's weights, matched by name, or in their order."""
    import torch

    torch.manual_seed(7)
    candidate = module.ModelNew(*init)
    state = model.state_dict()
    try:
        candidate.load_state_dict(state)
    except RuntimeError:
        with torch.no_grad():
            for mine, theirs in zip(candidate.parameters(), model.parameters(), strict=False):
                if mine.shape == theirs.shape:
                    mine.copy_(theirs)
    return candidate


def _flat(value: Any) -> list[torch.Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    values = (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else ()
    )
    return [tensor for element in values for tensor in _flat(element)]


def _answer(model: Any, inputs: list[Any]) -> list[torch.Tensor]:
    import copy

    import torch

    torch.manual_seed(11)
    with torch.no_grad():
        return _flat(copy.deepcopy(model)(*copy.deepcopy(inputs)))


def _errors(got: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference; infinite where one side alone is not finite, or the form differs."""
    if got.shape != expected.shape or not got.isfinite().equal(expected.isfinite()):
        return float("inf")
    if not got.numel():
        return 0.0
    return float((got.double() - expected.double()).nan_to_num(0.0, 0.0, 0.0).abs().max())


def _disagree(honest: list[Any], mutant: list[Any], expected: list[Any]) -> bool:
    """Whether the honest answer is right and the mutant's is not."""
    import torch

    for right, changed, wanted in zip(honest, mutant, expected, strict=True):
        floating = wanted.is_floating_point()
        scale = (
            float(wanted.double().nan_to_num(0.0, 0.0, 0.0).abs().max()) if wanted.numel() else 0.0
        )
        epsilon = torch.finfo(wanted.dtype).eps if floating else 0.0
        honest_error = _errors(right, wanted)
        if honest_error > (MAX_HONEST_ERROR * scale if floating else 0.0):
            return False
        if _errors(changed, wanted) > TIMES_HONEST_ERROR * honest_error + ULPS * epsilon * scale:
            return True
    return False


def _draws(reference: Any, seed: int) -> Iterator[tuple[str, list[Any]]]:
    import torch

    for number, (name, change) in enumerate(TRANSFORMATIONS.items()):
        torch.manual_seed(seed + number)
        inputs = reference.get_inputs()
        for index, value in enumerate(inputs):
            if isinstance(value, torch.Tensor) and value.is_floating_point() and value.itemsize > 1:
                inputs[index] = change(value)
        yield name, inputs


def differing_input(problem: Any, honest: str, mutant: str, folder: Path) -> str:
    """Names the first size and inputs on which the mutant is wrong and the honest kernel right; empty without one.

    Raises whatever the honest kernel raises at the first size.
    """
    import time

    import torch

    begun = time.monotonic()
    right, changed = (
        _module(honest, "honest_kernel", folder),
        _module(mutant, "mutant_kernel", folder),
    )
    for number, sizes in enumerate(_sizes(problem)):
        try:
            reference = _module(problem.with_sizes(sizes).source, f"reference_{number}", folder)
            torch.manual_seed(number)
            init = reference.get_init_inputs()
            model = reference.Model(*init)
            candidates = _built(right, init, model), _built(changed, init, model)
        except Exception:
            if number == 0:
                raise
            continue
        for name, inputs in _draws(reference, 100 * number):
            if (
                time.monotonic() - begun > SECONDS
                or sum(t.numel() for t in _flat(inputs)) > MAX_ELEMENTS
            ):
                break
            with contextlib.suppress(Exception):
                expected = _answer(model, inputs)
                answer = _answer(candidates[0], inputs)
                try:
                    wrong = _disagree(answer, _answer(candidates[1], inputs), expected)
                except Exception as error:
                    wrong, name = True, f"{name} ({type(error).__name__})"
                if wrong:
                    return f"{name} at {json.dumps(sizes)}"
    return ""


def main() -> None:
    """Answers one question from standard input."""
    from kernelwright.tools.problem import Problem

    question = json.load(sys.stdin)
    problem = Problem(name="problem", source=question["problem"])
    with tempfile.TemporaryDirectory() as folder:
        differs = differing_input(problem, question["honest"], question["mutant"], Path(folder))
    print(json.dumps({"differs": differs}))


if __name__ == "__main__":
    main()
