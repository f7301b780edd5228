"""Whether the candidate's own kernels do the work: strict, share:P or report.

Counted from the trace, on the trusted side (docs/explanation/trust.md, check 7).

What torch may do beside the kernels in strict mode: allocate, view, copy, and convert between floating types. What it
may not: compute, convert to whole numbers or to bare powers of two (which truncates), negate or conjugate through a
view, or let a tensor say where a view lies. Two experiments in the
replay decide what names cannot: the answer must be wrong when the launches are left out, and the launches may not all
be copies of what torch's layout operators made.
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
"""Operators that count as computing in forward and only move weights here."""
WEIGHTS_NOT_FOLLOWED = "which weights that are loaded later do not follow"
MAX_NAMED_OPERATORS = 4
"""Operators that a message names."""

FOLDED_WEIGHTS = (
    "the first call works something out of the weights, and later calls do not follow "
    "when the weights change"
)


@dataclass(frozen=True)
class Rule:
    """What is asked of a candidate: `strict`, `share` of at least so much, or `report`."""

    mode: str = "strict"
    share: float = 0.0

    @property
    def text(self) -> str:
        """The rule as it is written on the command line."""
        return f"share:{self.share:g}" if self.mode == "share" else self.mode

    @classmethod
    def parse(cls, text: str) -> Rule:
        """strict, share:0.5 or report. Raises ValueError, one line."""
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
    """What every call but the first asks for."""
    return trace.first if trace.later is None else trace.later


def census_of(trace: Trace, traced: Traced) -> Census:
    """Launches, computing operators and layout operators of one call, by name.

    Of an autotuned launch the first configuration's launches count, and the operators of every configuration: whichever
    is taken, none may do the work.
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
    """Buffers that are one whole number: `num_batches_tracked`."""
    whole = (
        n
        for n in trace.state
        if trace.dtypes.get(n, "").startswith("int") and trace.shapes.get(n) == ()
    )
    return frozenset(trace.state[n] for n in whole)


def _counts(step: Operator, counters: frozenset[int]) -> bool:
    """Whether it only advances a counter by a number."""
    first, *rest = step.args or (None,)
    return (
        step.op in ("aten.add_.Tensor", "aten.add_.Scalar")
        and isinstance(first, dict)
        and first.get("t") in counters
        and len(rest) == 1
        and type(rest[0]) is int
    )


def with_first_configurations(steps: Iterable[Step]) -> Iterable[Step]:
    """The steps with the first configuration of every autotuned launch in its place."""
    for step in steps:
        if isinstance(step, Choice):
            yield from step.alternatives[0] if step.alternatives else ()
        else:
            yield step


def kind_of(step: Operator) -> str:
    """`compute`, `layout` or `read`, by the operator's name and by the type that it converts to."""
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
    """Whether a conversion, where there is one, is to a floating type that holds more than powers of two."""
    import torch

    from kernelwright.tools.replaying.layout_operators import has_mantissa

    if not isinstance(dtype, dict):
        return True
    torch_dtype = getattr(torch, str(dtype.get("dtype", "")), None)
    return isinstance(torch_dtype, torch.dtype) and has_mantissa(torch_dtype)


def first_call_works_ahead(trace: Trace, watched: Watched | None) -> bool:
    """Whether the first call does work that later ones do not: beside a layout copy of weights, that is an answer
    worked out once. It computes or launches more than they do, or a kernel writes to what they go on with.

    watched: what the first call showed.
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
    """Raises Failed where a call needs something that the set-up computes from the weights.

    Users load weights into a module that is made already. What its constructor has computed from the weights does not
    follow those, and where it is the problem's own work it is done before the clock begins. Layout copies (a transposed
    weight, two weights in one, a cast) are no such work, nor is what ends in a tensor that the judge loads.

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
    """Whether some output of a call can hold what a launch wrote: followed through operators, views and memory that
    is written in place.
    """
    places = _Places()
    written: set[int] = set()
    for step in all_steps(steps_of(trace)):
        if isinstance(step, Launch):
            written |= {places.of(n) for n in tensors_of_launch(step)}
        elif isinstance(step, Operator):
            used = list(tensors_in(step.args)) + list(tensors_in(step.kwargs))
            made = list(tensors_in(step.out))
            if used and _shares_memory(step.op):
                for number in made:
                    places.join(number, used[0])
                written = {places.of(n) for n in written}
            if any(places.of(n) in written for n in used):
                written |= {places.of(n) for n in made}
    outputs = trace.first_outputs if trace.later is None else trace.later_outputs
    return any(places.of(n) in {places.of(w) for w in written} for n in tensors_in(outputs))


