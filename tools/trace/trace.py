"""The trace: all that crosses from a candidate's process to the trusted side, as a frozen, versioned, bounded value.

A trace is plain data: operators of torch by name, launches of kernels by their text, tensors by number. It holds no
code of the candidate but the text of its kernels, and no claim about itself: a forged trace is only another program,
and it is replayed and judged as one.

How values are written, wherever `Json` stands (arguments of operators, constants of kernels, outputs):

    {"t": 7}                                  tensor number 7
    {"tuple": [...]}, [...]                   a tuple, a list
    {"dict": {"name": ...}}                   a dict with string keys (outputs only)
    {"dtype": "float32"}                      torch's dtype; {"tl_dtype": "fp16"} Triton's
    {"device": "cuda"}, {"memory_format": "contiguous_format"}, {"layout": "strided"}
    {"float": "inf"}                          a float that JSON has no word for
    {"generator": {"number": 0, "seed": 7, "first": true}}  the host's own torch.Generator, which draws here first
    {"function": "key"}                       a device function of the same trace
    {"pointer_type": "fp16"}                  tl.pointer_type(tl.float16), a constexpr of some kernels
    {"descriptor": {"base": {"t": 3}, "shape": [...], "strides": [...], "block": [...], "padding": "zero"}}     a tensor
    descriptor made on the host
    null, true, 1, 0.5, "text"                itself

Nothing here imports torch or triton.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, TypeAlias

from pydantic import ConfigDict, Discriminator, Tag, ValidationError

from kernelwright.tools.report import Value

TRACE_VERSION = 1
"""Incremented if a field changes its meaning."""
Json = Any

MAX_STEPS = 1 << 16
"""Maximum number of operators and launches of a call, over all autotuned configurations together.
"""
MAX_KERNELS = 2048
"""Maximum number of kernel specialisations per candidate, over all sizes."""
MAX_FUNCTIONS = 256
MAX_VARIANTS = 16
"""Maximum number of traces in changed surroundings that differ from the usual trace."""
MAX_FUNCTION_CHARACTERS = 200_000
"""Maximum length of a function's source."""
MAX_NAME_CHARACTERS = 200
MAX_DATA_BYTES = 4 << 20
"""Maximum size, in bytes, of a trace's constant tensors in base64."""
MAX_NESTING = 24
"""Maximum nesting depth of a value."""
MAX_VALUE_NODES = 2_000_000
"""Maximum number of nodes in all values of a trace."""
MAX_INTEGER = 1 << 64
MAX_OUTPUTS = 64
"""Outputs whose forms a trace describes, and whose values a replay describes."""


class Change(StrEnum):
    """A change of a call's surroundings on which a correct candidate does not depend. The value
    completes "wrong where".

    A candidate may refuse such surroundings. Its steps there are replayed and compared like every
    other trace.
    """

    GRADIENTS = "gradients are recorded"
    PARAMETERS = "inputs are parameters"
    VIEWS = "inputs are views of tensors that require gradients"
    DEFAULT_TYPE = "the default dtype is float64"
    AUTOCAST = "autocast is on"
    CLOCK = "the clock is years ahead"
    THREADS = "torch has another number of threads"
    DETERMINISTIC = "deterministic algorithms are asked for"
    ENVIRONMENT = "the process has another environment"
    SEEDED = "random generators are seeded anew"
    OTHER_MODE = "the module is in the other mode of train and eval"
    FROZEN = "no parameter requires a gradient"
    COPIED = "the module is a deep copy"
    LOADED = "a checkpoint is loaded by load_state_dict"
    ASSIGNED = "a checkpoint is loaded by load_state_dict(assign=True)"
    STRIDED = "parameters are transposed tensors"


OF_WEIGHTS = frozenset({Change.LOADED, Change.ASSIGNED, Change.STRIDED})
"""Changes of how weights are loaded into a module; applied separately."""


class TraceError(ValueError):
    """Raised for a message of a candidate's process that is no trace. The message names the error."""


class Strict(Value):
    """Value that refuses unknown fields: its data comes from a candidate's process."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Function(Strict):
    """A `@triton.jit` function as source, with the meaning of its global names, apart from Python's
    builtins."""

    name: str
    """Name in the `def` statement."""
    text: str
    """Source from `def` on, without decorators, dedented."""
    line: int = 1
    """Line of the `def` in the candidate's file, from 1; 1 for a function of another file."""
    indent: int = 0
    """Indentation of the `def` in the file, in columns."""
    file: str = ""
    """Empty for the candidate's file; otherwise the module of an allowed library."""
    names: dict[str, Json] = {}
    """Global name -> {"function": key}, {"value": Json}, {"constexpr": Json}, {"triton":
    "triton.language:exp"} (an object of Triton, by module and qualified name; {"triton":
    "triton.language"} is a module), {"constexpr_function": key}, or {"members": {attribute: one of
    these}} for any other module or class."""
    noinline: bool = False
    do_not_specialize: tuple[str, ...] = ()


