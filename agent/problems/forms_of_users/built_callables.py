"""Handles callables that a file builds without a class: `net = nn.Sequential(nn.Linear(8, 4),
nn.GELU())`, instances of imported classes, `functools.partial(function, scale=2)`, and lambdas.

    net = nn.GELU(approximate="tanh")        class Model(nn.GELU):
    net(torch.randn(4, 8))                       def __init__(self, approximate):
                                                     super().__init__(approximate=approximate)
                                                 def forward(self, x):
                                                     return super().forward(x)
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from kernelwright.agent.problems.forms_of_users.file_parts import (
    CallSite,
    FileParts,
    Run,
    statements_for,
)
from kernelwright.agent.problems.forms_of_users.plain_arguments import is_plain
from kernelwright.agent.problems.forms_of_users.prepared_modules import preparations
from kernelwright.agent.problems.forms_of_users.text_edits import line_mark
from kernelwright.agent.problems.syntax_search import argument_values, names_loaded_by_all
from kernelwright.agent.problems.tritonbench_cases import (
    OffDevice,
    names_loaded_by,
    names_stored_by,
)
from kernelwright.tools.reference_integers import assigned_name, integer, one_name_each

LOSS = re.compile(r"Loss$")
"""Constructors of losses, which a file applies to the output of its model."""
CLASS = re.compile(r"(\w+\.)*_*[A-Z]\w*$")
"""Names of classes by convention: capitalised last component."""


@dataclass(frozen=True)
class BuiltCallable:
    """Named callable and its first call."""

    name: str
    value: ast.expr
    run: Run
    before: Run
    """Statements of the run before the callable is built."""
    call: CallSite


def built_callables(parts: FileParts) -> Iterator[BuiltCallable]:
    """Yields callables built and called with arguments in the file, in textual order; losses
    last.
    """
    losses: list[BuiltCallable] = []
    for run in parts.runs:
        for index, statement in enumerate(run):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if not isinstance(statement, ast.Assign) or not isinstance(target, ast.Name):
                continue
            if not isinstance(statement.value, ast.Call | ast.Lambda):
                continue
            call = _first_call(FileParts(parts.tree, [run]), target.id)
            if call is None:
                continue
            built = BuiltCallable(target.id, statement.value, run, run[:index], call)
            if LOSS.search(ast.unparse(constructor_of(statement.value))):
                losses.append(built)
            else:
                yield built
    yield from losses


def _first_call(parts: FileParts, name: str) -> CallSite | None:
    """Returns the first call with arguments of a name or of its aliases."""
    for site in parts.calls(parts.aliases([name])):
        if site.node.args or site.node.keywords:
            return site
    return None


def built_beside_inputs(parts: FileParts, is_input: Callable[[str], bool]) -> BuiltCallable | None:
    """Returns the last uncalled callable of a file, with the named inputs as its call.

    `rms = functools.partial(norm, eps=1e-4)` beside `example_inputs = (x, w)` becomes `rms(x,
    w)`. None if the inputs are not a tuple or list display, or if the file builds no other
    callable.
    """
    for run in parts.runs:
        inputs: CallSite | None = None
        subject: tuple[str, ast.expr, Run] | None = None
        for index, statement in enumerate(run):
            target = statement.targets[0] if isinstance(statement, ast.Assign) else None
            if not isinstance(statement, ast.Assign) or not isinstance(target, ast.Name):
                continue
            value = statement.value
            if is_input(target.id) and isinstance(value, ast.Tuple | ast.List):
                call = ast.copy_location(
                    ast.Call(ast.Name(target.id, ast.Load()), value.elts, []), value
                )
                inputs = CallSite(run, call, run[:index])
            elif _can_be_called(value):
                subject = target.id, value, run[:index]
        if inputs is not None and subject is not None:
            name, value, before = subject
            return BuiltCallable(name, value, run, before, inputs)
    return None


def _can_be_called(value: ast.expr) -> bool:
    """Returns whether an expression creates a callable: a lambda, a partial function, or an
    instance of a class.
    """
    if isinstance(value, ast.Lambda):
        return True
    constructor = ast.unparse(constructor_of(value)) if isinstance(value, ast.Call) else ""
    if LOSS.search(constructor):
        return False
    return constructor.rpartition(".")[2] == "partial" or bool(CLASS.match(constructor))


def constructor_of(value: ast.expr) -> ast.expr:
    """Returns the innermost called function of a chain: `nn.Sequential` for
    `nn.Sequential(...).half().eval()`.
    """
    call = innermost_call(value)
    return value if call is None else call.func


def innermost_call(value: ast.expr) -> ast.Call | None:
    """Returns the call at the start of a chain of method calls; None for other expressions."""
    innermost: ast.Call | None = None
    while isinstance(value, ast.Call):
        innermost = value
        if not isinstance(value.func, ast.Attribute):
            break
        value = value.func.value
    return innermost


def model_of(built: BuiltCallable, tree: ast.Module) -> list[str]:
    """Returns the source of `Model` and `get_init_inputs` for a callable.

    Classes are inherited, so that weights keep their names. Module-level integers among the
    constructor's arguments become parameters of `Model`, which the judge may vary.
    """
    build = innermost_call(built.value)
    forward, passed = _forward_of(built.call.node)
    called = line_mark(built.call.node)
    if build is None or not CLASS.match(ast.unparse(build.func)):
        value = OffDevice().visit(copy.deepcopy(built.value))
        making = statements_for(built.before, names_loaded_by(value))
        making += [line_mark(built.value), f"self.model = {ast.unparse(value)}"]
        sizes = _sizes_in(making, tree)
        body = ["super().__init__()", *making]
        result = [called, f"return self.model({passed})"]
        return [_class("torch.nn.Module", sizes, body, forward, result), _inits(sizes)]
    words = preparations(built.run, build)
    base, result = ast.unparse(build.func), [called, f"return super().forward({passed})"]
    built_at = line_mark(build)
    build = OffDevice().visit(copy.deepcopy(build))
    values = argument_values(build)
    has_star = any(isinstance(argument, ast.Starred) for argument in build.args)
    has_double_star = any(keyword.arg is None for keyword in build.keywords)
    making = statements_for(built.before, names_loaded_by_all(values))
    # Plain arguments become parameters of Model; others must be computed by its constructor.
    is_complex = has_star or has_double_star or not all(is_plain(value, tree) for value in values)
    if is_complex or making:
        arguments = ", ".join([*map(ast.unparse, build.args), *map(ast.unparse, build.keywords)])
        making += [built_at, f"super().__init__({arguments})"]
        sizes = _sizes_in(making, tree)
        return [_class(base, sizes, [*making, *words], forward, result), _inits(sizes)]
    names = [f"argument_{index}" for index in range(len(build.args))]
    keywords = [str(k.arg) for k in build.keywords]
    arguments = ", ".join([*names, *(f"{k}={k}" for k in keywords)])
    body = [built_at, f"super().__init__({arguments})", *words]
    return [
        _class(base, [*names, *keywords], body, forward, result),
        _inits(list(map(ast.unparse, values))),
    ]


def _inits(values: list[str]) -> str:
    return f"def get_init_inputs():\n    return [{', '.join(values)}]"


def _sizes_in(lines: list[str], tree: ast.Module) -> list[str]:
    """Returns the module-level integers that statements read and do not assign."""
    statements = ast.parse("\n".join(lines)).body
    free = names_loaded_by_all(statements)
    for statement in statements:
        free -= names_stored_by(statement)
    sizes: dict[str, None] = {}
    for node in one_name_each(copy.deepcopy(tree)).body:
        name = assigned_name(node)
        if name in free and integer(getattr(node, "value", None)) is not None:
            sizes[name] = None
    return list(sizes)


def _class(
    base: str, parameters: list[str], body: list[str], forward: list[str], result: list[str]
) -> str:
    lines = [
        f"class Model({base}):",
        f"    def __init__({', '.join(['self', *parameters])}):",
        *(f"        {line}" for line in body),
        "",
        f"    def forward({', '.join(['self', *forward])}):",
        *(f"        {line}" for line in result),
    ]
    return "\n".join(lines)


def _forward_of(call: ast.Call) -> tuple[list[str], str]:
    """Returns the parameters of a forward for a call, and the arguments passed on."""
    if any(isinstance(a, ast.Starred) for a in call.args):
        return ["*arguments"], "*arguments"
    keywords = [str(k.arg) for k in call.keywords if k.arg]
    names: list[str] = []
    for index, argument in enumerate(call.args):
        name = numbered = f"input_{index + 1}"
        if isinstance(argument, ast.Name):
            name = argument.id
        elif len(call.args) == 1:
            name = "x"
        names.append(name if name not in (*names, *keywords, "self") else numbered)
    return [*names, *keywords], ", ".join([*names, *(f"{k}={k}" for k in keywords)])
