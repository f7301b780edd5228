"""Texts as kernels: what is refused, with which fault and in what time, and what a rebuilt function is."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kernelwright.tools.compiling.text.kernel_text import Rebuilt, check, rebuild, value
from kernelwright.tools.compiling.text.nan_handling import treats_nan
from kernelwright.tools.report import Cheat, Failed, Failure, Fault
from kernelwright.tools.trace.trace import Function, Json

NAMES: dict[str, Json] = {"tl": {"triton": "triton.language"}, "triton": {"triton": "triton"}}
SECONDS = 3.0
"""Of the processor, that a verdict on a hostile text may take."""


def function(
    body: str, parameters: str = "x, y, BLOCK: tl.constexpr", names: dict[str, Json] | None = None
) -> Function:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return Function(
        name="kernel",
        text=f"def kernel({parameters}):\n{lines}\n",
        names=names or NAMES,
        line=11,
        indent=4,
    )


def refusal(body: str, names: dict[str, Json] | None = None) -> Failure:
    begun = time.thread_time()
    failure = check(function(body, names=names))
    assert time.thread_time() - begun < SECONDS
    assert failure is not None
    assert failure.message.startswith("kernel kernel does not compile: ")
    assert "\n" not in failure.message
    assert len(failure.message) <= 700
    return failure


REACHES_OUT = {
    "typing behind tl.core": "tl.core.typing.sys.exit()",
    "builtins behind tl.core": "tl.core.builtins.exec('x')",
    "builtins behind tl.math": "tl.math.core.builtins.eval('1')",
    "inspect": "tl.core.inspect.currentframe()",
    "semantics": "tl.semantic.TritonSemantic(x)",
    "knobs": "triton.knobs.runtime",
    "the compiler": "triton.compile(x)",
    "triton.runtime": "triton.runtime.driver",
    "jit": "triton.jit(x)",
    "a type's evaluation": "tl.str_to_ty('tensordesc<fp16[16],f()>', None)",
    "the array of a tensor": "x.handle.data",
    "the array of a loaded tensor": "tl.load(x).handle",
    "a private attribute": "x._flatten_ir([])",
    "a private function": "tl.core._unwrap_if_constexpr(x)",
    "a class by its dunder": "x.__class__",
    "subclasses": "().__class__.__base__.__subclasses__()",
    "globals by name": "__builtins__",
    "import by name": "__import__('os')",
    "a function's function": "helper.fn.__globals__",
    "a builtin's source": "tl.load.__globals__",
    "the interpreter": "interpreter_semantic.builder",
    "an attribute by text": "getattr(x, '__class__')",
    "a module by text": "getattr(tl.core, 'inspect')",
    "a handle by text": "getattr(x, 'handle', None)",
    "whether there is a handle": "hasattr(x, 'handle')",
    "semantics as an argument": "tl.load(x, _semantic=y)",
    "attributes in a formatted text": "tl.static_assert(BLOCK > 0, f'{x.__class__}')",
    "a handle in a comprehension": "y = [a.handle for a in (x, y)]",
    "a handle in a default slice": "y[x.handle:]",
}  # fmt: skip


@pytest.mark.parametrize("body", REACHES_OUT.values(), ids=REACHES_OUT)
def test_what_reaches_out_of_tritons_language_is_tampering(body: str) -> None:
    failure = refusal(f"a = tl.arange(0, BLOCK)\n{body}")
    assert (failure.fault, failure.cheat) == (Fault.CHEAT, Cheat.TAMPER)
    assert failure.where is not None
    assert failure.where.line == 13


NO_KERNELS = {
    "import": "import os",
    "from import": "from os import path",
    "lambda": "y = (lambda: 1)()",
    "class": "class A:\n    pass",
    "nested function": "def inner(a):\n    return a",
    "async function": "async def inner(a):\n    return a",
    "global": "global tl",
    "nonlocal": "nonlocal tl",
    "try": "try:\n    pass\nexcept Exception:\n    pass",
    "with": "with x as y:\n    pass",
    "del": "del x",
    "yield": "yield x",
    "await": "await x",
    "match": "match x:\n    case object(handle=h):\n        pass",
    "dict": "y = {1: 2}",
    "set": "y = {1, 2}",
    "generator": "y = list(a for a in (1, 2))",
    "dict comprehension": "y = {a: a for a in (1, 2)}",
    "break": "for i in range(3):\n    break",
    "bytes": "y = b'1'",
    "complex": "y = 1j",
    "format": "y = '{0.a}'.format(x)",
    "join": "y = ','.join(x)",
    "list methods": "list(x).append(y)",
    "an attribute set": "x.dtype = y",
    "an attribute annotated": "x.dtype: tl.constexpr = y",
    "an attribute as a target": "for x.dtype in range(3):\n    pass",
    "an item set": "x[0] = y",
    "an item in a tuple set": "a, x[0] = y, y",
    "getattr as a value": "f = getattr",
    "getattr by a variable": "y = getattr(x, BLOCK)",
    "keywords from a dict": "tl.load(x, **y)",
    "an unknown method": "x.softmin()",
    "a huge integer": f"y = 0x{'f' * 6000}",
    "a huge decimal": f"y = {'9' * 6000}",
    "a long word": f"{'a' * 20_000} = 1",
    "a long attribute": f"y = x.{'a' * 20_000}",
    "nested lists": f"y = {'[' * 400}{']' * 400}",
    "nested more than Python parses": f"y = {'(' * 4000}{')' * 4000}",
    "a chain of minus": f"y = {'-' * 5000}x",
    "a sum of 2,000 terms": f"y = {' + '.join(['x'] * 2000)}",
    "a sum of 50,000 terms": f"y = {' + '.join(['1'] * 50_000)}",
    "a chain of attributes": f"y = x{'.T' * 3000}",
    "a chain of calls": f"y = x{'()' * 3000}",
    "20,000 statements": "y = 1\n" * 19_000,
    "a null byte": "y = '\0'",
    "nothing whole": "y = (1",
    "two definitions": "pass\ndef other():\n    pass",
}  # fmt: skip


@pytest.mark.parametrize("body", NO_KERNELS.values(), ids=NO_KERNELS)
def test_what_is_no_kernels_language_does_not_compile(body: str) -> None:
    assert refusal(body).fault is Fault.COMPILE


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("@triton.jit\ndef kernel(x):\n    pass\n", Fault.CHEAT),
        ("def other(x):\n    pass\n", Fault.CHEAT),
        ("x = 1\n", Fault.CHEAT),
        ("", Fault.CHEAT),
        ("def kernel(x):\n    pass\nkernel = 1\n", Fault.CHEAT),
        ("def kernel(x, /):\n    pass\n", Fault.COMPILE),
        ("def kernel(**x):\n    pass\n", Fault.COMPILE),
        ("def kernel(x=lambda: 1):\n    pass\n", Fault.COMPILE),
        ("def kernel(__x):\n    pass\n", Fault.CHEAT),
        ("def kernel(x=().__class__):\n    pass\n", Fault.CHEAT),
        ("def kernel(x=tl.core.inspect):\n    pass\n", Fault.CHEAT),
    ],
)
def test_a_text_is_one_bare_function_of_its_name(text: str, fault: Fault) -> None:
    failure = check(Function(name="kernel", text=text, names=NAMES))
    assert failure is not None
    assert failure.fault is fault


@pytest.mark.parametrize(
    "names",
    [
        {"m": {"triton": "os"}},
        {"m": {"triton": "triton.runtime.driver"}},
        {"m": {"triton": "triton.language:core.inspect"}},
        {"m": {"triton": "triton.language:core.builtins.exec"}},
        {"m": {"triton": "triton.language.core:_unwrap_if_constexpr"}},
        {"m": {"triton": "triton.language.core:tensor.handle"}},
        {"m": {"triton": "triton.language.core:is_builtin.__globals__"}},
        {"__builtins__": {"value": 1}},
        {"interpreter_semantic": {"value": 1}},
        {"m": {"members": {"__class__": {"value": 1}}}},
        {"m": {"members": {"a": {"triton": "sys"}}}},
        {"m": {"nothing": 1}},
        {"m": 1},
        {"a b": {"value": 1}},
    ],
)  # fmt: skip
def test_names_stand_only_for_what_a_kernel_may_name(names: dict[str, Json]) -> None:
    failure = check(function("pass", names=NAMES | names))
    assert failure is not None
    assert failure.fault is Fault.CHEAT


HONEST = (
    "if BLOCK > 2:\n    tl.of_another_version(x).to(x.dtype)\nelse:\n    raise ValueError('unknown')",
    "a = tl.core.get_int_dtype(16, True)\nb = tl.reduce(x, 0, tl.standard._sum_combine)",
    "a = tl.math.exp(x) + tl.extra.cuda.libdevice.tanh(y)",
    "a = tl.core.load(x)",
    "a = tl.load(x).to(y.dtype.element_ty)",
    "a = getattr(x, 'dtype')",
    "a = hasattr(tl, 'make_tensor_descriptor')",
    "a = triton.cdiv(BLOCK, 2) + triton.next_power_of_2(BLOCK)",
    "tl.static_assert(BLOCK > 1, f'BLOCK is {BLOCK!r}')",
    "a: tl.constexpr = BLOCK // 2\nb: int = 3\nc: tl.tensor",
    "for i in tl.range(0, BLOCK, num_stages=2):\n    x += i\nelse:\n    pass",
    "for i in tl.static_range(4):\n    x += i",
    "while x < y:\n    x += 1",
    "assert BLOCK > 0, 'message'\nreturn",
    "a, (b, c) = x, (y, BLOCK)\na = [v * 2 for v in (x, y)]",
    "if (n := x + 1) > 2:\n    pass",
    "a = x[:, None] if BLOCK else y[None, :]",
    "a = tl.dot(x, y, input_precision='tf32x3')\na = tl.reduce(a, 0, helper)",
    "a = tl.full((BLOCK,), float('-inf'), dtype=tl.float32)",
    "_private = 1\na = _private",
    "print('x', x)\n'''text'''",
    "a = isinstance(BLOCK, tl.constexpr) and not isinstance(x, tl.tensor)",
)


@pytest.mark.parametrize("body", HONEST)
def test_tritons_language_is_allowed(body: str) -> None:
    assert check(function(body)) is None


def test_a_refusal_points_at_the_candidates_own_line_and_column() -> None:
    failure = check(function("é = 'ä'; y = x.softmin()"))
    assert failure is not None
    assert failure.where is not None
    assert failure.where.line == 12
    assert failure.where.caret().splitlines()[1].index("^") == failure.where.text.index("x.softmin")


def test_fields_of_named_tuples_are_attributes_where_they_are_named() -> None:
    assert check(function("y = x.width")) is not None
    assert check(function("y = x.width + x.count"), fields=("width", "count")) is None


@pytest.mark.parametrize(
    "name", ["handle", "fn", "builtins", "inspect", "format", "to_ir", "data", "src", "semantic"]
)
def test_no_field_opens_what_is_inside_tritons_values(name: str) -> None:
    assert check(function(f"y = x.{name}"), fields=(name,)) is not None


def test_a_function_that_calls_itself_and_one_that_calls_it_are_rebuilt() -> None:
    first = Function(
        name="a",
        text="def a(x):\n    return b(x) + a(x)\n",
        names={"a": {"function": "a"}, "b": {"function": "b"}},
    )
    second = Function(name="b", text="def b(x):\n    return a(x)\n", names={"a": {"function": "a"}})
    rebuilt = Rebuilt({"a": first, "b": second}, interpreted=False, folder=Path("/kernels"))
    assert rebuilt["b"].fn.__globals__["a"] is rebuilt["a"]
    assert rebuilt["a"].fn.__globals__["a"] is rebuilt["a"]


def test_a_function_with_a_broken_callee_fails_each_time_and_the_others_do_not() -> None:
    broken = Function(name="broken", text="def broken(x):\n    import os\n", names={})
    caller = Function(
        name="caller",
        text="def caller(x):\n    broken(x)\n",
        names={"broken": {"function": "broken"}},
    )
    fine = Function(name="fine", text="def fine(x):\n    pass\n", names={})
    rebuilt = Rebuilt(
        {"broken": broken, "caller": caller, "fine": fine},
        interpreted=False,
        folder=Path("/kernels"),
    )
    for _ in range(2):
        with pytest.raises(Failed, match="unsupported AST node type: Import"):
            rebuilt["caller"]
    assert rebuilt["fine"].arg_names == ["x"]


def test_a_rebuilt_function_has_the_candidates_lines_and_only_its_names() -> None:
    import triton.language as tl

    text = (
        "def kernel(x, n=SIZE, act: 'tl.constexpr' = helper, *, scale: float = -2.5, dtype: tl.constexpr = "
        "tl.float32):\n    "
        "pass\n"
    )
    names: dict[str, Json] = {
        "tl": {"triton": "triton.language"}, "SIZE": {"value": 64}, "helper": {"function": "helper"},
        "gone": {"unknown": "dict"},
        "space": {"members": {"A": {"constexpr": 3}}},
    }  # fmt: skip
    helper = Function(name="helper", text="def helper(x):\n    return x\n")
    functions = {
        "kernel": Function(name="kernel", text=text, names=names, line=40, indent=8),
        "helper": helper,
    }
    made = rebuild(functions, "kernel", interpreted=False, folder=Path("/kernels"))
    assert made.starting_line_number == 40
    assert made.fn.__code__.co_firstlineno == 40
    assert made.fn.__code__.co_filename == "/kernels/kernel/candidate.py"
    assert [p.name for p in made.params if p.is_constexpr] == ["act", "dtype"]
    defaults = {p.name: p.default for p in made.params if p.has_default}
    assert defaults["n"] == 64
    assert defaults["act"].__name__ == "helper"
    assert defaults["scale"] == -2.5
    assert defaults["dtype"] is tl.float32
    world = made.fn.__globals__
    assert set(world["__builtins__"]) == {
        "float", "getattr", "hasattr", "int", "isinstance", "len", "list", "max", "min", "print", "range",
    }  # fmt: skip
    assert {n for n in world if not n.startswith("__")} == set(names)
    assert world["space"].A.value == 3


def test_two_functions_of_one_name_are_two_functions() -> None:
    """A factory makes helpers of one name with different constants; Triton itself takes the first for both."""
    text = "def helper(x):\n    return x * SCALE\n"
    helpers = {
        f"helper.{n}": Function(name="helper", text=text, names={"SCALE": {"constexpr": n}})
        for n in (2, 3)
    }
    rebuilt = Rebuilt(helpers, interpreted=False, folder=Path("/kernels"))
    assert len({rebuilt[key].__qualname__ for key in helpers}) == 2


@pytest.mark.parametrize(
    "form",
    [{"tuple": 1}, {"float": "1e999"}, {"float": 1}, {"tl_dtype": "tensor"}, {"dtype": "ops"}, {"dtype": "tensor"},
    {"triton": "os"}, {"function": "gone"},
     {"function": 3}, {"a": 1}, {"t": 3}, {"float": "inf", "tuple": []}, {"pointer_type": "pointer"}],
)  # fmt: skip
def test_what_is_no_constant_raises_value_error(form: Json) -> None:
    with pytest.raises(ValueError, match=r"."):
        value(form, {})


def test_constants_are_restored_as_exactly_plain_types() -> None:
    import torch
    import triton.language as tl

    form = {
        "tuple": [
            1,
            0.5,
            "a",
            None,
            True,
            {"tl_dtype": "fp16"},
            {"tl_dtype": "float32"},
            {"dtype": "bfloat16"},
            [1, 2],
        ]
    }
    assert value(form, {}) == (
        1,
        0.5,
        "a",
        None,
        True,
        tl.float16,
        tl.float32,
        torch.bfloat16,
        (1, 2),
    )
    assert value({"float": "-inf"}, {}) == float("-inf")
    assert str(value({"pointer_type": "fp16"}, {})) == "pointer<fp16>"
    assert value({"constexpr": 4}, {}).value == 4


@pytest.mark.parametrize(
    ("line", "treats"),
    [
        ("tl.where(v >= v, v, 0.0)", True),
        ("tl.where(v + 1 == v + 1, v, 0.0)", True),
        ("tl.where(v < 0, v, tl.where(v > 0, v, 0.0))", True),
        ("tl.where(0.0 > v, v, tl.where(v >= 0.0, v, 0.0))", True),
        ("tl.where(v > 0, v, 0.1 * v)", False),
        ("tl.where(v > 0, root, tl.where(v < 0, -root, 0.0))", False),
        ("tl.where(o < n, v, tl.where(o >= n, v, 0.0))", False),
        ("tl.maximum(v, 0.0)", False),
    ],
)
def test_a_kernel_that_tells_nan_apart_by_comparisons_is_known(line: str, treats: bool) -> None:
    assert treats_nan(f"def kernel(v, o, n, root):\n    return {line}\n") is treats