class Kernel(Strict):
    """A specialisation of a kernel: the arguments of `triton.compile`."""

    function: str
    """Key of the entry function."""
    signature: dict[str, Json]
    """Parameter -> Triton type ("*fp32", "i32", "constexpr", "tensordesc<fp16[16, 16]>"); a list
    for a tuple."""
    constants: tuple[tuple[tuple[int | str, ...], Json], ...] = ()
    """Path (parameter's index, then indices into tuples) and value."""
    attributes: tuple[tuple[tuple[int | str, ...], Json], ...] = ()
    """Path and Triton's attributes, [["tt.divisibility", 16]]."""
    options: dict[str, Json] = {}
    """num_warps, num_stages and others that differ from the backend's defaults."""
    fields: dict[str, tuple[str, ...]] = {}
    """Parameters whose argument is a named tuple, with its field names."""


class Operator(Strict):
    """A call of an ATen operator."""

    op: str
    """Qualified name: `aten.view.default`."""
    args: tuple[Json, ...] = ()
    kwargs: dict[str, Json] = {}
    out: Json = None
    """Tensors made or returned, in the form of the result."""
    line: int = 0
    """Line in the candidate's file; 0 if unknown."""


class Launch(Strict):
    """A launch of a kernel."""

    kernel: str
    """Key into `Traced.kernels`."""
    grid: tuple[int, int, int]
    args: dict[str, Json] = {}
    """Parameter -> value, without constexprs."""
    reaches: tuple[Json, ...] = ()
    """Tensors whose addresses are stored in tensors among the arguments, as {"t": number}."""
    line: int = 0


class Data(Strict):
    """A tensor with values from the host code: `torch.tensor([1, 2, 3], device="cuda")`."""

    t: int
    dtype: str
    shape: tuple[int, ...]
    data: str
    """Base64 of the contiguous little-endian bytes."""
    addresses: tuple[tuple[int, Json, int], ...] = ()
    """Elements that hold addresses: index, tensor as {"t": number}, and offset in bytes. Their
    bytes in `data` are zero."""
    line: int = 0


def _kind_of(step: Any) -> str:
    """Returns the key that identifies the kind of a step, so that pydantic need not try each kind."""
    keys = step if isinstance(step, dict) else type(step).model_fields
    return next((key for key in ("op", "kernel", "alternatives", "data") if key in keys), "")


_Operator: TypeAlias = Annotated[Operator, Tag("op")]
_Launch: TypeAlias = Annotated[Launch, Tag("kernel")]
_Data: TypeAlias = Annotated[Data, Tag("data")]


class Choice(Strict):
    """An autotuned launch: each alternative holds the steps of a configuration.

    The trusted side decides which is taken.
    """

    name: str
    alternatives: tuple[
        tuple[Annotated[_Operator | _Launch | _Data, Discriminator(_kind_of)], ...], ...
    ]
    labels: tuple[str, ...] = ()
    """Triton's label of each configuration."""
    line: int = 0


Step = Annotated[
    _Operator | _Launch | Annotated[Choice, Tag("alternatives")] | _Data, Discriminator(_kind_of)
]


class Form(Strict):
    """Shape, dtype and device of an output, from tensors without data.

    The replay determines the true form; this is known earlier, also at sizes too large to replay.
    """

    shape: tuple[int, ...] = ()
    dtype: str = ""
    """torch's name without "torch."; "other" for values that are no tensors."""
    device: str = ""


class Trace(Strict):
    """Steps of a model at a size: building it, the first call, and later calls."""

    inputs: tuple[Json, ...] = ()
    """Inputs in the problem's order: {"t": number} or a plain value."""
    later_inputs: tuple[Json, ...] = ()
    """Inputs of a later call, whose tensors differ."""
    state: dict[str, int] = {}
    """Parameters and buffers by dotted name -> tensor number.

    The judge's weights replace these tensors before any step runs.
    """
    parameters: tuple[str, ...] = ()
    """Names in `state` that are parameters, in order."""
    shapes: dict[str, tuple[int, ...]] = {}
    """Shape of each tensor in `state`."""
    dtypes: dict[str, str] = {}
    setup: tuple[Step, ...] = ()
    """Steps that build the model: `__init__` and those after it."""
    first: tuple[Step, ...] = ()
    """Steps of the first call of forward."""
    first_outputs: Json = None
    later: tuple[Step, ...] | None = None
    """Steps of any later call; None if equal to those of the first, apart from the inputs."""
    later_outputs: Json = None
    forms: tuple[Form, ...] = ()
    """Forms of the first 64 outputs, flattened."""


class Variant(Strict):
    """A trace in changed surroundings that differs from the usual trace."""

    changes: tuple[Change, ...]
    trace: Trace


class Traced(Strict):
    """Trace of a candidate at all requested sizes."""

    version: int = TRACE_VERSION
    functions: dict[str, Function] = {}
    kernels: dict[str, Kernel] = {}
    traces: tuple[Trace | None, ...] = ()
    """A trace for each size, in request order; None if the host code raised (see `failures` of the
    answer)."""
    variants: tuple[Variant, ...] = ()
    """Traces in changed surroundings, of a single size."""


