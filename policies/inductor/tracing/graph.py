"""Traces a problem's model with symbolic sizes: a graph of aten operators, and the source of each
of its arguments.

Example: `forward(self, x): return torch.relu(x) @ self.weight` becomes a graph with the arguments
`self.weight` and `x`,
the nodes relu and mm, and symbols {"s0": "x.shape[0]", "s1": "x.shape[1]"} for the sizes of x.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelwright.policies.inductor.package_loops import package_loops
from kernelwright.policies.inductor.refusing import DraftRefused
from kernelwright.policies.inductor.tracing.derived_sizes import bind_derived, recompute_floats
from kernelwright.policies.inductor.tracing.execution import ModelCall, examples, forward_alone
from kernelwright.policies.inductor.tracing.loop_syntax import has_loops
from kernelwright.policies.inductor.tracing.loops import (
    LoopForm,
    Loops,
    Unlearned,
    tracing_loops,
)
from kernelwright.policies.inductor.tracing.problem_text import ProblemText
from kernelwright.policies.inductor.tracing.randomness import (
    RANDOMNESS_ADVICE,
    draws_random_numbers,
    without_draws_of_python,
)
from kernelwright.policies.inductor.tracing.sizes import SymbolicSizes, integers_by_path, is_extent
from kernelwright.policies.inductor.tracing.slices import Slices, tracing_slices
from kernelwright.policies.inductor.tracing.step_inputs import Unsuited
from kernelwright.policies.inductor.tracing.to_gpu import move_to_gpu, tensor_on_gpu
from kernelwright.policies.inductor.values.complex_numbers import (
    ByParts,
    has_complex,
    rank_in_forward,
    unwrapped_path,
    without_complex_decompositions,
)
from kernelwright.policies.inductor.values.known import KnownValuesMode

if TYPE_CHECKING:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from kernelwright.policies.inductor.graph_types import GraphNode

MAX_TRACED_OPERATORS = 8000
"""Maximum number of operators in a graph; an unrolled recurrence exceeds this."""


TAKES_GRADIENTS = re.compile(r"\bautograd\b|\.backward\(|requires_grad")
"""Texts of problems whose forward may take gradients."""


@dataclass
class TracedModel:
    """A module traced as a graph."""

    text: ProblemText
    sizes: SymbolicSizes
    mode: Any
    """The fake tensor mode of all its tensors."""
    graph: Any = None
    arguments: list[str] = field(default_factory=list)
    """The expressions ModelNew passes for the arguments of the graph: `x`, `self.down.weight`."""
    flat: list[Any] = field(default_factory=list)
    """The arguments, as tensors of the pretended GPU."""
    form: Any = None
    """Structure of forward's result, with None in place of each tensor, or COMPLEX."""
    contiguous: list[str] = field(default_factory=list)
    """Inputs get_inputs gives contiguous."""
    keywords: dict[str, str] = field(default_factory=dict)
    """Attribute -> the constructor's argument it must keep."""
    symbols: dict[str, str] = field(default_factory=dict)
    """Symbol -> its expression in ModelNew."""
    names: dict[str, str] = field(default_factory=dict)
    """Symbol -> readable name."""
    loops: Loops | None = None
    """Loops over sizes, in the order of their operators in the graph."""

    numbers: tuple[str, ...] = ()
    """The constructor's sizes traced as numbers."""
    equalities: tuple[tuple[str, str], ...] = ()
    """Pairs of equal sizes of the problem on which forward or the constructor branches."""
    required: list[tuple[str, str]] = field(default_factory=list)
    """Fixed sizes of the draft: their expressions in forward, and required values."""
    slices: Slices = field(default_factory=Slices)
    for_gpu: bool = False
    """Whether the draft is judged on a GPU."""

    @property
    def fixed(self) -> tuple[str, ...]:
        """Fixed sizes of the draft."""
        return (*map(self.constructor_name, self.sizes.fixed()), *self.numbers)

    def constructor_name(self, path: str) -> str:
        """Returns `Model.hidden` for the path of a constructor argument; an input's path
        unchanged.
        """
        name, suffix = re.fullmatch(r"(\w+)(.*)", path.removeprefix("self.")).groups()  # type: ignore[union-attr]
        return (
            f"Model.{self.keywords.get(name, name)}{suffix}" if path.startswith("self.") else path
        )


def numbers_of(source: str, mode: FakeTensorMode) -> dict[str, int]:
    """Path -> integer, of all sizes of a problem."""
    text = ProblemText(source)
    _, inputs, init = examples(source, mode)
    numbers: dict[str, int] = {}
    for path, value in [
        *zip(text.input_paths(len(inputs)), inputs, strict=True),
        *_constructor(text, init),
    ]:
        numbers |= integers_by_path(value, path)
    return numbers


