"""Writes the guard at the end of a kernel file, which checks every call against the contract.

The judged text stays unchanged. The guard replaces constructor and forward of the class in place,
so that `super(ModelNew, self)` and the names of the weights stay valid. The checker
(enforcing.py) is equal in every file; a constructor and a forward with a check for each argument
follow. All names of the guard are local to a function whose name does not occur in the text:

    def _enforce_contract(model):
        ...                                            the checker
        def forward(self, x):
            sizes = dict(self.judged_contract[0])
            x = tensor('x', x, torch.float32, ('rows', 64), sizes)
            return finish(self, judged_forward(self, x), ())
        ...

    _enforce_contract(ModelNew)
"""

from __future__ import annotations

import functools
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelwright.agent.contracts.contract import (
    INT32_ELEMENTS,
    AnyContract,
    Argument,
    Contract,
    FixedContract,
    ItemsContract,
    Mode,
    Output,
    SizeContract,
    TensorContract,
)

GUARD_MARK = "# ---- The contract, checked at every call. The kernel above is as judged. ----"
CHECKS_FILE = Path(__file__).with_name("enforcing.py")
FUNCTION_NAME = "_enforce_contract"
WRAPPED_MODEL = "model."
"""Prefix of all weights if the problem's reference stores the user's module as `model`."""
FORM_OF = """
def form_of(*values):
    leaves = [v for v in torch.utils._pytree.tree_leaves(values) if isinstance(v, torch.Tensor)]
    return tuple((v.dtype, v.dim()) for v in leaves)
""".strip()
LOADING = f"""
def load(self, state, prefix, *rest):  # takes the state dict of the module that the reference holds as its `model`
    for name in self.state_dict():
        if prefix + name.removeprefix("{WRAPPED_MODEL}") in state and prefix + name not in state:
            state[prefix + name] = state.pop(prefix + name.removeprefix("{WRAPPED_MODEL}"))
    judged_load(self, state, prefix, *rest)
judged_load, model._load_from_state_dict = model._load_from_state_dict, load
""".strip()


def with_guard(source: str, contract: Contract) -> str:
    """Appends the guard to a text."""
    # The name must be new in the text, or the guard would replace something of the kernel.
    name = FUNCTION_NAME
    while name in source:
        name += "_"
    return (
        f"{source.rstrip()}\n\n\n{GUARD_MARK}\n{guard_text(contract, name)}\n\n{name}(ModelNew)\n"
    )


def without_guard(source: str) -> str:
    """Removes the guard from the end of a text."""
    before, mark, _ = source.partition(f"\n{GUARD_MARK}\n")
    return before.rstrip() + "\n" if mark else source


def guard_text(contract: Contract, name: str) -> str:
    """Returns the source of the function that adds the checks to a class."""
    methods = [_constructor(contract), *_forwards(contract), _installed(contract)]
    if contract.max_elements != INT32_ELEMENTS:
        methods.insert(0, f"MAX_ELEMENTS = {contract.max_elements}")
    head = f'def {name}(model):\n    """Makes a module check its arguments on the host, without device work."""\n'
    return head + textwrap.indent("\n\n".join([checker_text(), *methods]), "    ") + "\n"


@functools.cache
def checker_text() -> str:
    """Returns the checker: enforcing.py from its imports on, with single instead of double blank
    lines.
    """
    text = CHECKS_FILE.read_text(encoding="utf-8")
    return text.partition('"""\n\n')[2].strip().replace("\n\n\n", "\n\n")


@functools.cache
def _checker_names() -> frozenset[str]:
    return frozenset(
        re.findall(r"^(?:def |class |import )?(\w+)(?=\(|:| = |$)", checker_text(), re.MULTILINE)
    )


def _constructor(contract: Contract) -> str:
    names = _parameter_names(contract.constructor)
    body = ["sizes = {}", *_checks(contract.constructor, names)]
    kinds = [type(argument.contract) for argument in contract.constructor]
    # The constructor may get tensors of another device than those of later calls.
    if TensorContract in kinds or ItemsContract in kinds:
        body.append('sizes.pop("the device", None)')
    body.append(f"judged_init({', '.join(['self', *_passed(contract.constructor, names)])})")
    if contract.mode in (Mode.TRAINING, Mode.EVAL):
        body.append(f"self.train({contract.mode is Mode.TRAINING})")
    body.append(
        'require("forward" not in vars(self), "its constructor replaces forward, which was not judged")'
    )
    if contract.weights:
        body.append(
            'require(torch.get_default_dtype() is torch.float32, "weights were judged in torch.float32 only")'
        )
    body.append("self.judged_contract = sizes, weights_of(self)")
    return _method("__init__", contract.constructor, names, body)


