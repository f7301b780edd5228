"""Completes a user's module or function to a reference in KernelBench form.

Text to text: nothing is run.

    class Block(nn.Module): ...            class Model(nn.Module): ...
    block = Block(64).eval()               def get_inputs():
    y = block(torch.randn(8, 64))              return [torch.randn(8, 64)]
                                           def get_init_inputs():
                                               return [64]

Each missing part of `Model`, `get_inputs` and `get_init_inputs` is read from the file:

- module: the class with a `forward` that the file builds (`block = Block(64)`), otherwise the
  last such class; a callable built and called by a file without classes (built_callables.py);
  otherwise the function that the file calls or tests. It becomes `Model`;
- inputs: a name or function such as `example_inputs`, otherwise the first call (`block(x)`) at
  the top level, in `if __name__ == "__main__"`, in a `test_*` function or in a function without
  parameters, with the statements that create the arguments;
- constructor arguments: those of the call that builds the module. Method calls between building
  and calling (`.eval()`, `.half()`: prepared_modules.py) move into the constructor.

Statements that run the module are removed; line numbers are preserved. The result has the normal
form (normal_form.py).
"""

from __future__ import annotations

import ast
import copy
import re
import textwrap

from kernelwright.agent.problems.forms_of_users.built_callables import (
    built_beside_inputs,
    built_callables,
    constructor_of,
    model_of,
)
from kernelwright.agent.problems.forms_of_users.file_parts import (
    CallSite,
    FileParts,
    indented_statements,
    parts_of,
    statements_for,
)
from kernelwright.agent.problems.forms_of_users.function_models import (
    is_operator,
    model_of_function,
)
from kernelwright.agent.problems.forms_of_users.given_arguments import CALL_ARGUMENTS
from kernelwright.agent.problems.forms_of_users.import_time_code import (
    reads_command_line,
    without_exits,
    without_runs,
)
from kernelwright.agent.problems.forms_of_users.normal_form import normal_form
from kernelwright.agent.problems.forms_of_users.prepared_modules import (
    preparations,
    with_preparations,
)
from kernelwright.agent.problems.forms_of_users.required_names import (
    REQUIRED_NAMES,
    with_definitions,
)
from kernelwright.agent.problems.forms_of_users.signatures import inherited_method, signature_of
from kernelwright.agent.problems.forms_of_users.text_edits import (
    joined,
    line_mark,
    renamed,
    with_origins,
)
from kernelwright.agent.problems.syntax_search import argument_values, names_loaded_by_all
from kernelwright.agent.problems.tritonbench_cases import (
    OffDevice,
    names_loaded_by,
    names_stored_by,
)
from kernelwright.bindings import bound_names
from kernelwright.source_lines import origin_of_line
from kernelwright.tools.problem import ProblemError, parse

INPUT_FUNCTION_NAME = re.compile(
    r"(get_|make_|create_)?(example|sample|dummy|test)?_?(inputs?|args|data)$", re.IGNORECASE
)
"""Names of inputs and of functions creating inputs."""


