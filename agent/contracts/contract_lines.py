"""Writes a contract as comments at the top of a kernel file: the kind of each line, then its
value.

    # contract   input       x: float32 (rows, 64), contiguous
    # contract   size        rows: any from 1; run at 5 values from 5 to 1024
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from kernelwright.agent.contracts.contract import (
    FREE_SIZE_VALUES,
    AnyContract,
    Argument,
    Contract,
    FixedContract,
    ItemsContract,
    Mode,
    OpenContract,
    SizeContract,
    TensorContract,
)
from kernelwright.tools.report import Report

MAX_WEIGHTS_SHOWN = 12
"""Maximum number of weights in the comments of a kernel file."""
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
MODE_TEXTS = {
    Mode.ANY: "training and eval: the reference gives the same in both",
    Mode.TRAINING: "training only, which the constructor sets: raises after .eval()",
    Mode.EVAL: "eval only, which the constructor sets: raises after .train()",
    Mode.MIXED: "as built, with layers in different modes: .train() and .eval() raise",
}


def contract_lines(contract: Contract, report: Report) -> list[str]:
    """Returns a line for each fact: the word `contract`, the kind of the line, and its value."""
    return [f"# contract   {kind:<11} {value}" for kind, value in _facts(contract, report)]


def _facts(contract: Contract, report: Report) -> Iterator[tuple[str, str]]:
    for argument in contract.constructor:
        yield "constructor", _argument(argument)
    if contract.cast:
        yield "module", f"cast to {contract.cast} after its constructor"
    yield from _input_facts(contract)
    for output in contract.outputs:
        layout = "contiguous" if output.contiguous else "strided"
        yield "output", f"{_shaped(output.dtype, output.shape)}, {layout}"
    for weight in contract.weights[:MAX_WEIGHTS_SHOWN]:
        yield "weight", f"{weight.name}: {_shaped(weight.dtype, weight.shape)}"
    if len(contract.weights) > MAX_WEIGHTS_SHOWN:
        yield "weight", f"and {len(contract.weights) - MAX_WEIGHTS_SHOWN} more"
    yield from _size_facts(contract)
    for other in contract.others:
        cast = f", the module cast to {other.cast}" if other.cast else ""
        yield "or", f"a call of this form{cast}:"
        yield from _input_facts(other)
        yield from _size_facts(other)
    yield "layout", _layout(contract)
    yield "device", _device(report)
    yield "mode", MODE_TEXTS[contract.mode]
    yield "gradients", _gradients(contract)
    if any(_has_integers(argument.contract) for argument in contract.inputs):
        yield (
            "values",
            "not checked: whole numbers must lie in the range that the reference accepts",
        )
    if (error := largest_error(report)) is not None:
        yield (
            "error",
            f"at most {error:.3g} times that of eager PyTorch against float64, in all draws",
        )


def _input_facts(contract: Contract) -> Iterator[tuple[str, str]]:
    for argument in contract.inputs:
        yield "input" if argument.passed else "argument", _argument(argument)


def _size_facts(contract: Contract) -> Iterator[tuple[str, str]]:
    for name, values in contract.run_sizes.items():
        yield "size", _size(name, values, contract.own_sizes[name], name in contract.few_values)
    for relation in contract.relations:
        yield "relation", relation.text


def _argument(argument: Argument) -> str:
    default = f" (default {argument.default})" if argument.default is not None else ""
    return f"{argument.name}: {_value(argument.contract)}{default if argument.passed else ''}"


def _value(contract: AnyContract) -> str:
    match contract:
        case TensorContract():
            return f"{_shaped(contract.dtype, contract.shape)}, {_strides(contract)}"
        case SizeContract():
            return f"size {contract.size}"
        case FixedContract():
            return f"{contract.literal} only"
        case OpenContract():
            return contract.shown
        case ItemsContract():
            return _items(contract)


def _items(contract: ItemsContract) -> str:
    values = [_value(item) for item in contract.items]
    if contract.kind == "dict":
        values = [f"{key}: {value}" for key, value in zip(contract.keys, values, strict=True)]
    return f"{contract.kind} of {len(values)}: {'; '.join(values)}"


def _shaped(dtype: str, shape: tuple[int | str, ...]) -> str:
    return f"{dtype} ({', '.join(map(str, shape))}{',' if len(shape) == 1 else ''})"


def _strides(contract: TensorContract) -> str:
    if contract.layouts:
        strides = " or ".join(str(strides) for _, strides in contract.layouts[:FREE_SIZE_VALUES])
        return f"strides {strides} only"
    layout = f"dimensions in memory in the order {contract.order}"
    if contract.is_contiguous:
        layout = "contiguous"
    return f"{layout}, written to" if contract.written else layout


def _size(name: str, values: tuple[int, ...], problem_value: int, few: bool) -> str:
    ran = f"run at {_numbers(values)}"
    compiled = "" if problem_value in values else f", compiled for {problem_value}"
    least = 0 if 0 in values else 1
    return f"{name}: {'only these' if few else f'any from {least}'}; {ran}{compiled}"


def _numbers(values: tuple[int, ...]) -> str:
    if len(values) <= FREE_SIZE_VALUES:
        return ", ".join(map(str, values)) or "no value"
    return f"{len(values)} values from {values[0]} to {values[-1]}"


def _layout(contract: Contract) -> str:
    if any(_is_strict(argument.contract) for argument in contract.inputs):
        return "other strides than these raise where they are strict or written to, and are copied elsewhere"
    return "an input with other strides or a storage offset is copied first"


def _is_strict(contract: AnyContract) -> bool:
    if isinstance(contract, ItemsContract):
        return any(map(_is_strict, contract.items))
    return isinstance(contract, TensorContract) and (contract.written or bool(contract.layouts))


def _has_integers(contract: AnyContract) -> bool:
    if isinstance(contract, ItemsContract):
        return any(map(_has_integers, contract.items))
    return isinstance(contract, TensorContract) and contract.dtype in INTEGERS


def _device(report: Report) -> str:
    if report.judged_on == "cpu":
        return "one GPU; run only on a CPU so far, by Triton's interpreter (TRITON_INTERPRET=1)"
    return f"one GPU; run on {report.judged_on}"


def _gradients(contract: Contract) -> str:
    weights = "; backward of an output that depends on weights raises" if contract.weights else ""
    return f"no backward: an input that requires grad raises while grad mode is on{weights}"


def largest_error(report: Report) -> float | None:
    """Returns the largest finite error ratio of all checks; None without checks."""
    ratios: list[float] = []
    for stage in (report.interpreted, report.correctness):
        for check in stage.checks if stage is not None else ():
            if check.error_ratio is not None and math.isfinite(check.error_ratio):
                ratios.append(check.error_ratio)
    return max(ratios, default=None)