def _forwards(contract: Contract) -> list[str]:
    """Returns the method `forward`; for calls of several forms a method for each, and the choice between them."""
    if not contract.others:
        return [_forward(contract, "forward")]
    methods, forms = [FORM_OF], []
    for number, each in enumerate((contract, *contract.others), 1):
        methods.append(_forward(each, f"forward_{number}"))
        tensors = [tensor for argument in each.inputs for tensor in _tensors(argument.contract)]
        forms.append(
            f"    ({''.join(f'{_form(tensor)}, ' for tensor in tensors)}): forward_{number},"
        )
    body = [
        f"form = form_of({', '.join(_passed(contract.inputs, _parameter_names(contract.inputs)))})",
        'require(form in forms, "no call of these dtypes and ranks was judged:", form)',
        f"return forms[form]({', '.join(['self', *_passed(contract.inputs, _parameter_names(contract.inputs))])})",
    ]
    table = "\n".join(["forms = {", *forms, "}"])
    names = _parameter_names(contract.inputs)
    return [*methods, table, _method("forward", contract.inputs, names, body)]


def _tensors(contract: AnyContract) -> Iterator[TensorContract]:
    if isinstance(contract, TensorContract):
        yield contract
    for item in contract.items if isinstance(contract, ItemsContract) else ():
        yield from _tensors(item)


def _form(tensor: TensorContract) -> str:
    """Returns dtype and rank of a tensor."""
    return f"(torch.{tensor.dtype}, {len(tensor.shape)})"


def _forward(contract: Contract, method: str) -> str:
    names = _parameter_names(contract.inputs)
    empty = f'sizes["may be 0"] = {contract.empty_sizes!r}'
    body = ["sizes = dict(self.judged_contract[0])", *([empty] if contract.empty_sizes else [])]
    body += _checks(contract.inputs, names)
    for relation in contract.relations:
        body.append(
            f"require({with_lookups(relation.text)}, {f'{relation.text} must hold and does not'!r})"
        )
    for name, values in contract.few_values.items():
        words = f"{name} must be {' or '.join(map(str, values))} and is"
        body.append(f"require(sizes[{name!r}] in {values!r}, {words!r}, sizes[{name!r}])")
    if contract.mode in (Mode.TRAINING, Mode.EVAL):
        training = contract.mode is Mode.TRAINING
        words = (
            f"it was judged in {contract.mode} mode only: call .{'train' if training else 'eval'}()"
        )
        body.append(f"require({'' if training else 'not '}self.training, {words!r})")
    if contract.weights:
        cast = f", torch.{contract.cast}" if contract.cast else ""
        body.append(f"check_weights(self, sizes{cast})")
    trained = tuple(index for index, output in enumerate(contract.outputs) if _is_trained(output))
    called = f"judged_forward({', '.join(['self', *_passed(contract.inputs, names)])})"
    body.append(f"return finish(self, {called}, {trained if contract.weights else ()!r})")
    return _method(method, contract.inputs, names, body)


def _is_trained(output: Output) -> bool:
    return output.depends_on_weights and output.dtype.startswith(("float", "bfloat", "complex"))


def _installed(contract: Contract) -> str:
    """Returns the statements that install the new methods."""
    lines = ['entry = "forward" if model.__call__ is torch.nn.Module.__call__ else "__call__"']
    lines.append("judged_init, judged_forward = model.__init__, getattr(model, entry)")
    lines.append("model.__init__, model.OutsideContract = __init__, OutsideContract")
    if contract.mode is Mode.MIXED:
        words = "its layers were judged in different modes: leave out .train() and .eval()"
        lines.append(f"model.train = lambda self, mode=True: require(False, {words!r})")
    lines.append("setattr(model, entry, forward)")
    if contract.weights and all(
        weight.name.startswith(WRAPPED_MODEL) for weight in contract.weights
    ):
        lines.append(LOADING)
    return "\n".join(lines)


