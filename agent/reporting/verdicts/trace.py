"""Renders the operators and launches of a candidate's host code, step by step, under the lines of
its file: shows why a candidate is `fallback` or `untraceable`.

Example, for `out = torch.empty_like(x)` and a launch:

     12 | out = torch.empty_like(x)
       t7 = empty_like(x0)   float32[512, 4096]
     13 | softmax_kernel[(512,)](out, x, 4096, BLOCK=4096)
       softmax_kernel[512, 1, 1](out_ptr=t7, x_ptr=x0, n=4096, BLOCK=4096)   num_warps=4
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from kernelwright.agent.reporting.verdicts.failure import failure_view
from kernelwright.agent.reporting.verdicts.trace_tensors import Tensors, is_same_tensor
from kernelwright.agent.reporting.words import (
    BAD,
    GOOD,
    LABEL,
    QUIET,
    WARN,
    facts_table,
    format_counts,
    quoted_text,
)
from kernelwright.tools.report import Failure, Value
from kernelwright.tools.trace.trace import (
    Choice,
    Data,
    Function,
    Json,
    Kernel,
    Launch,
    Operator,
    Step,
    Trace,
    tensors_in,
)

MAX_STEPS_SHOWN = 200
"""Maximum number of displayed steps of a part of a trace; `--json` has all."""
MAX_ALTERNATIVES_SHOWN = 8
"""Maximum number of displayed configurations of an autotuned launch."""
MAX_STEP_CHARACTERS = 600
"""Maximum number of characters of a step."""
USUAL_ARGUMENTS = {
    "device": {"device": "cuda"},
    "pin_memory": False,
    "layout": {"layout": "strided"},
    "non_blocking": False,
}
"""Default arguments, which are omitted."""
USUAL_OPTIONS: dict[str, Json] = {"num_warps": 4}
"""Triton's defaults that hold for every target, for options that a launch does not set; the other
defaults depend on the target.
"""

KindOf = Callable[[Operator], str]
"""Classifies an operator as `compute`, `layout` or `read`: tools.judging.own_work.kind_of."""

MARKS = {
    "compute": (
        "torch computes here: fallback, where its own kernels must do all of the work",
        BAD,
    ),
    "read": ("the host reads what a tensor holds: fallback", BAD),
}


class TracedSize(Value):
    """The trace of the host code at a size, or the reason why there is none."""

    sizes: dict[str, int] = {}
    """Replaced integers of the reference; empty for the problem's own size."""
    why: str = ""
    """Reason for tracing this size."""
    inputs: Json = None
    """Arguments of forward, described as in `tools.references.input_spec.InputSpec.inputs`."""
    trace: Trace | None = None
    failure: Failure | None = None


class CandidateTrace(Value):
    """The traces for display and for `--json`."""

    problem: str
    target: str
    """Compilation target of the GPU that the host code sees."""
    at: tuple[TracedSize, ...] = ()
    functions: dict[str, Function] = {}
    kernels: dict[str, Kernel] = {}
    notes: tuple[str, ...] = ()
    seconds: float = 0.0


def trace_view(candidate_trace: CandidateTrace, source: str, kind_of: KindOf) -> RenderableType:
    """Renders the steps of every traced size. `source`: the candidate's text, whose lines are
    quoted.
    """
    head = Text.assemble(
        ("trace  ", LABEL),
        quoted_text(candidate_trace.problem),
        f", host code for {candidate_trace.target}; tensors have no values here",
    )
    parts: list[RenderableType] = [head]
    failures: list[Failure] = []
    for size in candidate_trace.at:
        parts.append(Text(_title(size), style="bold"))
        if size.failure is not None:
            again = size.failure in failures
            failures.append(size.failure)
            shown = Text("the same failure", style=BAD) if again else failure_view(size.failure)
            parts.append(Padding(shown, (0, 0, 0, 2)))
        elif size.trace is not None:
            parts += _Listing(
                size.trace,
                size.inputs,
                candidate_trace.functions,
                candidate_trace.kernels,
                source,
                kind_of,
            ).parts()
    if candidate_trace.notes:
        parts.append(facts_table([("notes", quoted_text("\n".join(candidate_trace.notes), WARN))]))
    return Group(*parts)


