"""Decides whether the candidate's own kernels do the work, under the rule strict, share:P or
report.

Counted from the trace, on the trusted side (docs/explanation/trust.md, check 7).

In strict mode torch may allocate, view, copy, and convert between floating types. It may not
compute, convert to integers or to powers of two (which truncates), negate or conjugate through a
view, or let a tensor determine a view's offset. Two experiments in the replay decide cases that
operator names cannot: the answer must be wrong without the launches, and not all launches may be
copies of results of torch's layout operators.

Example: `y = x.t().contiguous(); k[grid](y, out); return out.mul_(2)` counts 1 launch, layout
operators t and clone, and the computing operator mul_, so strict mode fails with FALLBACK.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any

from kernelwright.tools.expected.prepared_problem import PreparedProblem
from kernelwright.tools.judging.weights.work import computed_from_weights
from kernelwright.tools.operators.operators import operator_named
from kernelwright.tools.replaying.replayer import Watched
from kernelwright.tools.report import Census, Cheat, Failed, Failure, Fault, OwnWork, clean_text
from kernelwright.tools.trace.trace import (
    Choice,
    Launch,
    Operator,
    Step,
    Trace,
    Traced,
    all_steps,
    tensors_in,
    tensors_of_launch,
)

MODES = ("strict", "share", "report")
MOVING_OPERATORS = frozenset(
    {
        "flip",
        "index",
        "index_select",
        "roll",
        "rot90",
        "tril",
        "triu",
        "gather",
        "take",
        "slice_scatter",
    }
)
"""Operators that count as computing in forward, but only rearrange weights in the set-up."""
WEIGHTS_NOT_FOLLOWED = "which weights that are loaded later do not follow"
MAX_NAMED_OPERATORS = 4
"""Maximum number of operators named in a message."""

FOLDED_WEIGHTS = (
    "the first call works something out of the weights, and later calls do not follow "
    "when the weights change"
)


@dataclass(frozen=True)
class Rule:
    """Required share of own work: `strict`, `share` of at least a number, or `report`."""

    mode: str = "strict"
    share: float = 0.0

    @property
    def text(self) -> str:
        """The rule in the syntax of the command line."""
        return f"share:{self.share:g}" if self.mode == "share" else self.mode

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Parses strict, share:0.5 or report. Raises ValueError with a single line."""
        mode, _, number = text.partition(":")
        if mode not in MODES or (mode == "share") != bool(number):
            raise ValueError(
                f"own-work is strict, share:P (such as share:0.5) or report, not {text!r}"
            )
        share = float(number) if number else 0.0
        if not 0 <= share <= 1:
            raise ValueError(f"a share lies between 0 and 1, not {number}")
        return cls(mode, share)


def steps_of(trace: Trace) -> tuple[Step, ...]:
    """Returns the steps of every call but the first."""
    return trace.first if trace.later is None else trace.later


def census_of(trace: Trace, traced: Traced) -> Census:
    """Counts launches, computing operators and layout operators of a call, by name.

    For an autotuned launch counts the launches of its first configuration, and the operators of
    every configuration: none of them may do the work.
    """
    launches: Counter[str] = Counter()
    computing: Counter[str] = Counter()
    layout: Counter[str] = Counter()
    reads: Counter[str] = Counter()
    for step in with_first_configurations(steps_of(trace)):
        if isinstance(step, Launch):
            launches[
                clean_text(traced.functions[traced.kernels[step.kernel].function].name, 120)
            ] += 1
    counters = _counters(trace)
    for step in all_steps(steps_of(trace)):
        if isinstance(step, Operator) and not _counts(step, counters):
            {"compute": computing, "layout": layout, "read": reads}[kind_of(step)][
                clean_text(step.op, 120)
            ] += 1
    return Census(
        launches=dict(launches),
        compute_ops=dict(computing),
        layout_ops=dict(layout),
        host_reads=dict(reads),
    )


def _counters(trace: Trace) -> frozenset[int]:
    """Returns buffers that are a single integer: `num_batches_tracked`."""
    whole = (
        n
        for n in trace.state
        if trace.dtypes.get(n, "").startswith("int") and trace.shapes.get(n) == ()
    )
    return frozenset(trace.state[n] for n in whole)


def _counts(step: Operator, counters: frozenset[int]) -> bool:
    """Returns True if the step only adds a number to a counter."""
    first, *rest = step.args or (None,)
    return (
        step.op in ("aten.add_.Tensor", "aten.add_.Scalar")
        and isinstance(first, dict)
        and first.get("t") in counters
        and len(rest) == 1
        and type(rest[0]) is int
    )


def with_first_configurations(steps: Iterable[Step]) -> Iterable[Step]:
    """Yields the steps, with every autotuned launch replaced by its first configuration."""
    for step in steps:
        if isinstance(step, Choice):
            yield from step.alternatives[0] if step.alternatives else ()
        else:
            yield step