def _constructor(text: ProblemText, init: Sequence[Any]) -> list[tuple[str, Any]]:
    """Path and value of each of the constructor's arguments."""
    names = [*text.constructor_names(), *(f"argument{i}" for i in range(99))]
    return [(f"self.{text.attribute_of(n)}", v) for n, v in zip(names, init, strict=False)]


def trace(
    source: str,
    free: Callable[[int, str], bool],
    *,
    partial: bool = False,
    least: Mapping[str, int] | None = None,
) -> TracedModel:
    """Traces a module.

    partial: operators without a decomposition stay in the graph. least: smallest values of sizes
    by path, if slices may
    end outside of their axes (slices.py). Raises DraftRefused, and exceptions of the problem or
    torch.
    """
    # Loops are tried nested, then without inner loops, then unrolled, then without those of packages.
    form, learns, in_packages = LoopForm.NESTED, has_loops(source), True
    while True:
        loops = Loops(form, learns, in_packages)
        try:
            return _trace(source, free, loops, partial, least)
        except Unlearned:
            learns = True
        except Exception as error:
            inside = (
                loops.nested and form is LoopForm.NESTED
            )  # whatever a loop inside a loop leads to
            if not inside and (form is LoopForm.UNROLLED or not isinstance(error, Unsuited)):
                if not loops.rewritten:
                    raise
                # A package's loop may do what a rewritten one cannot: it is unrolled as it stands.
                form, in_packages = LoopForm.NESTED, False
                continue
            form = LoopForm.SINGLE if inside else LoopForm.UNROLLED


def _trace(
    source: str,
    free: Callable[[int, str], bool],
    loops: Loops,
    partial: bool,
    least: Mapping[str, int] | None,
) -> TracedModel:
    from kernelwright.policies.inductor.window_sizes import WindowedMode

    text = ProblemText(source)
    sizes = SymbolicSizes(text, free, least)
    traced = TracedModel(
        text, sizes, WindowedMode(sizes.env), slices=Slices(bounded=least is not None)
    )
    module, inputs, init = examples(source, traced.mode)
    named = _constructor(text, init)
    names = zip(named, text.constructor_names(), strict=False)
    traced.keywords = {path.removeprefix("self."): name for (path, _), name in names}
    paths = text.input_paths(len(inputs))
    with traced.mode, KnownValuesMode():
        values = [sizes.argument(v, p, p.removeprefix("self.").rstrip("_")) for p, v in named]
        model = module["Model"](*values)
        symbolic_inputs = [sizes.symbolic_input(v, p) for p, v in zip(paths, inputs, strict=True)]
    with package_loops(model) if loops.in_packages else contextlib.nullcontext(False) as rewritten:
        loops.rewritten = rewritten
        _make_graph(traced, model, paths, symbolic_inputs, loops, partial)
    return traced


def _make_graph(
    traced: TracedModel,
    model: torch.nn.Module,
    paths: list[str],
    symbolic_inputs: list[Any],
    loops: Loops,
    partial: bool,
) -> None:
    import torch
    from torch._dispatch.python import enable_python_dispatcher

    size_arguments = [(p, v) for p, v in traced.sizes.by_path.items() if not is_extent(p)]
    forward = ModelCall(
        model,
        symbolic_inputs,
        paths,
        size_arguments,
        lambda sizes: recompute_floats(model, sizes, traced),
    )
    traced.contiguous = [p for p, v in forward.tensors if v.dim() and v.is_contiguous()]
    traced.arguments, flat = forward.paths, forward.values
    gradients = bool(TAKES_GRADIENTS.search(traced.text.source))
    make = functools.partial(_graph_of, partial=partial, gradients=gradients)
    loops.use(traced.sizes, make)
    functions = contextlib.nullcontext() if gradients else forward_alone()
    traced.loops = loops
    with (
        torch.no_grad(), traced.mode, enable_python_dispatcher(), torch.backends.mkldnn.flags(enabled=False),
        tracing_loops(loops), tracing_slices(traced.slices), without_draws_of_python(traced.text.source),
        functions,
    ):  # fmt: skip
        if loops.form is not LoopForm.UNROLLED and loops.learns:
            loops.begin(learning=True)
            forward.run(*flat)
            traced.sizes.env.pending_fresh_unbacked_symbols.clear()
        loops.begin(learning=False)
        traced.graph = make(forward.run, flat)
        traced.form = forward.form
        traced.flat = [tensor_on_gpu(v) for v in flat]
        move_to_gpu(traced.graph, traced.flat, traced.mode)
        for body in loops.bodies:
            body.flat = [tensor_on_gpu(v) for v in body.flat]
            move_to_gpu(body.graph, body.flat, traced.mode)
    _name_symbols(traced, size_arguments)
    bind_derived(traced, [*_shapes(traced), *size_arguments])


