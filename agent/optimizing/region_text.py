"""Writes the text of a problem for an exported module: its graph in aten operators, with the
weights as parameters of flat names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from kernelwright.agent.optimizing.capture import ModuleCall
from kernelwright.agent.optimizing.graph_costs import bytes_of, extent_of

if TYPE_CHECKING:
    import torch
    from torch.export import ExportedProgram

MAX_CONSTANT_ELEMENTS = 1024
"""Maximum number of elements of a constant written into a problem's text."""
ATTENTION_FUNCTION = "scaled_dot_product_attention"
Draw = Callable[["torch.Tensor", str], str]
"""Returns the expression of a tensor like another, of a shape given as text."""
REGION_HEADER = "import torch\nimport torch.nn as nn\nfrom math import inf, nan\n"


class NoRegion(Exception):
    """A graph unfit to be a problem; the message names the reason."""


class RegionProblemText:
    """Writes the text of a problem for an exported module."""

    def __init__(self, call: ModuleCall, program: ExportedProgram) -> None:
        self._call, self._program = call, program
        self.conditions: list[str] = []
        self.tensors: list[str] = []
        self.weights: dict[str, str] = {}
        self.bytes_needed = 0
        self._inputs: list[tuple[str, torch.fx.Node, Any]] = []
        self._sizes: dict[str, tuple[str, int]] = {}
        """Name and value of each varying size, by its symbol."""
        self._constants: dict[str, Any] = {}
        self._read_inputs()
        self._read_weights()
        self.output = self._read_output()

    def text(self, draw: Draw) -> str:
        """Returns the problem's text. draw: returns the expression of a drawn tensor."""
        sizes = "".join(f"{name} = {value}\n" for name, value in self._sizes.values())
        init = "\n".join(f"        {line}" for line in self._constructor(draw))
        names = ", ".join(name for name, _, _ in self._inputs)
        inputs = "\n".join(
            f"        {draw(value, self._shape(node))}," for _, node, value in self._inputs
        )
        body = "\n".join(f"        {line}" for line in self._body())
        return (
            f"{REGION_HEADER}\n{sizes}\n\nclass Model(nn.Module):\n    def __init__(self):\n"
            f"        super().__init__()\n{init}\n\n    def forward(self, {names}):\n{body}\n\n\n"
            f"def get_inputs():\n    return [\n{inputs}\n    ]\n\n\ndef get_init_inputs():\n    return []\n"
        )

    # ------------------------------------------------------------------ reading
    def _read_inputs(self) -> None:
        """Reads arguments: tensors used by the graph are inputs, other values are conditions."""
        import torch

        nodes = {node.name: node for node in self._program.graph_module.graph.nodes}
        self.conditions.append(f"kwargs.keys() == set({sorted(self._call.kwargs)!r})")
        leaves = [
            *_leaves(self._call.args, "args", self.conditions),
            *_leaves(self._call.kwargs, "kwargs", self.conditions),
        ]
        user_inputs = [
            spec.arg for spec in self._program.graph_signature.input_specs
            if spec.kind == torch.export.graph_signature.InputKind.USER_INPUT
        ]  # fmt: skip
        for (expression, value), argument in zip(leaves, user_inputs, strict=True):
            if not isinstance(value, torch.Tensor):
                self.conditions.append(_equals(expression, value))
                continue
            node = nodes[argument.name]
            if node.users:
                self.tensors.append(expression)
                self._inputs.append((node.name, node, value))
                self._name_sizes(node)
                self.bytes_needed += value.nbytes
        if not self._inputs:
            raise NoRegion("it takes no tensor")

    def _name_sizes(self, node: torch.fx.Node) -> None:
        for index, extent in enumerate(node.meta["val"].shape):
            symbol = str(extent)
            if not isinstance(extent, int) and symbol.isidentifier() and symbol not in self._sizes:
                self._sizes[symbol] = f"{node.name}_{index}", extent_of(extent)

    def _read_weights(self) -> None:
        signature = self._program.graph_signature
        nodes = {node.name: node for node in self._program.graph_module.graph.nodes}
        targets = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        for name, target in targets.items():
            if nodes[name].users:
                self.weights[_flat(target)] = target
                self.bytes_needed += self._tensor(target).nbytes
        for name, target in signature.inputs_to_lifted_tensor_constants.items():
            if nodes[name].users:
                constant = self._program.constants[target]
                if constant.numel() > MAX_CONSTANT_ELEMENTS:
                    raise NoRegion(f"it has a constant of {constant.numel()} elements")
                self._constants[name] = constant

    def _read_output(self) -> str:
        [node] = [n for n in self._program.graph_module.graph.nodes if n.op == "output"]
        returned = node.args[0]
        self.bytes_needed += sum(bytes_of(value) for value in returned if hasattr(value, "meta"))
        spec = self._program.call_spec.out_spec
        return _output_expression(spec, iter(range(len(returned))), returned)

    # ------------------------------------------------------------------ writing
    def _constructor(self, draw: Draw) -> Iterator[str]:
        for flat, target in self.weights.items():
            tensor = self._tensor(target)
            drawn = draw(tensor, _shape_text(tensor.shape))
            if target in self._program.graph_signature.inputs_to_parameters.values():
                yield f"self.{flat} = nn.Parameter({drawn}, requires_grad={tensor.requires_grad})"
            else:
                yield f"self.register_buffer({flat!r}, {drawn})"

    def _shape(self, node: torch.fx.Node) -> str:
        extents = [self._extent(extent) for extent in node.meta["val"].shape]
        return f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"

    def _extent(self, extent: object) -> str:
        text = str(extent)
        if text.isdigit():
            return f"int({text})"
        for symbol, (name, _) in self._sizes.items():
            text = re.sub(rf"\b{symbol}\b", name, text)
        return text

    def _body(self) -> Iterator[str]:
        first = self._inputs[0][0]
        for name, constant in self._constants.items():
            dtype = str(constant.dtype)
            yield f"{name} = torch.tensor({constant.tolist()!r}, dtype={dtype}, device={first}.device)"
        code = self._program.graph_module.graph.python_code("self").src
        lines = code[code.index("\n", code.index("def forward")) :].splitlines()
        signature = self._program.graph_signature
        weights = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
        for line in lines:
            line = re.sub(r";  .*= None$", "", line.strip())
            line = re.sub(r"device\(type='\w+'(, index=\d+)?\)", f"{first}.device", line)
            # Drafts know attention by its function in torch; the operator's kernels differ by device.
            line = line.replace(
                f"torch.ops.aten.{ATTENTION_FUNCTION}.default(",
                f"nn.functional.{ATTENTION_FUNCTION}(",
            )
            line = re.sub(r"\w+", lambda word: _weight_text(word[0], weights), line)
            if line.startswith("return "):
                yield f"return {_returned(line.removeprefix('return '))}"
            elif line:
                yield line

    def _tensor(self, target: str) -> torch.Tensor:
        tensors = {**self._program.state_dict, **self._program.constants}
        value: torch.Tensor = tensors[target]
        return value


