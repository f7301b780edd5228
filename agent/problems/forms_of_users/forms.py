"""A module or a function as users keep them, completed to a reference in KernelBench form. Text to text: nothing runs.

What is understood where `Model`, `get_inputs` or `get_init_inputs` is missing:

- the module: the class with a `forward` that the file builds (`block = Block(64)`), else the last one; a layer of torch
  that the file builds and calls where it calls no class of its own (containers.py); without either the function that
  the file calls or tests. It becomes `Model`;
- the inputs: a name or function such as `example_inputs`, else the first call (`block(x)`) at the top of the file, in
  `if __name__ == "__main__"` or a `test_*` function, with the statements that make its arguments;
- the constructor's arguments: those with which the file builds the module, and what it does with the module before it
  calls it (`.eval()`, `.half()`: prepared_modules.py), which the constructor then does.

Statements that run the module are left out, and line numbers stay.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from kernelwright.agent.problems.forms_of_users.calls_as_lists import in_order, with_places
from kernelwright.agent.problems.forms_of_users.containers import build_of, built_layers, model_of
from kernelwright.agent.problems.forms_of_users.import_time_code import makes_calls, without_runs
from kernelwright.agent.problems.forms_of_users.plain_arguments import renamed, with_plain_arguments
from kernelwright.agent.problems.forms_of_users.prepared_modules import preparations, with_preparations
from kernelwright.agent.problems.tritonbench_cases import (
    Case,
    NotAProblem,
    OffDevice,
    arguments_of,
    names_loaded_by,
    names_stored_by,
    statements_needed,
)
from kernelwright.tools.problem import ProblemError, parse

REQUIRED_NAMES = ("Model", "get_inputs", "get_init_inputs")
INPUT_FUNCTION_NAME = re.compile(
    r"(get_|make_|create_)?(example|sample|dummy|test)?_?(inputs?|args|data)$", re.IGNORECASE
)
"""Names of inputs, and of functions that make them."""


_Build = tuple[list[ast.stmt], ast.Call, list[ast.stmt]]
"""A call that builds a module: the statements in which it is, the call, those before it."""


@dataclass
class _Parts:
    """The parts of a user's file."""

    runs: list[list[ast.stmt]] = field(default_factory=list)
    """Statements in order that may build and call the module: of the top, of `__main__`, of each test."""
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    modules: dict[str, ast.ClassDef] = field(default_factory=dict)
    """Classes with a forward."""


