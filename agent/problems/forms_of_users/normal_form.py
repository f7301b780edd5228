"""Normal form of a problem: `get_inputs` and `get_init_inputs` return lists of positional
arguments of `Model`. Text to text: nothing is run.

    class Model(nn.Module):                          class Model(nn.Module):
        def __init__(self, width, *, groups=2): ...      def __init__(self, width, groups=2): ...
        def forward(self, x, **options): ...             ...

    def get_init_inputs():                           def get_init_inputs():
        return [[], {"groups": 3, "width": 24}]          return [24, 3]

If a signature has no position for an argument, or an argument is a dataclass or named tuple, a
subclass takes the arguments by position and passes them on. If the form is known only at run
time, `positional_arguments` is added to the text.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelwright.agent.problems.forms_of_users.given_arguments import (
    CALL_ARGUMENTS,
    ArgumentForm,
    CallArguments,
    read_arguments,
)
from kernelwright.agent.problems.forms_of_users.plain_arguments import with_plain_arguments
from kernelwright.agent.problems.forms_of_users.records import FieldsClass, records_of
from kernelwright.agent.problems.forms_of_users.signatures import (
    Signature,
    inherited_method,
    signature_of_method,
    without_keyword_only,
)
from kernelwright.agent.problems.forms_of_users.text_edits import (
    assignments,
    joined,
    renamed,
    with_function,
)
from kernelwright.agent.problems.forms_of_users.written_defaults import with_defaults
from kernelwright.bindings import function_at_top
from kernelwright.tools.parsing import with_replacements
from kernelwright.tools.problem import parse

BASE = "ReferenceModel"
METHODS = {"get_init_inputs": "__init__", "get_inputs": "forward"}
AT_RUN_TIME = '''
def positional_arguments(method, given):
    """Returns the arguments of a method as a list: of a list, a tensor, a dictionary of names, or [args, kwargs]."""
    import inspect

    signature = inspect.signature(method)

    def bound(args, named):
        call = signature.bind(None, *args, **named)
        names = set(call.arguments)
        call.apply_defaults()
        arguments = list(call.args)[1:]
        while len(arguments) > len(args) and list(signature.parameters)[len(arguments)] not in names:
            arguments.pop()
        return arguments

    if isinstance(given, dict):
        return bound([], given)
    if given is None:
        return []
    if isinstance(given, str) or hasattr(given, "shape") or not hasattr(given, "__iter__"):
        return [given]
    arguments = list(given)
    if len(arguments) == 2 and isinstance(arguments[0], (list, tuple)) and isinstance(arguments[1], dict):
        try:
            return bound(*arguments)
        except TypeError:
            pass
    return arguments
'''.strip()  # fmt: skip


@dataclass
class _Adapter:
    """Subclass of the file's `Model` with positional arguments."""

    methods: list[str] = field(default_factory=list)

    def add(self, method: str, parameters: list[str], passed: list[str]) -> None:
        """Adds a method that forwards its parameters as the expressions in `passed`."""
        result = "return " if method != "__init__" else ""
        signature = ", ".join(["self", *parameters])
        self.methods.append(
            f"    def {method}({signature}):\n        {result}super().{method}({', '.join(passed)})"
        )


def normal_form(source: str) -> str:
    """Returns a complete problem text in normal form; unchanged if already normal."""
    adapter = _Adapter()
    needs_run_time = False
    for function in METHODS:
        source = _without_generator(source, function)
        source, at_run_time = _with_list(source, function, adapter)
        needs_run_time = needs_run_time or at_run_time
    if needs_run_time:
        source = joined(source, [AT_RUN_TIME])
    if adapter.methods:
        text = "\n\n".join([f"class Model({BASE}):", *adapter.methods]).replace(":\n\n", ":\n", 1)
        source = joined(renamed(source, "Model", BASE), [text])
    return with_plain_arguments(with_defaults(source))


def _function(tree: ast.Module, name: str) -> ast.FunctionDef:
    function = function_at_top(tree, name)
    assert function is not None
    return function