def _title(size: TracedSize) -> str:
    if not size.sizes:
        return "at the problem's own size"
    why = f" ({size.why})" if size.why else ""
    return f"at {' '.join(f'{name}={value}' for name, value in size.sizes.items())}{why}"


class _Listing:
    """A trace as lines: the steps under each line of the candidate's file."""

    def __init__(
        self, trace: Trace, inputs: Json, functions: Mapping[str, Function], kernels: Mapping[str, Kernel], source: str,
        kind_of: KindOf,
    ) -> None:  # fmt: skip
        self._trace, self._kind_of = trace, kind_of
        self._functions, self._kernels = functions, kernels
        self._tensors = Tensors(trace, inputs)
        self._source = source.splitlines()
        self._launched: dict[str, int] = {}
        self._computed: dict[str, int] = {}

    def parts(self) -> list[RenderableType]:
        """Renders inputs and weights, then set-up, first call and later calls; at the end the
        totals of the calls.
        """
        trace, lines = self._trace, self._given_tensors()
        # Steps of the set-up that only fill weights are torch's initialisation: not displayed.
        weights = set(trace.state.values())
        prepared = [step for step in trace.setup if not _only_on(step, weights)]
        left_out = len(trace.setup) - len(prepared)
        if prepared or left_out:
            note = (
                f"filling the weights is left out ({left_out} of its steps): the judge's own values "
                "take their places"
            )
            lines += self._part("set-up, once", prepared, False, note if left_out else "")
        if trace.later is None:
            lines += self._part("every call", trace.first, True)
            lines.append(self._returned(trace.first_outputs))
        else:
            lines += self._part(
                "the first call", trace.first, False, "counted as set-up: later calls do without it"
            )
            lines.append(self._returned(trace.first_outputs))
            self._tensors.later_calls_follow()
            lines += self._part("every later call", trace.later, True)
            lines.append(self._returned(trace.later_outputs))
        return [*lines, Padding(self._sum(), (0, 0, 0, 2))]

    def _given_tensors(self) -> list[RenderableType]:
        numbers: dict[int, None] = {}  # an ordered set: a tensor may be several arguments
        plain = []
        for index, value in enumerate(self._trace.inputs):
            tensors = list(tensors_in(value))
            numbers.update(dict.fromkeys(tensors))
            if not tensors:
                plain.append(f"x{index} = {self._text(value)}")
        shown = [self._with_shape(number) for number in numbers] + plain
        weights = [self._with_shape(n) for n in self._trace.state.values()]
        table = facts_table(
            [
                ("  given", quoted_text(", ".join(shown))),
                ("  weights", quoted_text(", ".join(weights))),
            ]
        )
        return [table] if table.row_count else []

    def _with_shape(self, number: int) -> str:
        return f"{self._tensors.name(number)} {self._tensors.described(number)}".rstrip()

    # -------------------------------------------------------------- steps
    def _part(
        self, title: str, steps: Sequence[Step], judged: bool, note: str = ""
    ) -> list[RenderableType]:
        """Renders the steps of a part. `judged`: whether these steps decide about own work."""
        lines: list[RenderableType] = [
            Text.assemble((f"  {title}", LABEL), (f"  {note}" if note else "", QUIET))
        ]
        line = -1
        for step in steps[:MAX_STEPS_SHOWN]:
            if isinstance(step, Operator | Data):
                self._tensors.learn(step)
            if is_same_tensor(step):
                continue
            # A line of the file is quoted once for all its steps in a row.
            if step.line != line:
                line = step.line
                lines.append(self._quoted(line))
            lines += self._step(step, judged)
        if len(steps) > MAX_STEPS_SHOWN:
            lines.append(
                Text(
                    f"       and {len(steps) - MAX_STEPS_SHOWN} more steps (--json has all)",
                    style=QUIET,
                )
            )
        if not steps and not note:
            lines.append(Text("       nothing", style=QUIET))
        return lines

    def _quoted(self, line: int) -> Text:
        if not 0 < line <= len(self._source):
            return Text("     ? | called from no line of this file", style=QUIET)
        text = self._source[line - 1].strip()
        return Text.assemble((f"{line:>6} | ", QUIET), quoted_text(text, QUIET, 160))

    def _step(self, step: Step, judged: bool) -> list[RenderableType]:
        if isinstance(step, Choice):
            return self._choice(step, judged)
        if isinstance(step, Launch):
            if judged:
                name = self._kernel_name(step.kernel)
                self._launched[name] = self._launched.get(name, 0) + 1
            return [_indented(quoted_text(self._launch(step), GOOD, MAX_STEP_CHARACTERS))]
        if isinstance(step, Data):
            size = math.prod(step.shape)
            return [
                _indented(
                    quoted_text(
                        f"{self._with_shape(step.t)} = {size} values that the host code made itself"
                    )
                )
            ]
        mark, style = MARKS.get(self._kind_of(step), ("", "")) if judged else ("", "")
        text = quoted_text(self._operator(step), style, MAX_STEP_CHARACTERS)
        if not mark:
            return [_indented(text)]
        name = step.op.removeprefix("aten.").removesuffix(".default")
        self._computed[name] = self._computed.get(name, 0) + 1
        return [
            _indented(Text.assemble(("! ", BAD), text), 5),
            _indented(Text(f"^ {mark}", style=style)),
        ]

    def _operator(self, step: Operator) -> str:
        """Formats an operator: `t7 = empty([512, 4096], dtype=float32) float32[512, 4096]`."""
        namespace, _, qualified = step.op.partition(".")
        name = qualified.partition(".")[0] if namespace == "aten" else step.op
        arguments = [self._text(argument) for argument in step.args]
        for keyword, value in step.kwargs.items():
            if USUAL_ARGUMENTS.get(keyword) != value and value is not None:
                arguments.append(f"{keyword}={self._text(value)}")
        results = list(tensors_in(step.out))
        shape = self._tensors.described(results[0]) if len(results) == 1 else ""
        result = f"{self._text(step.out)} = " if results else ""
        text = f"{result}{name}({', '.join(arguments)})"
        shows_shape = all(part in text for part in shape.partition("["))
        return text if shows_shape else f"{text}   {shape}"

    def _launch(self, step: Launch) -> str:
        """Formats a launch: `softmax_kernel[512, 1, 1](x_ptr=x0, n=4096, BLOCK=4096)
        num_warps=8`.
        """
        kernel = self._kernels.get(step.kernel)
        arguments, options = dict(step.args), dict(USUAL_OPTIONS)
        if kernel is not None:
            arguments |= dict(_constants(kernel))
            arguments = {name: arguments[name] for name in sorted(arguments, key=_place_in(kernel))}
            options |= kernel.options
        grid = ", ".join(map(str, step.grid))
        text = ", ".join(f"{name}={self._text(value)}" for name, value in arguments.items())
        chosen = " ".join(f"{name}={self._text(value)}" for name, value in options.items())
        return f"{self._kernel_name(step.kernel)}[{grid}]({text})   {chosen}"

    def _kernel_name(self, key: str) -> str:
        kernel = self._kernels.get(key)
        function = self._functions.get(kernel.function) if kernel is not None else None
        if function is None:
            return key
        return f"{function.file}.{function.name}" if function.file else function.name

    def _choice(self, step: Choice, judged: bool) -> list[RenderableType]:
        """Renders an autotuned launch. The launches of its first configuration are counted; a
        timed run takes the fastest.
        """
        count = len(step.alternatives)
        title = f"{step.name}, autotuned: the fastest of {count} configuration{'s' if count > 1 else ''}"
        lines: list[RenderableType] = [_indented(quoted_text(title, GOOD))]
        for k, alternative in enumerate(step.alternatives[:MAX_ALTERNATIVES_SHOWN]):
            for inner in alternative:
                for shown in self._step(inner, judged and k == 0):
                    lines.append(Padding(shown, (0, 0, 0, 2)))
        if count > MAX_ALTERNATIVES_SHOWN:
            lines.append(
                Text(
                    f"         and {count - MAX_ALTERNATIVES_SHOWN} more (--json has all)",
                    style=QUIET,
                )
            )
        return lines

    # -------------------------------------------------------------- values
    def _text(self, value: Json) -> str:
        """Formats a value as the host code would write it; tensors by their names."""
        if isinstance(value, dict):
            return self._tagged(value)
        if isinstance(value, list | tuple):
            return f"[{', '.join(self._text(v) for v in value)}]"
        return repr(value)

    def _tagged(self, value: Mapping[str, Json]) -> str:
        tag, inner = next(iter(value.items()), ("", None))
        if tag == "t" and isinstance(inner, int):
            return self._tensors.name(inner)
        if tag == "tuple" and isinstance(inner, list | tuple):
            return f"({', '.join(self._text(v) for v in inner)}{',' if len(inner) == 1 else ''})"
        if tag == "dict" and isinstance(inner, dict):
            return "{" + ", ".join(f"{k}: {self._text(v)}" for k, v in inner.items()) + "}"
        if tag == "descriptor" and isinstance(inner, dict):
            return f"descriptor({', '.join(f'{k}={self._text(v)}' for k, v in inner.items())})"
        if tag == "function":
            return self._functions[str(inner)].name if str(inner) in self._functions else str(inner)
        if tag == "tensor":
            return self._text(inner)
        return f"tl.{inner}" if tag == "tl_dtype" else str(inner)

    def _returned(self, outputs: Json) -> RenderableType:
        numbers = list(tensors_in(outputs))
        shape = self._tensors.described(numbers[0]) if len(numbers) == 1 else ""
        text = quoted_text(f"{self._text(outputs)}   {shape}".rstrip(), "", MAX_STEP_CHARACTERS)
        return _indented(Text.assemble(("returns ", LABEL), text))

    def _sum(self) -> RenderableType:
        """Renders the totals: the launches, and the operators that torch computes."""
        launches = (
            quoted_text(format_counts(self._launched))
            if self._launched
            else Text("none: no_kernel", style=BAD)
        )
        return facts_table(
            [
                ("launches", launches),
                ("torch computes", quoted_text(format_counts(self._computed), BAD)),
            ]
        )


def _only_on(step: Step, weights: set[int]) -> bool:
    """Returns whether an operator touches only weights: a layer of torch initialises its weights
    this way.
    """
    if not isinstance(step, Operator):
        return False
    touched = {*tensors_in(step.args), *tensors_in(step.kwargs), *tensors_in(step.out)}
    return bool(touched) and touched <= weights


def _constants(kernel: Kernel) -> Iterator[tuple[str, Json]]:
    """Yields, by parameter, the constants of `tl.constexpr` parameters and the values of others
    that Triton folds (a stride of 1, None).
    """
    names = list(kernel.signature)
    for path, value in kernel.constants:
        first = path[0] if path else ""
        name = names[first] if type(first) is int and first < len(names) else str(first)
        yield ".".join([name, *map(str, path[1:])]), value


def _place_in(kernel: Kernel) -> Callable[[str], int]:
    """Returns a sort key: the position of a parameter in the kernel's signature."""
    positions = {name: index for index, name in enumerate(kernel.signature)}
    return lambda name: positions.get(name.partition(".")[0], len(positions))


def _indented(text: Text, columns: int = 7) -> Padding:
    return Padding(text, (0, 0, 0, columns))