def kind_of(step: Operator) -> str:
    """Returns `compute`, `layout` or `read`, from the operator's name and its target dtype."""
    from kernelwright.tools.operators.operators import (
        HOST_READS,
        only_moves_data,
        reads_a_position,
    )

    func = operator_named(step.op)
    if func is None:
        return "compute"
    name = func.overloadpacket.__name__
    if name in HOST_READS or reads_a_position(func):
        return "read"
    if name == "_to_copy" and step.kwargs.get("device") == {"device": "cpu"}:
        return "read"
    if name == "_to_copy" and not _keeps_a_mantissa(step.kwargs.get("dtype")):
        return "compute"
    return "layout" if only_moves_data(func) else "compute"


def _keeps_a_mantissa(dtype: Any) -> bool:
    """Returns True unless the step converts to a type without a mantissa."""
    import torch

    from kernelwright.tools.replaying.layout_operators import has_mantissa

    if not isinstance(dtype, dict):
        return True
    torch_dtype = getattr(torch, str(dtype.get("dtype", "")), None)
    return isinstance(torch_dtype, torch.dtype) and has_mantissa(torch_dtype)


def first_call_works_ahead(trace: Trace, watched: Watched | None) -> bool:
    """Returns True if the first call does work that later calls omit, beyond a layout copy of
    weights: a cached answer.

    The first call computes or launches more, or a kernel writes tensors that later calls use.
    watched: observations of the first call.
    """

    def work(steps: Iterable[Step]) -> tuple[int, int]:
        flat = list(with_first_configurations(steps))
        computing = sum(isinstance(s, Operator) and kind_of(s) == "compute" for s in flat)
        return computing, sum(isinstance(s, Launch) for s in flat)

    if trace.later is None:
        return False
    more = any(
        first > later for first, later in zip(work(trace.first), work(trace.later), strict=True)
    )
    return more or (watched is not None and watched.writes_lasting_state)


def require_no_work_on_weights(trace: Trace, bound: Collection[str]) -> None:
    """Raises Failed if a call needs results that the set-up computes from the weights.

    Users load weights into an existing module. Results that its constructor computed from earlier
    weights do not follow, and would be work done before the clock starts. Layout copies (a
    transposed weight, two concatenated weights, a cast) are allowed, as are steps whose result is a
    tensor that the judge loads.

    bound: names of the parameters and buffers that the judge loads.
    """
    step = computed_from_weights(trace, {trace.state[name] for name in bound}, _computes)
    if step:
        message = clean_text(
            f"its constructor works out {step} from the weights, {WEIGHTS_NOT_FOLLOWED}", 300
        )
        raise Failed(Failure(fault=Fault.CHEAT, cheat=Cheat.WEIGHTS, message=message))


def _computes(step: Operator) -> bool:
    return kind_of(step) == "compute" and step.op.split(".")[1] not in MOVING_OPERATORS


def depends_on_a_launch(trace: Trace) -> bool:
    """Returns True if an output of a call can depend on a launch, through operators, views and
    in-place writes."""
    memory = _SharedMemory()
    written: set[int] = set()
    for step in all_steps(steps_of(trace)):
        if isinstance(step, Launch):
            written |= {memory.of(n) for n in tensors_of_launch(step)}
        elif isinstance(step, Operator):
            used = list(tensors_in(step.args)) + list(tensors_in(step.kwargs))
            outputs_of_step = list(tensors_in(step.out))
            if used and _shares_memory(step.op):
                for number in outputs_of_step:
                    memory.join(number, used[0])
                written = {memory.of(n) for n in written}
            if any(memory.of(n) in written for n in used):
                written |= {memory.of(n) for n in outputs_of_step}
    outputs = trace.first_outputs if trace.later is None else trace.later_outputs
    return any(memory.of(n) in {memory.of(w) for w in written} for n in tensors_in(outputs))


class _SharedMemory:
    """Union-find structure of tensors that share memory, as far as operator names show."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def of(self, number: int) -> int:
        """Returns the representative of a tensor's memory."""
        while self._parent.get(number, number) != number:
            number = self._parent[number]
        return number

    def join(self, a: int, b: int) -> None:
        """Marks two tensors as sharing memory."""
        self._parent[self.of(a)] = self.of(b)


def _shares_memory(op: str) -> bool:
    from kernelwright.tools.operators.operators import VIEWING_OPERATORS

    func = operator_named(op)
    viewed = op.removeprefix("aten.") in VIEWING_OPERATORS
    return func is not None and (viewed or func.is_view or bool(func._schema.is_mutable))