def _model(tree: ast.Module) -> ast.ClassDef:
    return [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"][-1]


def _returns(function: ast.FunctionDef) -> list[ast.Return]:
    """Returns the return statements of a function, without those of nested functions."""
    returns: list[ast.Return] = []
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Return):
            returns.append(node)
        elif not isinstance(node, ast.FunctionDef | ast.Lambda | ast.ClassDef):
            waiting += ast.iter_child_nodes(node)
    return returns


def _assigned_once(tree: ast.Module, function: ast.FunctionDef) -> dict[str, ast.expr]:
    """Returns the expressions of names assigned exactly once in the function or module, and under
    `name()` the return expressions of functions in the file.
    """
    values: dict[str, ast.expr] = {}
    for other in tree.body:
        if (
            isinstance(other, ast.FunctionDef)
            and len(returns := _returns(other)) == 1
            and returns[0].value
        ):
            values[f"{other.name}()"] = returns[0].value
    # A name counts once: any further assignment makes its value unknown.
    changed: set[str] = set()
    for statement in [*tree.body, *ast.walk(function)]:
        for name, value in assignments(statement):
            if name in values:
                changed.add(name)
            values[name] = value
        if isinstance(statement, ast.AugAssign | ast.For) and isinstance(
            statement.target, ast.Name
        ):
            changed.add(statement.target.id)
    return {name: value for name, value in values.items() if name not in changed}


def _with_list(source: str, name: str, adapter: _Adapter) -> tuple[str, bool]:
    """Rewrites a function to return a list, and returns whether the form must be decided at run
    time.
    """
    tree = parse(source)
    function = _function(tree, name)
    method = METHODS[name]
    signature = signature_of_method(tree, _model(tree), method)
    returns = _returns(function)
    if not returns:
        empty = ast.parse(f"def {name}():\n    return []").body[0]
        assert isinstance(empty, ast.FunctionDef)
        return with_function(source, function, empty), False
    values = _assigned_once(tree, function)
    writer = _ReturnWriter(method, signature, records_of(tree), adapter, values)
    edits: list[tuple[ast.expr | ast.stmt, str]] = []
    for statement in returns:
        edits += writer.edits(function, statement, alone=len(returns) == 1)
    source = with_replacements(source, edits)
    if writer.uses_keyword_only:
        tree = parse(source)
        source = without_keyword_only(source, inherited_method(tree, _model(tree), method))
    return source, writer.at_run_time