def complete_reference(source: str, entry: str = "", run: str = "") -> str:
    """Returns the reference for a text in normal form, or the unchanged text if completion is
    impossible.

    entry: class, function or value to use, if the text has several. run: statements that build
    and call the entry, replacing those of the text. Raises ProblemError if the text is not
    Python.
    """
    # A text with ModelNew is a candidate, not a reference.
    if not entry and "ModelNew" in bound_names(parse(source)):
        return source
    source = with_definitions(source)
    names = {n.name for n in parse(source).body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    if not entry and all(name in names for name in REQUIRED_NAMES):
        return normal_form(without_exits(source))
    source = without_exits(source)
    tree = parse(source)
    parts = parts_of(tree)
    if run:
        parts.runs = [indented_statements(run)]
    text = _Completion(source, parts, names, entry).text()
    return normal_form(with_origins(text, source)) if text is not None and _parses(text) else source


def is_problem(source: str) -> bool:
    """Returns whether a text is a reference or can be completed to a reference."""
    try:
        tree = parse(complete_reference(source))
    except ProblemError:
        return True
    return "Model" in bound_names(tree)


def _parses(text: str) -> bool:
    try:
        parse(text)
    except ProblemError:
        return False
    return True


class _Completion:
    """Completes the text of a file."""

    def __init__(self, source: str, parts: FileParts, names: set[str], entry: str) -> None:
        self._source = source
        self._parts = parts
        self._names = names
        self._entry = entry

    def text(self) -> str | None:
        """Returns the text with all three names, not yet in normal form; None if the file has too
        little information.
        """
        parts, entry = self._parts, self._entry
        if entry in parts.modules:
            return self._of_module()
        if entry in parts.functions:
            return self._of_function({entry: parts.functions[entry]})
        if (text := self._of_built_callable()) is not None or entry:
            return text
        if parts.modules:
            return self._of_module()
        operators: dict[str, ast.FunctionDef] = {}
        for name, function in parts.functions.items():
            if is_operator(name) and not is_input_name(name):
                operators[name] = function
        return self._of_function(operators)

    # ------------------------------------------------------------ a class of the file
    def _of_module(self) -> str | None:
        parts, names = self._parts, self._names
        builds = list(parts.calls(parts.modules))
        chosen = self._entry or ("Model" if "Model" in parts.modules else "")
        if not chosen:
            chosen = ast.unparse(builds[0].node.func) if builds else list(parts.modules)[-1]
        module = parts.modules[chosen]
        chosen_builds = [build for build in builds if ast.unparse(build.node.func) == chosen]
        functions: list[str | None] = []
        if "get_init_inputs" not in names:
            functions.append(self._init_inputs(module, chosen_builds[0] if chosen_builds else None))
        if "get_inputs" not in names:
            functions.append(self._named_inputs() or self._called_inputs(chosen_builds))
        if any(function is None for function in functions):
            return None
        text = without_runs(self._source, set(parts.modules))
        if chosen_builds:
            text = with_preparations(
                text, chosen, preparations(chosen_builds[0].run, chosen_builds[0].node)
            )
        if chosen != "Model":
            if "Model" in names:
                text = renamed(text, "Model", "OtherModel")
            text = renamed(text, chosen, "Model")
        return joined(text, [function for function in functions if function])

    def _init_inputs(self, module: ast.ClassDef, build: CallSite | None) -> str | None:
        """Returns the source of get_init_inputs; None if the constructor needs arguments and the
        file shows none.
        """
        if build is None:
            init = inherited_method(self._parts.tree, module, "__init__")
            signature = None if init is None else signature_of(init)
            fits = signature is None or signature.accepts(0, [])
            return "def get_init_inputs():\n    return []" if fits else None
        return _function_of_call("get_init_inputs", build.node, build.before)

    def _called_inputs(self, builds: list[CallSite]) -> str | None:
        """Returns get_inputs for the first call of a module built by these calls."""
        instances: set[str] = set()
        for build in builds:
            for statement in build.run:
                if build.node in ast.walk(statement):
                    instances |= names_stored_by(statement)
        build_nodes = [build.node for build in builds]
        for call in self._parts.calls(self._parts.aliases(instances), build_nodes):
            if call.node.args or call.node.keywords:
                before = [s for s in call.before if not names_stored_by(s) & instances]
                return _function_of_call("get_inputs", call.node, before)
        return None

    def _named_inputs(self) -> str | None:
        """Returns get_inputs for a function or value with the name of inputs."""
        for name, function in self._parts.functions.items():
            is_input = is_input_name(name) and not reads_command_line(function)
            if is_input and signature_of(function, bound=False).accepts(0, []):
                return f"def get_inputs():\n    return {name}()"
        for run in self._parts.runs:
            for index, statement in enumerate(run):
                if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                    value = OffDevice().visit(copy.deepcopy(statement.value))
                    is_input = is_input_name(statement.targets[0].id)
                    is_written = isinstance(value, ast.Tuple | ast.List | ast.Call | ast.Dict)
                    if is_input and is_written and not self._is_of_command_line(value):
                        lines = statements_for(run[:index], names_loaded_by(value))
                        lines += [line_mark(statement), f"return {ast.unparse(value)}"]
                        return "def get_inputs():\n" + textwrap.indent("\n".join(lines), "    ")
        return None

    def _is_of_command_line(self, value: ast.expr) -> bool:
        """Returns whether an expression reads command-line arguments, directly or in a called
        function of the file.
        """
        called = [self._parts.functions.get(name) for name in names_loaded_by(value)]
        return any(reads_command_line(node) for node in (value, *called) if node is not None)

    # ------------------------------------------------------------ a value that the file builds
    def _of_built_callable(self) -> str | None:
        parts, entry = self._parts, self._entry
        has_required_name = bool(self._names & set(REQUIRED_NAMES))
        calls_instance = next(parts.calls(self._instances()), None) is not None
        if not entry and (has_required_name or calls_instance):
            return None
        callables = list(built_callables(parts))
        if not parts.modules and not has_required_name:
            uncalled = built_beside_inputs(parts, is_input_name)
            callables += [uncalled] if uncalled else []
        for built in callables:
            if entry and entry not in (built.name, ast.unparse(constructor_of(built.value))):
                continue
            before = [s for s in built.call.before if built.name not in names_stored_by(s)]
            inputs = _function_of_call("get_inputs", built.call.node, before)
            text = without_runs(self._source, {*parts.modules, built.name})
            return joined(with_torch(text), [*model_of(built, parts.tree), inputs])
        return None

    def _instances(self) -> set[str]:
        """Returns the names to which the file assigns instances of its own classes."""
        names: set[str] = set()
        for run in self._parts.runs:
            for statement in run:
                if isinstance(statement, ast.Assign):
                    constructor = ast.unparse(constructor_of(statement.value))
                    if constructor in self._parts.modules:
                        names |= names_stored_by(statement)
        return names

    # ------------------------------------------------------------ a function of the file
    def _of_function(self, functions: dict[str, ast.FunctionDef]) -> str | None:
        """Returns the text with a function as the forward of a module without weights."""
        if not functions or (not self._entry and "Model" in self._names):
            return None
        named = None if "get_inputs" in self._names else self._named_inputs()
        has_inputs = "get_inputs" in self._names or named is not None
        definitions = model_of_function(functions, self._parts, has_inputs)
        if definitions is None:
            return None
        text = with_torch(without_runs(self._source, set(self._parts.modules)))
        if self._entry and "Model" in self._names:
            text = renamed(text, "Model", "OtherModel")
        if named:
            definitions.append(named)
        return joined(text, [*definitions, "def get_init_inputs():\n    return []"])


def is_input_name(name: str) -> bool:
    """Returns whether a name denotes inputs: `example_inputs`, `dummy_args`."""
    return bool(INPUT_FUNCTION_NAME.match(name))


def with_torch(text: str) -> str:
    """Returns the text with `import torch`, needed by the added class."""
    if re.search(r"^import torch$", text, re.MULTILINE):
        return text
    return f"import torch\n\n\n{origin_of_line(text, 1).directive}\n{text}"


def _function_of_call(name: str, call: ast.Call, before: list[ast.stmt]) -> str:
    """Returns the source of a function that returns the arguments of a call; the normal form
    converts these to a list.
    """
    call = OffDevice().visit(copy.deepcopy(call))
    lines = statements_for(before, names_loaded_by_all(argument_values(call)))
    arguments = ast.Call(ast.Name(CALL_ARGUMENTS, ast.Load()), call.args, call.keywords)
    lines += [line_mark(call), f"return {ast.unparse(arguments)}"]
    return f"def {name}():\n" + textwrap.indent("\n".join(lines), "    ")