def _method(
    name: str, arguments: Sequence[Argument], names: Sequence[str], body: Sequence[str]
) -> str:
    return f"def {name}({', '.join(['self', *_signature(arguments, names)])}):\n" + textwrap.indent(
        "\n".join(body), "    "
    )


def _signature(arguments: Sequence[Argument], names: Sequence[str]) -> Iterator[str]:
    """Yields the parameters with defaults.

    Defaults before a required parameter are dropped, as Python's syntax demands.
    """
    required = [index for index, argument in enumerate(arguments) if argument.default is None]
    last_required = max(required, default=-1)
    for index, (argument, name) in enumerate(zip(arguments, names, strict=True)):
        has_default = argument.default is not None and index > last_required
        yield f"{name}={argument.default}" if has_default else name


def _parameter_names(arguments: Sequence[Argument]) -> list[str]:
    """Returns the argument names, or numbered names if any collides with a name of the guard."""
    names = [argument.name for argument in arguments]
    # Parameters share a scope with the checker's functions and must not hide them.
    reserved = {
        *_checker_names(),
        "sizes",
        "judged_init",
        "judged_forward",
        "self",
        "model",
        "form",
        "forms",
    }
    are_identifiers = all(name.isidentifier() for name in names)
    are_distinct = len(set(names)) == len(names)
    if are_identifiers and are_distinct and not reserved & set(names):
        return names
    return [f"argument_{index}" for index in range(len(names))]


def _passed(arguments: Sequence[Argument], names: Sequence[str]) -> Iterator[str]:
    """Yields the arguments for the judged method, in the order used by the judge."""
    for argument, name in zip(arguments, names, strict=True):
        if argument.passed:
            yield name


def _checks(arguments: Sequence[Argument], names: Sequence[str]) -> list[str]:
    lines: list[str] = []
    for argument, name in zip(arguments, names, strict=True):
        expression = _expression(name, argument.name, argument.contract, lines)
        if expression != name:
            lines.append(f"{name} = {expression}" if argument.passed else expression)
    return lines


def _expression(variable: str, label: str, contract: AnyContract, before: list[str]) -> str:
    """Returns an expression for the checked value; checks that must run earlier are appended to
    `before`.
    """
    match contract:
        case TensorContract():
            return _tensor_expression(variable, label, contract)
        case SizeContract():
            return f"size({label!r}, {variable}, {contract.size!r}, sizes)"
        case FixedContract():
            return f"only({label!r}, {variable}, {contract.literal})"
        case ItemsContract():
            return _items_expression(variable, label, contract, before)
    return variable


def _tensor_expression(variable: str, label: str, contract: TensorContract) -> str:
    options = ""
    if contract.layouts:
        options = f", layouts={contract.layouts!r}"
    elif not contract.is_contiguous:
        options = f", order={contract.order!r}"
    if contract.written:
        options += ", written=True"
    return (
        f"tensor({label!r}, {variable}, torch.{contract.dtype}, {contract.shape!r}, sizes{options})"
    )


def _items_expression(variable: str, label: str, contract: ItemsContract, before: list[str]) -> str:
    if contract.kind == "dict":
        keys = [repr(key) for key in contract.keys]
        words = f"{label} must be a dictionary with the keys {', '.join(contract.keys)}"
        fits = f"isinstance({variable}, dict) and {variable}.keys() == set({contract.keys!r})"
        before.append(f"require({fits}, {words!r})")
    else:
        keys = [str(index) for index in range(len(contract.items))]
        fits = f"isinstance({variable}, (list, tuple)) and len({variable}) == {len(keys)}"
        before.append(f"require({fits}, {f'{label} must be a list or tuple of {len(keys)}'!r})")
    items: list[str] = []
    for key, item in zip(keys, contract.items, strict=True):
        items.append(_expression(f"{variable}[{key}]", f"{label}[{key}]", item, before))
    listed = ", ".join(items)
    match contract.kind:
        case "dict":
            entries = [f"{key}: {item}" for key, item in zip(keys, items, strict=True)]
            return "{" + ", ".join(entries) + "}"
        case "list":
            return f"[{listed}]"
    return f"({listed},)" if items else "()"


def with_lookups(relation: str) -> str:
    """Replaces names by lookups: `width == 2 * hidden` becomes `sizes["width"] == 2 *
    sizes["hidden"]`.
    """
    return re.sub(r"[A-Za-z_]\w*", lambda name: f'sizes["{name[0]}"]', relation)
