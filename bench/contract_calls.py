"""Calls one kernel file and its reference in ways in which it was not judged, and prints the outcomes as JSON.

    TRITON_INTERPRET=1 python -m bench.contract_calls KERNEL.py PROBLEM

Beside the kernel a file sizes.json may lie with the sizes of the problem to use.
"""

from __future__ import annotations

import copy
import importlib.util
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from kernelwright.agent.problems.finding import find_by_name
from kernelwright.tools.nested import put_together, take_apart
from kernelwright.tools.references.reference import Reference

SEED = 7
RAISED = (TypeError, ValueError, RuntimeError)
TOLERANCES = {torch.float16: 5e-3, torch.bfloat16: 4e-2}
Change = Callable[[torch.Tensor], torch.Tensor]


def transposed_strides(x: torch.Tensor) -> torch.Tensor:
    """The same values with the last two dimensions swapped in memory."""
    return x.transpose(-1, -2).contiguous().transpose(-1, -2) if x.dim() > 1 else x


def heads_in_the_middle(x: torch.Tensor) -> torch.Tensor:
    """As `view(...).transpose(1, 2)` leaves it."""
    return x.transpose(1, 2).contiguous().transpose(1, 2) if x.dim() > 2 else x


def sliced(x: torch.Tensor) -> torch.Tensor:
    """Every second element of a tensor twice as wide."""
    if not x.dim():
        return x
    wide = torch.zeros((*x.shape[:-1], 2 * x.shape[-1]), dtype=x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def offset(x: torch.Tensor) -> torch.Tensor:
    """At a storage offset of one element."""
    storage = torch.zeros(x.numel() + 1, dtype=x.dtype)
    storage[1:] = x.flatten()
    return storage[1:].view(x.shape)


def expanded(x: torch.Tensor) -> torch.Tensor:
    """The first entry for every one, with a stride of 0."""
    return x[:1].expand_as(x) if x.dim() else x


def last_expanded(x: torch.Tensor) -> torch.Tensor:
    """The first column for every one, with a stride of 0."""
    return x[..., :1].expand_as(x) if x.dim() else x


def channels_last(x: torch.Tensor) -> torch.Tensor:
    """Images with the channels in the fastest place."""
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x


def flipped_in_memory(x: torch.Tensor) -> torch.Tensor:
    """All dimensions in the opposite order in memory."""
    order = list(range(x.dim()))[::-1]
    return x.permute(order).contiguous().permute(order)


def negated_view(x: torch.Tensor) -> torch.Tensor:
    """With torch's negation bit, which memory does not show."""
    return torch._neg_view(-x) if x.is_floating_point() else x


LAYOUTS: dict[str, Change] = {
    "transposed strides": transposed_strides, "strides of heads": heads_in_the_middle, "sliced [::2]": sliced,
    "storage offset": offset, "expanded": expanded, "last expanded": last_expanded, "channels last": channels_last,
    "reversed strides": flipped_in_memory, "negation bit": negated_view,
}  # fmt: skip
KINDS: dict[str, Change] = {
    "float16": lambda x: x.half() if x.is_floating_point() else x,
    "float64": lambda x: x.double() if x.is_floating_point() else x,
    "int32": lambda x: x.int(),
    "bfloat16": lambda x: x.bfloat16() if x.is_floating_point() else x,
    "one dimension more": lambda x: x[None], "one dimension less": lambda x: x[0] if x.dim() else x,
    "flattened": lambda x: x.flatten(), "empty": lambda x: x[:0] if x.dim() else x, "a list": lambda x: x.tolist(),
    "transposed": lambda x: x.transpose(-1, -2) if x.dim() > 1 else x,
    "requires grad": lambda x: x.clone().requires_grad_() if x.is_floating_point() else x,
    "double the rows": lambda x: torch.cat([x, x]) if x.dim() else x,
    "one row less": lambda x: x[1:] if x.dim() else x,
    "one column less": lambda x: x[..., 1:] if x.dim() else x,
    "sparse": lambda x: x.to_sparse(),
}  # fmt: skip


class Pair:
    """A reference and its kernel, with equal weights."""

    def __init__(self, kernel: Path, reference: Reference) -> None:
        spec = importlib.util.spec_from_file_location("kernel_file", kernel)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self.reference, self.kind = reference, module.ModelNew
        self.model = reference.model(SEED)
        with torch.random.fork_rng():
            torch.manual_seed(SEED)
            self.kernel = self.kind(*reference.init_arguments())
        if self.model.state_dict():
            self.kernel.load_state_dict(self.model.state_dict())

    def inputs(self) -> list[Any]:
        """New inputs, always the same."""
        with torch.random.fork_rng():
            return self.reference.arguments(self.reference.inputs(SEED))

    def compare(
        self, inputs: list[Any], prepare: Callable[[Any], Any] = lambda m: m, grad: bool = False
    ) -> str:
        """What becomes of one call. prepare: what the user does to a module first."""
        with torch.set_grad_enabled(grad):
            expected = _outcome(prepare(copy.deepcopy(self.model)), copy.deepcopy(inputs))
            got = _outcome(prepare(copy.deepcopy(self.kernel)), copy.deepcopy(inputs))
        if isinstance(got, Exception):
            lines = str(got).strip().splitlines() or [""]
            clear = isinstance(got, RAISED) and len(lines) == 1
            return f"raises: {lines[0]}" if clear else f"wrong: {type(got).__name__}: {lines[0]}"
        if isinstance(expected, Exception):
            return f"wrong: answers where the reference raises {type(expected).__name__}: {str(expected)[:80]}"
        return _compared(expected, got)


def _outcome(model: Any, inputs: list[Any]) -> Any:
    try:
        with torch.random.fork_rng():
            torch.manual_seed(SEED)
            return take_apart([model(*inputs)])[0]
    except Exception as error:
        return error


def _compared(expected: list[Any], got: list[Any]) -> str:
    if len(expected) != len(got):
        return f"wrong: {len(got)} outputs, not {len(expected)}"
    for reference, value in zip(expected, got, strict=True):
        if not isinstance(reference, torch.Tensor):
            if reference != value:
                return f"wrong: {value!r}, not {reference!r}"
            continue
        if value.dtype is not reference.dtype or value.shape != reference.shape:
            return f"wrong: {value.dtype} {tuple(value.shape)}, not {reference.dtype} {tuple(reference.shape)}"
        if value.requires_grad is not reference.requires_grad:
            return f"wrong: requires_grad is {value.requires_grad}, not {reference.requires_grad}"
        tolerance = TOLERANCES.get(reference.dtype, 1e-4)
        if not torch.allclose(
            value.detach(), reference.detach(), rtol=tolerance, atol=tolerance, equal_nan=True
        ):
            error = (value.detach().double() - reference.detach().double()).abs().max()
            return f"wrong: by {float(error):.3g}"
    return "right"


def calls(pair: Pair) -> Iterator[tuple[str, str]]:
    """Yields each way of calling with its outcome."""
    yield "as judged", pair.compare(pair.inputs())
    yield "as judged, grad mode on", pair.compare(pair.inputs(), grad=True)
    for name, prepare in _preparations(pair).items():
        yield name, pair.compare(pair.inputs(), prepare)
    leaves, form = take_apart(pair.inputs())
    tensors = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
    for name, change in (LAYOUTS | KINDS).items():
        for chosen in [tensors, *([[place] for place in tensors] if len(tensors) > 1 else [])]:
            changed = _changed(leaves, chosen, change)
            if changed is not None:
                which = "all inputs" if len(chosen) == len(tensors) else f"input {chosen[0]}"
                grad = name == "requires grad"
                yield f"{name}, {which}", pair.compare(put_together(form, changed), grad=grad)
    for place in range(len(leaves)):
        if isinstance(leaves[place], int | float) and not isinstance(leaves[place], bool):
            yield (
                f"another number, input {place}",
                pair.compare(
                    put_together(form, [*leaves[:place], leaves[place] + 1, *leaves[place + 1 :]])
                ),
            )
    for place in tensors:
        for dimension in range(leaves[place].dim()):
            longer = torch.cat([leaves[place], leaves[place]], dimension)
            yield (
                f"input {place} twice as long in dimension {dimension}",
                pair.compare(put_together(form, [*leaves[:place], longer, *leaves[place + 1 :]])),
            )


def _changed(leaves: list[Any], chosen: list[int], change: Change) -> list[Any] | None:
    """The leaves with some of them changed; None where the change is none."""
    changed = list(leaves)
    for place in chosen:
        try:
            changed[place] = change(leaves[place])
        except (RuntimeError, IndexError):
            return None
    return None if all(changed[place] is leaves[place] for place in chosen) else changed


def _preparations(pair: Pair) -> dict[str, Callable[[Any], Any]]:
    ways: dict[str, Callable[[Any], Any]] = {
        ".train()": lambda m: m.train(),
        ".eval()": lambda m: m.eval(),
    }
    if pair.model.state_dict():
        ways |= {
            ".half()": lambda m: m.half(), ".double()": lambda m: m.double(),
            ".to(channels_last)": lambda m: m.to(memory_format=torch.channels_last),
            "transposed weights": _transpose_weights,
        }  # fmt: skip
    return ways


def _transpose_weights(model: Any) -> Any:
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data = transposed_strides(parameter.data)
    return model


def main() -> None:
    """Prints the outcomes in the last line."""
    warnings.simplefilter("ignore")
    kernel, problem = Path(sys.argv[1]), find_by_name(sys.argv[2])
    sizes = kernel.with_name("sizes.json")
    if sizes.exists():
        problem = problem.with_sizes(json.loads(sizes.read_text(encoding="utf-8")))
    from bench.interpreted_libdevice import install

    install()
    print(json.dumps(dict(calls(Pair(kernel, Reference(problem, "cpu"))))))


if __name__ == "__main__":
    main()
