"""Rewrites a call in a TritonBench-T test as a reference in KernelBench form.

Text to text: nothing is run.
"""

from __future__ import annotations

import ast
import copy
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kernelwright.tools.parsing import parse_module

_FENCE = re.compile(r"^#{60,}[ \t]*$", re.MULTILINE)
_RANDOM = frozenset(
    [
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "randint",
        "randperm",
        "bernoulli",
        "multinomial",
        "normal",
        "dropout",
        "binomial",
    ]
)
"""torch functions with random results, which no kernel can reproduce."""

_TRAINS = frozenset(("backward", "optim"))


class NotAProblem(ValueError):
    """Reason why an operator cannot become a problem."""


@dataclass(frozen=True)
class Case:
    """Call of the operator, and the statements of the test before the call."""

    call: ast.Call
    before: tuple[ast.stmt, ...]


def convert(text: str, stem: str, number: int | None = None) -> str:
    """Returns the reference for call `number` (from 1) of the operator's test, by default for the
    first usable call.

    Raises NotAProblem.
    """
    parts = _FENCE.split(text)
    if len(parts) < 2:
        raise NotAProblem("the file has no line of # between the operator and its test")
    operator, test = (_parse_operator_and_test(part) for part in (parts[0], "\n".join(parts[1:])))
    names: dict[str, ast.FunctionDef] = {}
    for node in operator.body:
        if isinstance(node, ast.FunctionDef):
            names[node.name] = node
    cases = list(_cases(test, stem, names))
    if number is not None and number > len(cases):
        raise NotAProblem(f"its test has {len(cases)} calls that stand alone")
    if not cases:
        raise NotAProblem(
            "its test has no call that stands alone: it is inside a loop, a condition or a with"
        )
    reasons: list[str] = []
    for case in cases if number is None else [cases[number - 1]]:
        try:
            return _write_reference(parts[0], _code_around_tests(test, stem), names, case)
        except NotAProblem as error:
            reasons.append(str(error))
    raise NotAProblem(reasons[0])


def _parse_operator_and_test(text: str) -> ast.Module:
    try:
        return parse_module(text)
    except SyntaxError as error:
        raise NotAProblem(f"its file is not Python at line {error.lineno}: {error.msg}") from None


def _cases(test: ast.Module, stem: str, names: dict[str, ast.FunctionDef]) -> Iterator[Case]:
    """Yields the calls of the operator in simple statements of `test_*` functions."""
    called = {stem} if stem in names else set(names)
    for function in test.body:
        if not isinstance(function, ast.FunctionDef) or not function.name.startswith("test"):
            continue
        body = [OffDevice().visit(copy.deepcopy(statement)) for statement in function.body]
        for index, statement in enumerate(body):
            if isinstance(statement, ast.Assign | ast.Expr | ast.AnnAssign):
                for call in _calls(statement, called):
                    yield Case(call, tuple(body[:index]))


def _calls(statement: ast.stmt, called: set[str]) -> list[ast.Call]:
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call)]
    return [c for c in calls if isinstance(c.func, ast.Name) and c.func.id in called]


def _code_around_tests(test: ast.Module, stem: str) -> list[ast.stmt]:
    """Returns the code required by tests (imports, constants, classes), without tests and imports
    of the operator.
    """
    needed_nodes = []
    for node in test.body:
        is_test = isinstance(node, ast.FunctionDef) and node.name.startswith("test")
        runs_test = any(
            isinstance(n, ast.Name) and n.id.startswith("test_") for n in ast.walk(node)
        )
        of_operator = isinstance(node, ast.ImportFrom) and node.module == stem
        if not (is_test or runs_test or of_operator or isinstance(node, ast.Expr)):
            needed_nodes.append(node)
    return needed_nodes


class OffDevice(ast.NodeTransformer):
    """Removes devices from a test, because the judge chooses the device."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Removes `device=`, `.to(device)`, `.cuda()` and `.cpu()` from a call."""
        self.generic_visit(node)
        node.keywords = [k for k in node.keywords if k.arg != "device"]
        if isinstance(node.func, ast.Attribute):
            moved = (
                node.func.attr == "to"
                and len(node.args) == 1
                and not node.keywords
                and _is_device(node.args[0])
            )
            if moved or (node.func.attr in ("cuda", "cpu") and not node.args):
                return node.func.value
        return node


def _is_device(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str)
    return isinstance(node, ast.Name) and node.id == "device"


def _write_reference(
    operator: str, around: list[ast.stmt], names: dict[str, ast.FunctionDef], case: Case
) -> str:
    """Returns the complete reference text."""
    function = names[case.call.func.id] if isinstance(case.call.func, ast.Name) else None
    assert function is not None
    if random_calls := _random_calls(list(names.values())):
        names_of_calls = ", ".join(sorted(random_calls))
        raise NotAProblem(
            f"the operator draws random numbers ({names_of_calls}): no kernel can be held to its answer"
        )
    if _attributes(names.values()) & _TRAINS:
        raise NotAProblem("the operator trains: it needs gradients, which a reference is not given")
    has_star = any(isinstance(argument, ast.Starred) for argument in case.call.args)
    has_double_star = any(keyword.arg is None for keyword in case.call.keywords)
    if has_star or has_double_star:
        raise NotAProblem("its test passes arguments as *args or **kwargs")
    inputs, call = arguments_of(case, function)
    names_of_inputs: set[str] = set()
    for value in inputs.values():
        names_of_inputs |= names_loaded_by(value)
    needed = statements_needed(case.before, names_of_inputs)
    drawn = [ast.unparse(ast.fix_missing_locations(statement)) for statement in needed]
    drawn.append(f"return [{', '.join(map(ast.unparse, inputs.values()))}]")
    pieces = [
        operator.strip(),
        "\n".join(ast.unparse(n) for n in around),
        f"class Model(torch.nn.Module):\n    def forward(self, {', '.join(inputs)}):\n        return "
        f"{ast.unparse(call)}",
        "def get_inputs():\n" + textwrap.indent("\n".join(drawn), "    "),
        "def get_init_inputs():\n    return []",
    ]
    imported = "" if re.search(r"^import torch$", operator, re.MULTILINE) else "import torch"
    return "\n\n\n".join(piece for piece in (imported, *pieces) if piece) + "\n"