@dataclass
class _ReturnWriter:
    """Rewrites return statements to return lists."""

    method: str
    signature: Signature | None
    records: Mapping[str, FieldsClass]
    adapter: _Adapter
    values: Mapping[str, ast.expr]
    at_run_time: bool = False
    uses_keyword_only: bool = False

    def edits(
        self, function: ast.FunctionDef, statement: ast.Return, alone: bool
    ) -> list[tuple[ast.expr | ast.stmt, str]]:
        """Returns the text replacements for a return statement. alone: the function has no other
        return statement.
        """
        value = _without_double_star(statement.value or ast.Constant(value=None))
        edits: list[tuple[ast.expr | ast.stmt, str]] = []
        if alone and (assignment := self._assignment_of(function, value)) is not None:
            value = assignment.value
            edits.append((assignment, ""))
        reading = read_arguments(value, self.values, self.signature)
        if isinstance(reading, ArgumentForm):
            if reading is ArgumentForm.LIST and isinstance(value, ast.List):
                reading = CallArguments(value.elts)
            elif reading is ArgumentForm.LIST:
                return []
            else:
                self.at_run_time = self.uses_keyword_only = True
                return [
                    (
                        statement,
                        f"return positional_arguments(Model.{self.method}, {ast.unparse(value)})",
                    )
                ]
        text = self._list_text(reading, alone)
        is_normal = isinstance(value, ast.List) and text == ast.unparse(value)
        return [] if is_normal else [*edits, (statement, f"return {text}")]

    def _assignment_of(self, function: ast.FunctionDef, value: ast.expr) -> ast.Assign | None:
        """Returns the assignment of a display to the returned name, if nothing else uses the
        name.
        """
        if not isinstance(value, ast.Name):
            return None
        uses = [n for n in ast.walk(function) if isinstance(n, ast.Name) and n.id == value.id]
        if len(uses) != 2:
            return None
        for statement in function.body:
            if not isinstance(statement, ast.Assign) or statement.targets[0] not in uses:
                continue
            if isinstance(statement.value, ast.Dict | ast.Tuple | ast.List):
                return statement
        return None

    def _list_text(self, call: CallArguments, alone: bool) -> str:
        """Returns the text of the list. Arguments without a position are added to the adapter."""
        elements = [*call.args, *call.named.values()]
        is_record = [self._record_of(element) for element in elements]
        ordered = None if self.signature is None else self.signature.in_order(call.args, call.named)
        if self.signature is not None and ordered is not None and not any(is_record):
            self.uses_keyword_only |= bool(call.named) and len(ordered) > len(
                self.signature.positional
            )
            return ast.unparse(ast.List(ordered, ast.Load()))
        is_plain_list = not call.named and not any(is_record)
        if (
            is_plain_list
            or not alone
            or any(isinstance(element, ast.Starred) for element in elements)
        ):
            return ast.unparse(ast.List(elements, ast.Load()))
        names = self._parameters(call)
        keywords = list(call.named)
        passed, texts = [], []
        for index, (element, record) in enumerate(zip(elements, is_record, strict=True)):
            text = record.rebuilt(names[index]) if record else names[index]
            keyword = index - len(call.args)
            passed.append(f"{keywords[keyword]}={text}" if keyword >= 0 else text)
            texts.append(
                record.taken_apart(element, self.values) if record else ast.unparse(element)
            )
        self.adapter.add(self.method, names, passed)
        return f"[{', '.join(texts)}]"

    def _record_of(self, element: ast.expr) -> FieldsClass | None:
        value = self.values.get(element.id) if isinstance(element, ast.Name) else element
        return self.records.get(ast.unparse(value.func)) if isinstance(value, ast.Call) else None

    def _parameters(self, call: CallArguments) -> list[str]:
        """Returns parameter names for a method that takes these arguments by position."""
        parameter_names = self.signature.positional if self.signature else ()
        names: list[str] = []
        for index, element in enumerate(call.args):
            name = element.id if isinstance(element, ast.Name) else f"argument_{index}"
            name = parameter_names[index] if index < len(parameter_names) else name
            names.append(name if name not in (*names, *call.named, "self") else f"argument_{index}")
        return [*names, *call.named]


def _without_double_star(value: ast.expr) -> ast.expr:
    """Returns `[args, kwargs]` for a call with `**kwargs`, whose names are known only at run
    time; other values unchanged.
    """
    if not isinstance(value, ast.Call) or ast.unparse(value.func) != CALL_ARGUMENTS:
        return value
    if all(keyword.arg for keyword in value.keywords):
        return value
    keys: list[ast.expr | None] = [ast.Constant(k.arg) if k.arg else None for k in value.keywords]
    pair: list[ast.expr] = [
        ast.List(value.args, ast.Load()),
        ast.Dict(keys, [k.value for k in value.keywords]),
    ]
    return ast.List(pair, ast.Load())


def _without_generator(source: str, name: str) -> str:
    """Returns the text with generator functions rewritten to collect their values in a list."""
    function = _function(parse(source), name)
    if not any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(function)):
        return source
    collecting = _Collecting().visit(copy.deepcopy(function))
    collecting.body = [*ast.parse("collected_values = []").body, *collecting.body, _collected()]
    return with_function(source, function, collecting)


class _Collecting(ast.NodeTransformer):
    """Rewrites `yield x` to `collected_values.append(x)`."""

    def visit_Yield(self, node: ast.Yield) -> ast.AST:
        """Replaces a yield by an append."""
        return _call_of("append", node.value or ast.Constant(value=None))

    def visit_YieldFrom(self, node: ast.YieldFrom) -> ast.AST:
        """Replaces a `yield from` by an extend."""
        return _call_of("extend", node.value)

    def visit_Return(self, node: ast.Return) -> ast.AST:
        """Returns the values collected so far."""
        return _collected()


def _collected() -> ast.Return:
    return ast.Return(ast.Name("collected_values", ast.Load()))


def _call_of(method: str, value: ast.expr) -> ast.Call:
    function = ast.Attribute(ast.Name("collected_values", ast.Load()), method, ast.Load())
    return ast.Call(function, [value], [])
