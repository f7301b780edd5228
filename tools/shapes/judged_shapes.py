"""Shapes of a problem at each of which a candidate gets a verdict of its own.

They are a literal in the text of the problem, so that the store, a replay and an export have them:

    def get_inputs_rows():
        return [torch.randn(7, 64)]

    JUDGED_SHAPES = [
        {"name": "decode", "sizes": {"batch": 1, "seq": 1}},
        {"name": "rows", "inputs": "get_inputs_rows", "dtype": "bfloat16"},
    ]

`problem_at` writes the problem at a shape: a text with this shape alone, as written by a user. Text only:
nothing imports torch.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Sequence

from pydantic import ValidationError

from kernelwright.bindings import function_at_top
from kernelwright.tools.parsing import with_replacements
from kernelwright.tools.problem import Problem, ProblemError, parse, resized
from kernelwright.tools.report import Value

LITERAL = "JUDGED_SHAPES"
COMMENT = (
    "# A candidate is judged at each of these. Where one has a dtype, ModelNew and its floating\n"
    "# inputs are cast to it.\n"
)
"""Stands above the literal, for a model as the reader of the problem."""
OTHER_INPUTS = re.compile(r"get_(?:init_)?inputs_\w+")
FIRST_INPUTS = "get_first_inputs"
"""New name of `get_inputs` for the function of a shape with a call of `get_inputs`."""
UNCAST_INPUTS = "get_uncast_inputs"
"""New name of `get_inputs` if a further function casts its result."""
CAST_CANDIDATE = '''

def _cast_as_users_do(model):
    """Casts every module after its constructor."""
    built = model.__init__

    def __init__(self, *args, **kwargs):
        built(self, *args, **kwargs)
        self.to(torch.{dtype})

    model.__init__ = __init__


_cast_as_users_do(ModelNew)
'''
CAST_INPUTS = '''

def in_{dtype}(value):
    """Casts floating tensors, also inside of lists, tuples and dictionaries."""

    def cast(leaf):
        floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        return leaf.to(torch.{dtype}) if floating else leaf

    return torch.utils._pytree.tree_map(cast, value)
'''


class JudgedShape(Value):
    """A shape, a dtype, or both."""

    name: str
    sizes: dict[str, int] = {}
    """New values of integers in the problem's text, by name."""
    inputs: str = ""
    """Function of the text whose inputs take the place of those of `get_inputs`; empty for `get_inputs`."""
    dtype: str = ""
    """torch's name of the dtype to which the module and its floating inputs are cast; empty for no cast."""


def judged_shapes(problem: Problem) -> tuple[JudgedShape, ...]:
    """Returns the shapes in a problem's text; empty for most problems.

    Raises ProblemError if the literal has another form.
    """
    statement = _literal_statement(problem.source)
    if statement is None:
        return ()
    try:
        assert statement.value is not None
        entries = ast.literal_eval(statement.value)
        return tuple(JudgedShape.model_validate(entry) for entry in entries)
    except (ValueError, TypeError, SyntaxError, MemoryError, ValidationError) as error:
        raise ProblemError(
            f"{LITERAL} must be a list of literal dictionaries with name, sizes, inputs, dtype: "
            f"{' '.join(str(error).split())[:200]}"
        ) from None


def with_shapes(problem: Problem, shapes: Sequence[JudgedShape], functions: str = "") -> Problem:
    """Returns the problem with these shapes in its text. functions: text of the shapes' functions."""
    entries = [shape.model_dump(exclude_defaults=True) for shape in shapes]
    lines = "".join(f"    {json.dumps(entry, ensure_ascii=False)},\n" for entry in entries)
    text = without_shapes(problem).source.rstrip()
    text += f"\n\n\n{functions.strip()}" if functions.strip() else ""
    return problem.model_copy(update={"source": f"{text}\n\n\n{COMMENT}{LITERAL} = [\n{lines}]\n"})


def without_shapes(problem: Problem) -> Problem:
    """Returns the problem without the literal; its functions stay."""
    statement = _literal_statement(problem.source)
    if statement is None:
        return problem
    text = _without(problem.source, [statement]).replace(COMMENT.rstrip(), "").rstrip()
    return problem.model_copy(update={"source": f"{text}\n"})


def problem_at(problem: Problem, shape: JudgedShape) -> Problem:
    """Returns the problem at a single shape. Raises ProblemError if the text has no such size or function."""
    text = without_shapes(problem).source
    text = resized(text, shape.sizes) if shape.sizes else text
    # Inputs before the cast: the cast edits the text's `get_inputs`.
    text = _with_inputs(text, shape.inputs)
    text = _cast(text, shape.dtype) if shape.dtype else text
    return problem.model_copy(update={"source": text, "name": f"{problem.name} at {shape.name}"})


def problem_to_judge(problem: Problem, shape: JudgedShape) -> Problem:
    """Returns the problem judged for a shape.

    An empty extent (0) runs no kernel: the size stays the problem's own, and the text asks for the empty extent, too,
    as an author's shape (tools/sizing/drawn_sizes.py). A candidate may not refuse an author's shape.
    """
    empty = {name: 0 for name, extent in shape.sizes.items() if extent == 0}
    if not empty:
        return problem_at(problem, shape)
    sizes = {name: extent for name, extent in shape.sizes.items() if name not in empty}
    target = problem_at(problem, shape.with_(sizes=sizes))
    return target.model_copy(
        update={"source": f"{target.source.rstrip()}\n\nSHAPES = [{json.dumps(empty)}]\n"}
    )