class _Places:
    """Tensors that lie in the same memory, as far as names of operators tell."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def of(self, number: int) -> int:
        """Returns the number that stands for the memory in which a tensor lies."""
        while self._parent.get(number, number) != number:
            number = self._parent[number]
        return number

    def join(self, a: int, b: int) -> None:
        """Notes that two tensors lie in the same memory."""
        self._parent[self.of(a)] = self.of(b)


def _shares_memory(op: str) -> bool:
    from kernelwright.tools.operators.operators import VIEWING_OPERATORS

    func = operator_named(op)
    viewed = op.removeprefix("aten.") in VIEWING_OPERATORS
    return func is not None and (viewed or func.is_view or bool(func._schema.is_mutable))


def judge(work: OwnWork, rule: Rule, depends: bool) -> OwnWork:
    """Raises Failed where the rule is broken. `report` only reports, but a candidate without a launch is none."""
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
        what = (
            "GPU's time is in"
            if work.share_of == "gpu_time"
            else "problem's operations are left to"
        )
        raise Failed(Failure(
            fault=Fault.FALLBACK,
            message=f"{work.share:.0%} of the {what} the candidate's own kernels, and {rule.share:.0%} was asked for: "
            f"torch computes {list_most_frequent(census.compute_ops)}",
        ))  # fmt: skip
    return work.with_(accepted=True)


def require_inputs_left_alone(
    watched: Watched | None, prepared: PreparedProblem, kept: Collection[str] = frozenset()
) -> None:
    """Raises Failed where a watched call wrote to an input or to a weight that the reference leaves alone, and put back
    what was there.

    kept: names of the weights and buffers that the reference does not update.
    """
    if watched is None:
        return
    inputs = sorted(set(watched.changed_inputs) - prepared.mutated)
    weights = sorted(set(watched.changed_state) & set(kept))
    if inputs or weights:
        what = (
            prepared.input_named(inputs[0])
            if inputs
            else f"the weight {clean_text(weights[0], 80)}"
        )
        message = (
            f"{what} is written to and restored within the call; the reference leaves it alone"
        )
        raise Failed(Failure(fault=Fault.MUTATION, message=message))


def judge_watched(
    watched: Watched | None,
    rule: Rule,
    only_moves: Callable[[], bool] = lambda: False,
    *,
    only_converts: bool = False,
) -> None:
    """What one watched call showed of contents. Raises Failed where the kernels only copy (but for a problem that only
    moves values, where torch lays nothing out anew: there copying is the work), where torch truncates, and where torch
    lays values out anew, or converts them, for a problem that does nothing else.

    only_moves: whether the reference only moves values; asked where it matters. only_converts: whether it only gives
    them another type, which kernels do that copy.
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
        told = list_most_frequent(watched.truncations)
        message = f"torch turns values into whole numbers or powers of two that hold less: {told}"
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
    """The most frequent of them, for people."""
    return ", ".join(
        f"{name.removeprefix('aten.')} x{count}"
        for name, count in sorted(counts.items(), key=lambda kv: -kv[1])[:MAX_NAMED_OPERATORS]
    )


def kernels_launched(trace: Trace, traced: Traced) -> frozenset[str]:
    """The content of every function that a call launches: what must be the same set at full size as at the sizes
    that were checked.
    """
    steps = [*trace.setup, *trace.first, *(trace.later or ())]
    return frozenset(
        _function_text(traced, traced.kernels[s.kernel].function)
        for s in all_steps(steps)
        if isinstance(s, Launch)
    )


def _function_text(traced: Traced, key: str) -> str:
    return traced.functions[key].text + str(traced.functions[key].line)
