"""Writes a module that chooses among kernels by the dtypes and shapes of a call.

group      calls                                             condition
decode     x: float32 (1, 1, 64)                             x.shape[1] == 1
prefill    x: float32 (4, 512, 64), float32 (1, 2048, 64)    (the last group: every other call)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from kernelwright.agent.candidates.joined_text import joined_text
from kernelwright.tools.report import Value

SHARED_WEIGHTS = '''

def with_weights_of(module, kernels):
    """Makes a module compute with the weights of another one, also after these are cast, moved or loaded."""
    for ours, theirs in zip(module.modules(), kernels.modules(), strict=True):
        theirs._parameters, theirs._buffers = ours._parameters, ours._buffers
    return kernels
'''
DISPATCHING_MODULE = '''

class ModelNew({first}):
    """Chooses the kernels of a call; all compute with the weights of this module."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        # No submodules: state_dict holds the weights once.
{built_kernels}

    def forward(self, {parameters}):
{choice}
'''


class TensorOfCall(Value):
    """Dtype and shape of an argument of a call."""

    dtype: str
    shape: tuple[int, ...]


Call = dict[str, TensorOfCall]
"""Tensors of a call by the names of forward's arguments."""


class KernelGroup(Value):
    """Kernels, with the calls they serve."""

    shapes: tuple[str, ...]
    """Names of the shapes of the calls."""
    source: str
    """Text with a class `ModelNew`."""
    calls: tuple[Call, ...]

    @property
    def name(self) -> str:
        """Name of the kernels: of up to two shapes."""
        return " and ".join(self.shapes) if len(self.shapes) < 3 else f"{self.shapes[0]} and others"


def dispatching_text(groups: Sequence[KernelGroup]) -> str:
    """Returns a candidate with the kernels of all groups; the text of a single group stays unchanged."""
    if len(groups) == 1:
        return groups[0].source
    names = _class_names([group.name for group in groups])
    text = groups[0].source
    for index, group in enumerate(groups[1:], 1):
        first = {"ModelNew": names[0]} if index == 1 else {}
        prefix = f"{_snake(names[index])}_".replace("_kernels_", "_")
        text = joined_text(text, group.source, first, {"ModelNew": names[index]}, prefix)
    attributes = [_snake(name) for name in names]
    built_kernels = [
        f'        self.__dict__["{attribute}"] = with_weights_of(self, {name}(*args, **kwargs))'
        for attribute, name in list(zip(attributes, names, strict=True))[1:]
    ]
    parameters, passed = _parameters(groups[0].source)
    module = DISPATCHING_MODULE.format(
        first=names[0],
        built_kernels="\n".join(built_kernels),
        parameters=", ".join(parameters),
        choice=_choice(groups, attributes, ", ".join(passed)),
    )
    return text.rstrip() + "\n" + SHARED_WEIGHTS + module


def _choice(groups: Sequence[KernelGroup], attributes: Sequence[str], passed: str) -> str:
    """Returns the choosing statements: the names of a group's shapes, and a condition for each but the last."""
    lines: list[str] = []
    for index, group in enumerate(groups):
        called = "super().forward" if index == 0 else f"self.{attributes[index]}"
        lines.append(f"        # {', '.join(group.shapes)}")
        later = [call for later_group in groups[index + 1 :] for call in later_group.calls]
        if not later:
            lines.append(f"        return {called}({passed})")
        else:
            lines.append(f"        if {condition(group.calls, later)}:")
            lines.append(f"            return {called}({passed})")
    return "\n".join(lines)


def condition(calls: Sequence[Call], other_calls: Sequence[Call]) -> str:
    """Returns an expression for all calls and for none of the others: a single fact if enough, else a dtype and a
    rank, else each call by itself.
    """
    names = [name for name in calls[0] if all(name in call for call in (*calls, *other_calls))]
    # A dtype or a rank holds at every size; an extent is a bound between the judged sizes.
    for rule in (_by_dtype, _by_rank, _by_extent):
        for name in names:
            ours, theirs = [call[name] for call in calls], [call[name] for call in other_calls]
            if text := rule(name, ours, theirs):
                return text
    for rule in (_by_dtype, _by_rank):
        for name in names:
            ours = [call[name] for call in calls]
            # Calls excluded by this fact; a further condition excludes the remaining ones.
            apart = [call for call in other_calls if rule(name, ours, [call[name]])]
            text = rule(name, ours, [call[name] for call in apart]) if apart else ""
            if text:
                alike = [call for call in other_calls if call not in apart]
                further = condition(calls, alike)
                # `a and b or c` would answer calls that satisfy c alone.
                return f"{text} and ({further})" if " or " in further else f"{text} and {further}"
    if len(calls) > 1:
        return " or ".join(f"({condition([call], other_calls)})" for call in calls)
    facts = [
        f"{name}.dtype == torch.{tensor.dtype} and {name}.shape == {tensor.shape}"
        for name, tensor in calls[0].items()
    ]
    return " and ".join(facts) or "True"


Rule = Callable[[str, Sequence[TensorOfCall], Sequence[TensorOfCall]], str]


def _by_dtype(name: str, ours: Sequence[TensorOfCall], theirs: Sequence[TensorOfCall]) -> str:
    dtypes = list(dict.fromkeys(tensor.dtype for tensor in ours))
    if set(dtypes) & {tensor.dtype for tensor in theirs}:
        return ""
    return _is_among(f"{name}.dtype", [f"torch.{dtype}" for dtype in dtypes])


def _by_rank(name: str, ours: Sequence[TensorOfCall], theirs: Sequence[TensorOfCall]) -> str:
    ranks = sorted({len(tensor.shape) for tensor in ours})
    if set(ranks) & {len(tensor.shape) for tensor in theirs}:
        return ""
    return _is_among(f"{name}.dim()", [str(rank) for rank in ranks])


def _is_among(expression: str, values: Sequence[str]) -> str:
    if len(values) == 1:
        return f"{expression} == {values[0]}"
    return f"{expression} in ({', '.join(values)})"


def _by_extent(name: str, ours: Sequence[TensorOfCall], theirs: Sequence[TensorOfCall]) -> str:
    ranks = {len(tensor.shape) for tensor in (*ours, *theirs)}
    for axis in range(ranks.pop() if len(ranks) == 1 else 0):
        our_extents, their_extents = [t.shape[axis] for t in ours], [t.shape[axis] for t in theirs]
        extent = f"{name}.shape[{axis}]"
        if len(set(our_extents)) == 1 and our_extents[0] not in their_extents:
            return f"{extent} == {our_extents[0]}"
        if max(our_extents) < min(their_extents):
            return f"{extent} <= {max(our_extents)}"
        if min(our_extents) > max(their_extents):
            return f"{extent} >= {min(our_extents)}"
    return ""


def _parameters(source: str) -> tuple[list[str], list[str]]:
    """Returns the parameters of the kernels' forward with their defaults, and how they are passed on."""
    models = [
        n for n in ast.parse(source).body if isinstance(n, ast.ClassDef) and n.name == "ModelNew"
    ]
    for node in models[-1].body if models else []:
        if isinstance(node, ast.FunctionDef) and node.name == "forward":
            signature = ast.unparse(node.args).partition(",")[2].strip()
            names = [a.arg for a in (*node.args.posonlyargs, *node.args.args)][1:]
            passed = [*names, *(f"{a.arg}={a.arg}" for a in node.args.kwonlyargs)]
            passed += [f"*{node.args.vararg.arg}"] if node.args.vararg else []
            return [signature] if signature else [], passed
    return ["*args"], ["*args"]


def _class_names(names: Sequence[str]) -> list[str]:
    """Returns a class name for each group: `DecodeKernels`."""
    classes: list[str] = []
    for name in names:
        words = "".join(word[:1].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", name))
        words = words if words[:1].isalpha() else f"Shape{words}"
        # Compared as attributes: `ABcKernels` and `AbcKernels` would share `abc_kernels`.
        while _snake(f"{words}Kernels") in map(_snake, classes):
            words += "Other"
        classes.append(f"{words}Kernels")
    return classes


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()