def candidate_at(source: str, shape: JudgedShape) -> str:
    """Returns a candidate's text for a single shape: cast after its constructor if the shape has a dtype."""
    if not shape.dtype:
        return source
    head = "" if re.search(r"^import torch$", source, re.MULTILINE) else "\nimport torch\n"
    return source.rstrip() + "\n" + head + CAST_CANDIDATE.format(dtype=shape.dtype)


def candidate_from(text: str) -> str:
    """Returns the candidate's text without the cast for a shape, the inverse of `candidate_at`."""
    before, cast, _ = text.partition("\n\ndef _cast_as_users_do(")
    return before.removesuffix("\nimport torch\n").rstrip() + "\n" if cast else text


def _literal_statement(source: str) -> ast.Assign | ast.AnnAssign | None:
    if LITERAL not in source:
        return None
    for node in parse(source).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if (
            isinstance(node, ast.Assign | ast.AnnAssign)
            and getattr(targets[0], "id", "") == LITERAL
        ):
            return node
    return None


def _without(text: str, statements: Sequence[ast.stmt]) -> str:
    """Returns a text without these statements of the module."""
    lines = text.splitlines()
    # From the end, so that earlier line numbers stay right.
    for statement in sorted(statements, key=lambda node: node.lineno, reverse=True):
        decorators = getattr(statement, "decorator_list", [])
        first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
        del lines[first - 1 : statement.end_lineno]
    return re.sub(r"\n{4,}", "\n\n\n", "\n".join(lines)).rstrip() + "\n"


def _with_inputs(text: str, name: str) -> str:
    """Returns a text with the named function as `get_inputs`, without the functions of other shapes."""
    if name and function_at_top(parse(text), name) is None:
        raise ProblemError(f"the shape's function {name} is not in the reference")
    chosen = {name, name.replace("get_inputs", "get_init_inputs", 1)} if name else set()
    for new_name in sorted(chosen):
        if function_at_top(parse(text), new_name) is None:
            continue
        usual = "get_init_inputs" if new_name.startswith("get_init") else "get_inputs"
        text = _with_function_in_place(text, new_name, usual)
    tree = parse(text)
    used = _names_used(tree)
    unused: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name not in used:
            # Functions of other shapes alone: the user's helpers stay.
            unused += [node] if OTHER_INPUTS.fullmatch(node.name) else []
    return _without(text, unused) if unused else text


def _with_function_in_place(text: str, name: str, usual: str) -> str:
    """Renames a function to the usual name; the usual function gets another name, or is deleted if nothing calls it."""
    tree = parse(text)
    replaced = function_at_top(tree, usual)
    if usual in _names_used(tree):
        text = re.sub(rf"\b{usual}\b", FIRST_INPUTS, text)
    elif replaced is not None:
        text = _without(text, [replaced])
    return re.sub(rf"\b{name}\b", usual, text)


def _names_used(tree: ast.Module) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _cast(text: str, dtype: str) -> str:
    """Returns a problem whose module and floating inputs have a dtype."""
    text = _with_cast_module(text, dtype)
    function = function_at_top(parse(text), "get_inputs")
    returns = [n for n in ast.walk(function or ast.Pass()) if isinstance(n, ast.Return)]
    # A second return, in a branch, would stay without its cast.
    returned = function.body[-1] if function is not None and len(returns) == 1 else None
    cast = f"in_{dtype}"
    if isinstance(returned, ast.Return) and returned.value is not None:
        value = returned.value
        is_written_out = isinstance(value, ast.List | ast.Tuple) and not any(
            isinstance(element, ast.Starred) for element in value.elts
        )
        nodes = (
            value.elts if isinstance(value, ast.List | ast.Tuple) and is_written_out else [value]
        )
        edits = [(node, f"{cast}({_source_of(text, node)})") for node in nodes]
        text = with_replacements(text, edits)
    else:
        text = re.sub(r"\bget_inputs\b", UNCAST_INPUTS, text)
        text += f"\n\ndef get_inputs():\n    return {cast}({UNCAST_INPUTS}())\n"
    head = "" if re.search(r"^import torch$", text, re.MULTILINE) else "\nimport torch\n"
    return text.rstrip() + "\n" + head + CAST_INPUTS.format(dtype=dtype)


def _source_of(text: str, node: ast.expr) -> str:
    source = ast.get_source_segment(text, node)
    assert source is not None
    return source


def _with_cast_module(text: str, dtype: str) -> str:
    """Returns a text whose module casts itself at the end of its constructor."""
    cast = f"self.to(torch.{dtype})"
    models = [n for n in parse(text).body if isinstance(n, ast.ClassDef) and n.name == "Model"]
    if not models:
        raise ProblemError("--dtype: the reference defines no class Model")
    model, lines = models[-1], text.splitlines()
    indent = _indent(lines, model.body[0])
    constructors = [
        n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"
    ]
    if constructors and constructors[-1].body[0].lineno > constructors[-1].lineno:
        constructor = constructors[-1]
        lines.insert(constructor.end_lineno or 0, _indent(lines, constructor.body[0]) + cast)
        return "\n".join(lines) + "\n"
    if constructors:
        raise ProblemError("--dtype: write the constructor of Model in several lines")
    method = [
        "",
        f"{indent}def __init__(self, *args, **kwargs):",
        f"{indent * 2}super().__init__(*args, **kwargs)",
        f"{indent * 2}{cast}",
    ]
    lines[model.end_lineno : model.end_lineno] = method
    return "\n".join(lines) + "\n"


def _indent(lines: Sequence[str], statement: ast.stmt) -> str:
    """Returns the spaces or tabs in front of a statement."""
    return lines[statement.lineno - 1][: statement.col_offset]