def _random_calls(functions: list[ast.FunctionDef]) -> set[str]:
    names: set[str] = set()
    for function in functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Call):
                names.add(getattr(node.func, "attr", getattr(node.func, "id", "")))
    return names & _RANDOM


def _attributes(functions: Iterable[ast.FunctionDef]) -> set[str]:
    names: set[str] = set()
    for function in functions:
        names |= {node.attr for node in ast.walk(function) if isinstance(node, ast.Attribute)}
    return names


def arguments_of(case: Case, function: ast.FunctionDef) -> tuple[dict[str, ast.expr], ast.Call]:
    """Returns the tensor arguments by parameter name, and the call with other arguments written
    out.
    """
    inputs: dict[str, ast.expr] = {}
    parameters = [a.arg for a in (*function.args.posonlyargs, *function.args.args)]
    reserved_names = {function.name, "self", "torch"}

    def passed(name: str, value: ast.expr) -> ast.expr:
        if (plain := plain_argument(value, case.before)) is not None:
            return plain
        if isinstance(value, ast.List | ast.Tuple | ast.Lambda):
            raise NotAProblem(
                f"{name} is a {type(value).__name__.lower()} of tensors or functions, not a tensor"
            )
        input_name = f"{name}_" if name in reserved_names else name
        inputs[input_name] = value
        return ast.Name(input_name, ast.Load())

    names = [*parameters, *(f"argument{i}" for i in range(len(parameters), len(case.call.args)))]
    positional = [passed(name, value) for name, value in zip(names, case.call.args, strict=False)]
    named = [ast.keyword(k.arg, passed(str(k.arg), k.value)) for k in case.call.keywords]
    if any(k.arg == "out" and not isinstance(k.value, ast.Constant) for k in named):
        raise NotAProblem("its test passes out=")
    if not inputs:
        raise NotAProblem("its test passes no tensor")
    return inputs, ast.Call(case.call.func, positional, named)


def plain_argument(value: ast.expr, before: tuple[ast.stmt, ...]) -> ast.expr | None:
    """Returns an argument that is a number, text, dtype or shape, also if assigned to a name;
    None for other arguments.
    """
    if isinstance(value, ast.Name):
        # A name stands for its value if a single statement binds the name and nothing else.
        touching = [statement for statement in before if value.id in names_stored_by(statement)]
        statement = touching[0] if len(touching) == 1 else None
        if isinstance(statement, ast.Assign) and names_stored_by(statement) == {value.id}:
            return plain_argument(statement.value, ())
        return None
    allowed = (
        ast.Constant,
        ast.Tuple,
        ast.List,
        ast.UnaryOp,
        ast.unaryop,
        ast.expr_context,
        ast.Attribute,
        ast.Name,
    )
    size = isinstance(value, ast.Call) and ast.unparse(value.func) == "torch.Size"
    inner = value.args if isinstance(value, ast.Call) and size else [value]
    for part in inner:
        for node in ast.walk(part):
            is_other_name = isinstance(node, ast.Name) and node.id != "torch"
            if is_other_name or not isinstance(node, allowed):
                return None
    return value


_KINDS: dict[type[ast.stmt], str] = {
    ast.ClassDef: "a class",
    ast.FunctionDef: "a function",
    ast.For: "a loop",
    ast.If: "a condition",
}


def statements_needed(before: tuple[ast.stmt, ...], needed: set[str]) -> list[ast.stmt]:
    """Returns the statements on which names depend, in order.

    Raises NotAProblem for loops and conditions among them.
    """
    needed_statements: list[ast.stmt] = []
    # Backwards: each kept statement adds the names that it reads itself.
    for statement in reversed(before):
        if not names_stored_by(statement) & needed:
            continue
        if not isinstance(statement, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr):
            kind = _KINDS.get(type(statement), type(statement).__name__.lower())
            raise NotAProblem(f"its inputs are made by {kind} inside the test")
        needed_statements.append(statement)
        needed = needed | names_loaded_by(statement)
    return needed_statements[::-1]


def names_stored_by(statement: ast.stmt) -> set[str]:
    """Returns names that a statement binds or modifies: assignment, item assignment, or in-place
    method (`x.fill_(0)`).
    """
    names: set[str] = set()
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                names.add(name)
            # x[0] = ..., x.weight = ...
            case ast.Subscript(ctx=ast.Store()) | ast.Attribute(ctx=ast.Store()):
                names |= _root(node)
            # x.fill_(0): torch's methods that write in place end in an underscore.
            case ast.Call(func=ast.Attribute(attr=method) as function) if method.endswith("_"):
                names |= _root(function)
    return names


def _root(node: ast.expr) -> set[str]:
    while isinstance(node, ast.Subscript | ast.Attribute):
        node = node.value
    return {node.id} if isinstance(node, ast.Name) else set()


def names_loaded_by(node: ast.AST) -> set[str]:
    """Returns the names that a syntax tree reads."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