def read_traced(message: Json) -> Traced:
    """Parses a message of a candidate's process, in time linear in its size. Raises TraceError for
    a malformed message."""
    _check_size(message)
    try:
        traced = Traced.model_validate_json(json.dumps(message))
    except (ValidationError, ValueError, RecursionError) as error:
        first = error.errors()[0] if isinstance(error, ValidationError) else None
        description = (
            f"{'.'.join(map(str, first['loc']))[:120]}: {first['msg'][:120]}"
            if first
            else type(error).__name__
        )
        raise TraceError(f"the trace has not the form of one: {description}") from None
    _check_bounds(traced)
    return traced


def _check_size(message: Json) -> None:
    """Checks the number of nodes, depth and integers, without recursion."""
    waiting: list[tuple[Json, int]] = [(message, 0)]
    node_count = 0
    while waiting:
        value, depth = waiting.pop()
        node_count += 1
        if node_count > MAX_VALUE_NODES or depth > MAX_NESTING:
            raise TraceError("the trace is too large or nested too deeply")
        if isinstance(value, dict):
            if any(len(k) > MAX_NAME_CHARACTERS for k in value):
                raise TraceError("the trace holds a name that is too long")
            waiting += [(v, depth + 1) for v in value.values()]
        elif isinstance(value, list):
            waiting += [(v, depth + 1) for v in value]
        elif isinstance(value, int) and not -MAX_INTEGER < value < MAX_INTEGER:
            raise TraceError("the trace holds an integer of more than 64 bits")


def _check_bounds(traced: Traced) -> None:
    if traced.version != TRACE_VERSION:
        raise TraceError(f"the trace is of version {traced.version}, not {TRACE_VERSION}")
    if len(traced.kernels) > MAX_KERNELS or len(traced.functions) > MAX_FUNCTIONS:
        raise TraceError("the trace names too many kernels")
    if any(len(f.text) > MAX_FUNCTION_CHARACTERS for f in traced.functions.values()):
        raise TraceError("a kernel's text is too long")
    if any(k.function not in traced.functions for k in traced.kernels.values()):
        raise TraceError("a kernel without a text")
    if len(traced.variants) > MAX_VARIANTS:
        raise TraceError("the trace names too many surroundings")
    for trace in (*traced.traces, *(variant.trace for variant in traced.variants)):
        if trace is not None:
            _check_trace(trace, traced)


def _check_trace(trace: Trace, traced: Traced) -> None:
    steps = [*trace.setup, *trace.first, *(trace.later or ())]
    flat = list(all_steps(steps))
    if len(flat) > MAX_STEPS:
        raise TraceError("the trace has too many steps")
    if sum(len(s.data) for s in flat if isinstance(s, Data)) > MAX_DATA_BYTES:
        raise TraceError("the trace holds too much data of its own")
    for step in flat:
        if isinstance(step, Launch) and step.kernel not in traced.kernels:
            raise TraceError("a launch of a kernel that is not there")
    for choice in steps:
        if isinstance(choice, Choice):
            launching = {any(isinstance(s, Launch) for s in a) for a in choice.alternatives}
            # On tensors without elements no configuration has a program to launch.
            if len(launching) > 1:
                raise TraceError("an alternative of an autotuned launch that launches nothing")


def all_steps(steps: Any) -> Iterator[Operator | Launch | Data]:
    """Yields all steps, including those of every alternative."""
    for step in steps:
        if isinstance(step, Choice):
            for alternative in step.alternatives:
                yield from alternative
        else:
            yield step


def tensors_of_launch(launch: Launch) -> list[int]:
    """Returns numbers of the tensors passed to a launch, directly or by address."""
    return [*tensors_in(launch.args), *tensors_in(launch.reaches)]


def addressed_tensors(data: Data) -> list[int]:
    """Returns numbers of the tensors whose addresses are stored in a tensor of the host code."""
    return [number for _, tensor, _ in data.addresses for number in tensors_in(tensor)]


def output_leaves(value: Json) -> Iterator[Json]:
    """Yields the outputs of a call, flattened in order (in a dict, of keys): tensors, plain values,
    {"other": type}."""
    if isinstance(value, dict) and len(value) == 1 and next(iter(value)) in ("tuple", "dict"):
        inner = next(iter(value.values()))
        for item in [inner[key] for key in sorted(inner)] if isinstance(inner, dict) else inner:
            yield from output_leaves(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from output_leaves(item)
    else:
        yield value


def tensors_in(value: Json) -> Iterator[int]:
    """Yields the numbers of all tensors in a value, in order."""
    if isinstance(value, dict):
        if "t" in value and len(value) == 1 and isinstance(value["t"], int):
            yield value["t"]
        else:
            for inner in value.values():
                yield from tensors_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from tensors_in(inner)


def key_of(value: Value) -> str:
    """Returns a short content hash: the first 24 hex digits of SHA-256 over the JSON."""
    return hashlib.sha256(value.model_dump_json().encode()).hexdigest()[:24]