def judge(work: OwnWork, rule: Rule, depends: bool) -> OwnWork:
    """Returns the work as accepted. Raises Failed for a violated rule, and for a candidate without
    launches under any rule."""
    census = work.census
    if not census.launches:
        raise Failed(
            Failure(
                fault=Fault.NO_KERNEL,
                message="no Triton kernel is launched: forward returns without one",
            )
        )
    if rule.mode == "report":
        return work.with_(accepted=True)
    if work.needed is False or not depends:
        message = "the output stays right with the candidate's kernels turned off: they are decoys"
        if not depends:
            message = "no output holds anything that the candidate's kernels wrote: they are decoys"
        raise Failed(Failure(fault=Fault.CHEAT, cheat=Cheat.DECOY, message=message))
    if rule.mode == "strict":
        _require_strict(census)
    if rule.mode == "share" and work.share is not None and work.share < rule.share:
        subject = (
            "GPU's time is in"
            if work.share_of == "gpu_time"
            else "problem's operations are left to"
        )
        raise Failed(
            Failure(
                fault=Fault.FALLBACK,
                message=f"{work.share:.0%} of the {subject} the candidate's own kernels, and "
                f"{rule.share:.0%} was asked for: torch computes {list_most_frequent(census.compute_ops)}",
            )
        )
    return work.with_(accepted=True)


def require_inputs_left_alone(
    watched: Watched | None, prepared: PreparedProblem, unchanged: Collection[str] = frozenset()
) -> None:
    """Raises Failed if a watched call wrote to an input or weight that the reference does not
    change, and restored it.

    unchanged: names of the weights and buffers that the reference does not update.
    """
    if watched is None:
        return
    inputs = sorted(set(watched.changed_inputs) - prepared.mutated)
    weights = sorted(set(watched.changed_state) & set(unchanged))
    if inputs or weights:
        subject = (
            prepared.input_named(inputs[0])
            if inputs
            else f"the weight {clean_text(weights[0], 80)}"
        )
        message = (
            f"{subject} is written to and restored within the call; the reference leaves it alone"
        )
        raise Failed(Failure(fault=Fault.MUTATION, message=message))


def judge_watched(
    watched: Watched | None,
    rule: Rule,
    only_moves: Callable[[], bool] = lambda: False,
    *,
    only_converts: bool = False,
) -> None:
    """Judges the observations of a watched call. Raises Failed in these cases:

    - the kernels only copy, unless the problem only moves values and torch rearranges none;
    - torch truncates values;
    - torch rearranges or converts values, and the problem does nothing else.

    only_moves: called if relevant; True if the reference only moves values. only_converts: the
    reference only changes dtypes, which copying kernels do.
    """
    if watched is None or rule.mode == "report":
        return
    if only_converts and watched.converted and rule.mode == "strict":
        message = (
            "the problem only gives values another type, and torch does that: "
            f"{list_most_frequent(watched.converted)}"
        )
        raise Failed(Failure(fault=Fault.FALLBACK, message=message))
    only_copies = watched.launches and watched.copies == watched.launches and not only_converts
    if only_copies and (watched.rearranged or watched.converted or not only_moves()):
        message = (
            "the kernels only copy what torch's own operators made: what computes are views, "
            "expansions and conversions"
        )
        raise Failed(Failure(fault=Fault.FALLBACK, message=message))
    if watched.rearranged and rule.mode == "strict" and only_moves():
        moved = list_most_frequent(watched.rearranged)
        message = f"the problem only moves values to other places, and torch moves them: {moved}"
        raise Failed(Failure(fault=Fault.FALLBACK, message=message))
    if watched.truncations and rule.mode == "strict":
        truncating = list_most_frequent(watched.truncations)
        message = (
            f"torch turns values into whole numbers or powers of two that hold less: {truncating}"
        )
        raise Failed(Failure(fault=Fault.FALLBACK, message=message))


def _require_strict(census: Census) -> None:
    if census.compute_ops:
        raise Failed(Failure(
            fault=Fault.FALLBACK,
            message=f"torch computes beside the kernels: {list_most_frequent(census.compute_ops)}; allowed are "
            "allocation, views and layout copies (or --own-work share:P)",
        ))  # fmt: skip
    if census.host_reads:
        raise Failed(
            Failure(
                fault=Fault.FALLBACK,
                message=f"the host reads tensor contents: {list_most_frequent(census.host_reads)}",
            )
        )


def list_most_frequent(counts: dict[str, int]) -> str:
    """Formats the most frequent operators."""
    return ", ".join(
        f"{name.removeprefix('aten.')} x{count}"
        for name, count in sorted(counts.items(), key=lambda kv: -kv[1])[:MAX_NAMED_OPERATORS]
    )


def kernels_launched(trace: Trace, traced: Traced) -> frozenset[str]:
    """Returns the source of every function that a call launches.

    The set at full size must equal the set at the checked sizes.
    """
    steps = [*trace.setup, *trace.first, *(trace.later or ())]
    return frozenset(
        _function_text(traced, traced.kernels[s.kernel].function)
        for s in all_steps(steps)
        if isinstance(s, Launch)
    )


def _function_text(traced: Traced, key: str) -> str:
    return traced.functions[key].text + str(traced.functions[key].line)