def _graph_of(function: Callable[..., Any], flat: list[Any], partial: bool, gradients: bool) -> Any:
    """Returns the function's graph, without mutations except of its arguments. Raises
    DraftRefused.

    gradients: whether the function may compute gradients. torch refuses gradients while it
    removes mutations, so such a
    function is first traced with both.
    """
    import torch
    from torch._inductor.decomposition import select_decomp_table
    from torch.fx.experimental.proxy_tensor import make_fx

    from kernelwright.policies.inductor.functions.ranking import decompositions

    def traced(called: Callable[..., Any], table: dict[Any, Callable[..., Any]]) -> Any:
        functional = torch.func.functionalize(called, remove="mutations")
        return make_fx(functional, decomposition_table=table, tracing_mode="real")(*flat)

    # Random operators keep their names, so that the refusal can name them.
    table = {
        op: decomposition
        for op, decomposition in select_decomp_table().items()
        if not draws_random_numbers(op)
    } | decompositions(partial)
    if gradients:
        function = make_fx(function, decomposition_table=table, tracing_mode="real")(*flat)
    graph = traced(function, table)
    if has_complex(graph):
        graph = traced(
            ByParts(traced(function, without_complex_decompositions(table)), library=partial).run,
            table,
        )
    graph.graph.eliminate_dead_code(
        lambda node: node.is_impure() and not draws_random_numbers(node.target)
    )
    _refuse(graph)
    return graph


def _refuse(graph: torch.fx.GraphModule) -> None:
    """Raises DraftRefused for random operators, data-dependent sizes, and graphs with too many
    operators.
    """
    import torch

    for node in graph.graph.nodes:
        tags = getattr(node.target, "tags", ())
        if torch.Tag.dynamic_output_shape in tags and _sized_by_data(node):
            name = str(node.target).split(".")[1]
            subject = "a boolean index" if name == "index" else name
            raise DraftRefused(
                f"what forward does depends on the values of a tensor: they decide the size of what {subject} gives",
                operator=name,
            )
        if draws_random_numbers(node.target):
            name = str(node.target).split(".")[1].removesuffix("_functional")
            raise DraftRefused(
                f"{name} draws random numbers", operator=name, advice=RANDOMNESS_ADVICE
            )
    count = len(graph.graph.nodes)
    if count > MAX_TRACED_OPERATORS:
        raise DraftRefused(
            f"{count} operators: a recurrence that is unrolled, or a network too large for one draft"
        )


def _sized_by_data(node: GraphNode) -> bool:
    """Whether the operator's result has as many elements as data say; an index by whole numbers has not."""
    import torch

    if node.target is not torch.ops.aten.index.Tensor:
        return True
    indices = [i.meta.get("val") for i in node.args[1] if i is not None]
    return any(v is not None and v.dtype in (torch.bool, torch.uint8) for v in indices)


def _name_symbols(traced: TracedModel, size_arguments: list[tuple[str, Any]]) -> None:
    """Records the source and name of each symbol; inputs take precedence over constructor
    arguments.
    """
    for path, value in [*_shapes(traced), *size_arguments]:
        symbol = value.node.expr
        if symbol.is_symbol:
            traced.symbols.setdefault(str(symbol), path)
            name = traced.sizes.name_of(symbol, path) or next(
                (
                    n
                    for p, n in traced.sizes.names.items()
                    if traced.sizes.by_path[p].node.expr == symbol
                ),
                "",
            )
            traced.names.setdefault(str(symbol), name)
    for symbol, other in traced.sizes.env.replacements.items():
        expression = (
            traced.symbols.get(str(other))
            if other.is_symbol
            else str(traced.sizes.env.simplify(other))
        )
        traced.symbols[str(symbol)] = expression or str(other)


def _shapes(traced: TracedModel) -> Iterator[tuple[str, Any]]:
    import torch

    pairs = list(zip(traced.arguments, traced.flat, strict=True))
    inputs = [p for p in pairs if not unwrapped_path(p[0]).startswith("self.")]
    weights = [p for p in pairs if unwrapped_path(p[0]).startswith("self.")]
    for path, value in [*inputs, *weights]:
        if isinstance(value, torch.Tensor):
            sizes = enumerate(value.shape[: rank_in_forward(path, value)])
            yield from (
                (f"{unwrapped_path(path)}.shape[{i}]", n)
                for i, n in sizes
                if isinstance(n, torch.SymInt)
            )