def complete_reference(source: str) -> str:
    """The same text where it has the form, or where nothing tells how to complete it; else the reference that is meant.

    Raises ProblemError where it is not Python.
    """
    tree = parse(source)
    names = {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    if all(name in names for name in REQUIRED_NAMES):
        return with_plain_arguments(_with_defaults(source, tree))
    parts = _parts(tree)
    if "ModelNew" in names:  # an answer, no question
        return source
    try:
        made = _of_layers(source, parts, names) or (
            _of_module(source, parts, names) if parts.modules else _of_function(source, parts, names)
        )
    except NotAProblem:
        return source
    return with_plain_arguments(_with_defaults(made, parse(made))) if made is not None and _parses(made) else source


def is_problem(source: str) -> bool:
    """Whether a text is a reference, or can be completed to one."""
    try:
        tree = parse(complete_reference(source))
    except ProblemError:
        return True
    found = {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    return "Model" in found


def _parses(text: str) -> bool:
    try:
        parse(text)
    except ProblemError:
        return False
    return True


def _parts(tree: ast.Module) -> _Parts:
    found = _Parts()
    top: list[ast.stmt] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            if any(isinstance(n, ast.FunctionDef) and n.name == "forward" for n in node.body):
                found.modules[node.name] = node
        elif isinstance(node, ast.FunctionDef):
            found.functions[node.name] = node
        elif isinstance(node, ast.If) and "__name__" in ast.unparse(node.test):
            found.runs.append([*top, *node.body])
        else:
            top.append(node)
    found.runs.append(top)
    tests = [f for n, f in found.functions.items() if n.startswith("test") or n == "main"]
    found.runs += [[*top, *f.body] for f in tests]
    return found


def _calls(
    statements: list[ast.stmt], called: set[str], builds: Sequence[ast.Call] = ()
) -> Iterator[tuple[ast.Call, list[ast.stmt]]]:
    """Calls of these names or of what these calls build (`Block(64).eval()(x)`), each with the statements before it;
    those inside `with torch.no_grad()` too.
    """
    before: list[ast.stmt] = []
    for statement in statements:
        if isinstance(statement, ast.With):
            for call, inside in _calls(statement.body, called, builds):
                yield call, [*before, *inside]
        elif isinstance(statement, ast.Assign | ast.Expr | ast.AnnAssign | ast.Return | ast.Assert):
            for node in ast.walk(statement):
                if isinstance(node, ast.Call) and _is_called(node.func, called, builds):
                    yield node, list(before)
        before.append(statement)


def _is_called(function: ast.expr, called: set[str], builds: Sequence[ast.Call]) -> bool:
    while isinstance(function, ast.Call) and isinstance(function.func, ast.Attribute):
        function = function.func.value
    return function in builds or (isinstance(function, ast.Name) and function.id in called)


def _of_module(source: str, parts: _Parts, names: set[str]) -> str | None:
    builds = [(run, call, before) for run in parts.runs for call, before in _calls(run, set(parts.modules))]
    chosen = "Model" if "Model" in names else ""
    if not chosen:
        chosen = ast.unparse(builds[0][1].func) if builds else list(parts.modules)[-1]
    module = parts.modules[chosen]
    own = [(run, call, before) for run, call, before in builds if ast.unparse(call.func) == chosen]
    functions, named = [], []
    if "get_init_inputs" not in names:
        functions.append(_init_inputs(module, own[0][1:] if own else None))
        named.append("__init__")
    if "get_inputs" not in names:
        functions.append(_given_inputs(parts) or _called_inputs(parts, own, _method(module, "forward")))
        named.append("forward")
    if any(f is None for f in functions):
        return None
    text = without_runs(source, set(parts.modules))
    for method in named:
        text = with_places(text, _method(module, method))
    if own:
        text = with_preparations(text, chosen, preparations(own[0][0], own[0][1]))
    if chosen != "Model":
        text = renamed(text, chosen, "Model") if "Model" not in names else text
    return _joined(text, [f for f in functions if f])


def _of_layers(source: str, parts: _Parts, names: set[str]) -> str | None:
    """A layer of torch that the file calls, where it calls nothing else that it builds."""
    own = {
        name
        for run in parts.runs
        for s in run
        if isinstance(s, ast.Assign) and ast.unparse(build_of(s.value)) in parts.modules
        for name in names_stored_by(s)
    }
    if names & set(REQUIRED_NAMES) or any(True for run in parts.runs for _ in _calls(run, own)):
        return None
    for run in parts.runs:
        for name, value, before in built_layers(run):
            call = next((c for c, _ in _calls(run, {name}) if c.args), None)
            inputs = None if call is None else _inputs_of_call(run, name)
            if call is None or inputs is None:
                continue
            model = model_of(value, _making(before, names_loaded_by(value)), call)
            imported = "" if re.search(r"^import torch$", source, re.MULTILINE) else "import torch\n\n\n"
            inits = "def get_init_inputs():\n    return []"
            return _joined(imported + without_runs(source, {*parts.modules, name}), [model, inputs, inits])
    return None


def _inputs_of_call(run: list[ast.stmt], name: str) -> str | None:
    """get_inputs from the first call of what has this name."""
    for call, before in _calls(run, {name}):
        values = [OffDevice().visit(a) for a in [*call.args, *(k.value for k in call.keywords if k.arg)]]
        if values:
            kept = [s for s in before if name not in names_stored_by(s)]
            lines = _making(kept, {n for v in values for n in names_loaded_by(v)})
            lines.append(f"return [{', '.join(map(ast.unparse, values))}]")
            return "def get_inputs():\n" + textwrap.indent("\n".join(lines), "    ")
    return None


def _method(module: ast.ClassDef, name: str) -> ast.FunctionDef | None:
    return next((n for n in module.body if isinstance(n, ast.FunctionDef) and n.name == name), None)


def _init_inputs(module: ast.ClassDef, build: tuple[ast.Call, list[ast.stmt]] | None) -> str | None:
    """Returns the text of get_init_inputs; None where the constructor needs arguments and nothing gives them."""
    init = _method(module, "__init__")
    if build is None:
        needed = 0 if init is None else len(init.args.args) - 1 - len(init.args.defaults)
        return None if needed > 0 else "def get_init_inputs():\n    return []"
    call, before = build
    if (values := in_order(call, init)) is None:
        return None
    lines = _making(before, {n for v in values for n in names_loaded_by(v)})
    lines.append(f"return [{', '.join(map(ast.unparse, values))}]")
    return "def get_init_inputs():\n" + textwrap.indent("\n".join(lines), "    ")


def _given_inputs(parts: _Parts) -> str | None:
    """get_inputs from a function or a name that says that it holds inputs."""
    for name, function in parts.functions.items():
        if INPUT_FUNCTION_NAME.match(name) and not len(function.args.args) - len(function.args.defaults):
            return f"def get_inputs():\n    made = {name}()\n    " + _LISTED
    for run in parts.runs:
        for place, statement in enumerate(run):
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                value = OffDevice().visit(statement.value)
                named = INPUT_FUNCTION_NAME.match(statement.targets[0].id)
                if named and isinstance(value, ast.Tuple | ast.List | ast.Call | ast.Dict):
                    return _inputs_of(run[:place], value)
    return None


def _inputs_of(before: list[ast.stmt], value: ast.expr) -> str:
    lines = _making(before, names_loaded_by(value))
    if isinstance(value, ast.Dict):
        value = ast.List(list(value.values), ast.Load())
    if isinstance(value, ast.Tuple | ast.List):
        lines.append(f"return [{', '.join(map(ast.unparse, value.elts))}]")
    else:
        lines += [f"made = {ast.unparse(value)}", _LISTED]
    return "def get_inputs():\n" + textwrap.indent("\n".join(lines), "    ")


_LISTED = (
    "return list(made.values()) if isinstance(made, dict) else "
    "list(made) if isinstance(made, (list, tuple)) else [made]"
)


def _called_inputs(parts: _Parts, own: list[_Build], forward: ast.FunctionDef | None) -> str | None:
    """get_inputs from the first call of a module that these calls build."""
    instances = {n for run, call, _ in own for s in run if call in ast.walk(s) for n in names_stored_by(s)}
    builds = [call for _, call, _ in own]
    for run in parts.runs:
        for call, before in _calls(run, instances, builds):
            given = in_order(call, forward)
            if not given:
                continue
            values = [OffDevice().visit(a) for a in given]
            kept = [s for s in before if not (names_stored_by(s) & instances)]
            lines = _making(kept, {n for v in values for n in names_loaded_by(v)})
            lines.append(f"return [{', '.join(map(ast.unparse, values))}]")
            return "def get_inputs():\n" + textwrap.indent("\n".join(lines), "    ")
    return None


def _making(before: list[ast.stmt], needed: set[str]) -> list[str]:
    """The statements on which names depend, as lines; sizes with names of their own stay at the top of the module."""
    kept = statements_needed(tuple(OffDevice().visit(s) for s in before), needed)
    return [ast.unparse(ast.fix_missing_locations(s)) for s in kept if not _is_size(s)]


def _is_size(statement: ast.stmt) -> bool:
    """A plain assignment, which the module keeps."""
    return isinstance(statement, ast.Assign) and statement.col_offset == 0 and not makes_calls(statement)


def _of_function(source: str, parts: _Parts, names: set[str]) -> str | None:
    """A function as the forward of a module without weights."""
    plain = {
        name: function
        for name, function in parts.functions.items()
        if not (name.startswith(("test", "_", "get_")) or INPUT_FUNCTION_NAME.match(name) or name == "main")
    }
    if not plain or names & {"Model"}:
        return None
    text = without_runs(source, set(parts.modules))
    imported = "" if re.search(r"^import torch$", source, re.MULTILINE) else "import torch\n\n\n"
    inits = "def get_init_inputs():\n    return []"
    given = "" if "get_inputs" in names else _given_inputs(parts)
    if given is not None:
        name, function = list(plain.items())[-1]
        count = len(function.args.args) - len(function.args.defaults)
        listed = [a.arg for a in function.args.args][: max(count, 1)]
        model = _model(listed, f"{name}({', '.join(listed)})")
        return _joined(imported + text, [model, *([given] if given else []), inits])
    for run in parts.runs:
        for call, before in _calls(run, set(plain)):
            case = Case(OffDevice().visit(call), tuple(before))
            inputs, made = arguments_of(case, plain[ast.unparse(call.func)])
            lines = _making(before, {n for v in inputs.values() for n in names_loaded_by(v)})
            lines.append(f"return [{', '.join(map(ast.unparse, inputs.values()))}]")
            drawn = "def get_inputs():\n" + textwrap.indent("\n".join(lines), "    ")
            return _joined(imported + text, [_model(list(inputs), ast.unparse(made)), drawn, inits])
    return None


def _model(arguments: list[str], made: str) -> str:
    return f"class Model(torch.nn.Module):\n    def forward(self, {', '.join(arguments)}):\n        return {made}"


def _joined(text: str, functions: list[str]) -> str:
    return "\n\n\n".join([text.rstrip(), *functions]) + "\n"


def _with_defaults(source: str, tree: ast.Module) -> str:
    """What get_init_inputs returns with the constructor's other defaults written out, where all are plain and one is a
    whole number: sizes that the judge may change, which nothing else says.
    """
    functions = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef)}
    model = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model")
    init = next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    last = functions["get_init_inputs"].body[-1]
    if init is None or not isinstance(last, ast.Return) or not isinstance(last.value, ast.List):
        return source
    given, value = init.args, last.value
    others = given.defaults[max(len(value.elts) - (len(given.args) - 1 - len(given.defaults)), 0) :]
    plain = all(isinstance(d, ast.Constant | ast.UnaryOp) for d in others)
    sized = any(isinstance(d, ast.Constant) and type(d.value) is int for d in others)
    placed = len(value.elts) + len(others) == len(given.args) - 1
    starred = any(isinstance(e, ast.Starred) for e in value.elts)
    if given.vararg or given.posonlyargs or starred or not (plain and sized and placed):
        return source
    lines = source.splitlines(keepends=True)
    row = last.lineno - 1
    if value.end_lineno != value.lineno or not lines[row].isascii():
        return source
    written = f"[{', '.join(map(ast.unparse, [*value.elts, *others]))}]"
    lines[row] = lines[row][: value.col_offset] + written + lines[row][value.end_col_offset :]
    return "".join(lines)