def _weight_text(word: str, weights: dict[str, str]) -> str:
    return f"self.{_flat(weights[word])}" if word in weights else word


def _returned(text: str) -> str:
    """Returns a tuple of a single output as the output itself."""
    inner = text.strip()
    if inner.startswith("(") and inner.endswith(",)") and inner.count(",") == 1:
        return inner[1:-2]
    return inner


def _flat(target: str) -> str:
    return target.replace(".", "_").strip("_")


def _leaves(value: Any, expression: str, conditions: list[str]) -> Iterator[tuple[str, Any]]:
    """Yields the leaves of an argument with their expressions, in the order of pytrees."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{expression}[{key!r}]", conditions)
    elif type(value) in (list, tuple):
        conditions.append(
            f"isinstance({expression}, (list, tuple)) and len({expression}) == {len(value)}"
        )
        for index, item in enumerate(value):
            yield from _leaves(item, f"{expression}[{index}]", conditions)
    else:
        yield expression, value


def _equals(expression: str, value: object) -> str:
    if value is None or isinstance(value, bool):
        return f"{expression} is {value}"
    if isinstance(value, int | float | str):
        return f"{expression} == {value!r}"
    raise NoRegion(f"it takes a {type(value).__name__}")


def _output_expression(spec: Any, counter: Iterator[int], returned: Any) -> str:
    if spec.is_leaf():
        index = next(counter)
        value = returned[index]
        if hasattr(value, "meta"):
            position = sum(hasattr(other, "meta") for other in returned[:index])
            return f"o[{position}]"
        return repr(value)
    children = spec.children() if callable(getattr(spec, "children", None)) else spec.children_specs
    items = [_output_expression(child, counter, returned) for child in children]
    if spec.type is tuple:
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if spec.type is list:
        return f"[{', '.join(items)}]"
    if spec.type is dict:
        entries = [f"{key!r}: {item}" for key, item in zip(spec.context, items, strict=True)]
        return "{" + ", ".join(entries) + "}"
    raise NoRegion(f"it returns a {spec.type.__name__}")


def drawn_like(tensor: torch.Tensor, shape: str) -> str:
    """Returns an expression of a random tensor with the range of another tensor."""
    import torch

    dtype = str(tensor.dtype)
    if tensor.dtype == torch.bool:
        return f"torch.rand({shape}) > 0.2"
    if tensor.dtype.is_complex:
        return f"torch.randn({shape}, dtype={dtype})"
    values = tensor.detach()
    low, high = (float(values.min()), float(values.max())) if values.numel() else (0.0, 1.0)
    if not tensor.dtype.is_floating_point:
        return f"torch.randint({int(low)}, {int(high) + 1}, {shape}, dtype={dtype})"
    wide = values.double()
    mean, spread = float(wide.mean()), float(wide.std(unbiased=False))
    # Two digits: equal modules with other random weights have equal texts.
    if low >= 0.0 and low != high:
        return f"(torch.rand({shape}) * {float(f'{high:.1g}')} + 1e-3).to({dtype})"
    centre = 0.0 if abs(mean) < spread / 2 else float(f"{mean:.1g}")
    scale = float(f"{spread:.1g}") or 0.05
    return f"(torch.randn({shape}) * {scale} + {centre}).to({dtype})"


def shape_and_dtype(tensor: torch.Tensor, shape: str) -> str:
    """Returns an expression of shape and dtype alone, which is equal for equal modules."""
    return f"torch.empty({shape}, dtype={tensor.dtype})"


def _shape_text(shape: torch.Size) -> str:
    extents = [f"int({extent})" for extent in shape]
    return f"({', '.join(extents)}{',' if len(extents) == 1 else ''})"
