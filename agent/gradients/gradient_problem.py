"""Writes the gradients of a problem as a problem of their own. Text only: nothing imports torch.

For a problem whose `forward(self, x)` returns a tensor, and whose layer has a weight:

    class Layer(nn.Module): ...                        the problem's Model

    class Model(Layer):
        def forward(self, x, output_gradient):
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                output = super().forward(x)
            return torch.autograd.grad((output,), (x, self.weight), (output_gradient,))

    def get_inputs():
        x = torch.randn(rows, 64)
        return [x, *output_gradients(x)]

Drafts and verdicts of that problem are drafts and verdicts of the gradients.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Sequence

from kernelwright.agent.gradients.gradient_facts import GradientFacts
from kernelwright.tools.parsing import with_replacements
from kernelwright.tools.problem import Problem, ProblemError, parse

NAME_MARK = ":gradients"
"""End of the name of a problem of gradients."""
COPIED_BUFFERS = '''
@contextlib.contextmanager
def copied_buffers(layer):
    """Lets forward change copies of the layer's buffers: the forward pass has changed them already."""
    stored = [(module, dict(module._buffers)) for module in layer.modules()]
    for module, buffers in stored:
        module._buffers.update({name: value.clone() for name, value in buffers.items() if value is not None})
    try:
        yield
    finally:
        for module, buffers in stored:
            module._buffers.update(buffers)

'''


def gradient_problem(problem: Problem, facts: GradientFacts) -> Problem:
    """Returns the problem of the gradients with respect to inputs and weights.

    Raises ProblemError if the problem has no class Model or no function get_inputs.
    """
    source = problem.source
    used_names = _names(source)
    layer = _new_name("Layer", used_names)
    gradients = [
        _new_name(_gradient_name(facts, i), {*used_names, *facts.arguments})
        for i in range(len(facts.outputs))
    ]
    draws = _new_name("output_gradients", used_names)
    renamed = _with_inputs_of_gradients(_renamed(source, "Model", layer), facts, draws)
    imports = [
        name
        for name in ("contextlib", "torch")
        if not re.search(rf"^import {name}$", source, re.MULTILINE)
    ]
    if not facts.changes_buffers:
        imports = [name for name in imports if name != "contextlib"]
    parts = [renamed.rstrip(), *("\n".join(f"import {name}" for name in imports).splitlines())]
    parts += [_output_gradients(facts, layer, draws), _model(facts, layer, gradients)]
    text = "\n\n\n".join(parts)
    return problem.model_copy(
        update={
            "source": text,
            "name": problem.name + NAME_MARK,
            "title": f"gradients of {problem.title}" if problem.title else "",
            "suite": "file",
            "taken_for": "",
        }
    )


def _model(facts: GradientFacts, layer: str, gradients: Sequence[str]) -> str:
    leaves = [*facts.inputs, *map(weight_expression, facts.weights)]
    buffers = ", copied_buffers(self)" if facts.changes_buffers else ""
    arguments = ", ".join(facts.arguments)
    lines = [
        f"class Model({layer}):",
        f'    """Gradients of {layer} with respect to {", ".join([*facts.inputs, *facts.weights])}."""',
        "",
        f"    def forward(self, {', '.join([*facts.arguments, *gradients])}):",
        f"        with torch.enable_grad(){buffers}:",
        *(f"            {name} = {name}.detach().requires_grad_()" for name in facts.inputs),
        f"            output = super().forward({arguments})",
        "        return torch.autograd.grad(",
        f"            {_tuple(facts.outputs)},",
        f"            {_tuple(leaves)},",
        f"            {_tuple(gradients)},",
        "        )",
    ]
    head = f"{COPIED_BUFFERS.strip()}\n\n\n" if facts.changes_buffers else ""
    return head + "\n".join(lines) + "\n"


def _output_gradients(facts: GradientFacts, layer: str, draws: str) -> str:
    return "\n".join(
        [
            f"def {draws}(*inputs):",
            '    """Draws a gradient for each output of the layer."""',
            "    with torch.no_grad():",
            f"        output = {layer}(*get_init_inputs())(*inputs)",
            f"    outputs = {_tuple(facts.outputs)}",
            "    return [torch.randn(value.shape, dtype=value.dtype) for value in outputs]",
        ]
    )


def _with_inputs_of_gradients(source: str, facts: GradientFacts, draws: str) -> str:
    """Returns the text with a get_inputs that also returns the gradients of the outputs.

    Inputs get names there, so sizes written inside of get_inputs stay sizes of arguments.
    """
    functions = [
        n for n in parse(source).body if isinstance(n, ast.FunctionDef) and n.name == "get_inputs"
    ]
    if not functions or not isinstance(functions[-1].body[-1], ast.Return):
        raise ProblemError("--backward: get_inputs must be a function that ends with its return")
    statement = functions[-1].body[-1]
    elements = _elements(functions[-1], statement.value)
    lines: list[str] = []
    if elements is None:
        lines = [f"inputs = {ast.unparse(statement.value) if statement.value else '[]'}"]
        returned = f"[*inputs, *{draws}(*inputs)]"
    else:
        names: list[str] = []
        for argument, element in zip(facts.arguments, elements, strict=True):
            names.append(element.id if isinstance(element, ast.Name) else argument)
            if not isinstance(element, ast.Name):
                lines.append(f"{argument} = {ast.unparse(element)}")
        returned = f"[{', '.join(names)}, *{draws}({', '.join(names)})]"
    indent = "\n" + " " * statement.col_offset
    return with_replacements(source, [(statement, indent.join([*lines, f"return {returned}"]))])


def _elements(function: ast.FunctionDef, returned: ast.expr | None) -> list[ast.expr] | None:
    """Returns the elements of a returned list; None if not written out, or if a name clashes with
    another argument.
    """
    if not isinstance(returned, ast.List | ast.Tuple):
        return None
    if any(isinstance(element, ast.Starred) for element in returned.elts):
        return None
    assigned = {n.id for n in ast.walk(function) if isinstance(n, ast.Name)}
    is_simple = not assigned & {e.id for e in returned.elts if isinstance(e, ast.Name)} or all(
        isinstance(element, ast.Name) for element in returned.elts
    )
    return returned.elts if is_simple else None


def weight_expression(name: str) -> str:
    """Returns the expression of a parameter: `self.layers[0].weight` for `layers.0.weight`."""
    parts = [f"[{part}]" if part.isdigit() else f".{part}" for part in name.split(".")]
    return "self" + "".join(parts)


def _gradient_name(facts: GradientFacts, index: int) -> str:
    return "output_gradient" if len(facts.outputs) == 1 else f"output_gradient_{index}"


def _tuple(items: Sequence[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def _names(source: str) -> set[str]:
    return {token.string for token in _tokens(source) if token.type == tokenize.NAME}


def _new_name(name: str, used_names: set[str]) -> str:
    while name in used_names:
        name += "_"
    return name


def _renamed(source: str, name: str, new_name: str) -> str:
    """Returns the text with another name; every line keeps its number."""
    lines = source.splitlines(keepends=True)
    for token in reversed(list(_tokens(source))):
        if token.type == tokenize.NAME and token.string == name:
            (row, start), (_, end) = token.start, token.end
            lines[row - 1] = lines[row - 1][:start] + new_name + lines[row - 1][end:]
    return "".join(lines)


def _tokens(source: str) -> list[tokenize.TokenInfo]:
    return list(tokenize.generate_tokens(io.StringIO(source).readline))
