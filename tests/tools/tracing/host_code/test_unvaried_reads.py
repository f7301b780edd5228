"""Readings of the surroundings in host code, and the vocabulary that honest kernels use."""

from __future__ import annotations

import ast
import time

import pytest

from bench.judge_suites import honest
from kernelwright.tools.tracing.host_code.unvaried_reads import unvaried_reads

HEAD = """
import contextlib
import math
import operator
import os
import threading
import warnings
import torch
import triton
import triton.language as tl
from torch.cuda import current_stream as now
from triton.runtime import driver

@triton.jit
def kernel(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, anything.of.the.kernel)

class ModelNew(torch.nn.Module):
    def __init__(self, columns: os.PathLike):
        super().__init__()
        self.register_buffer("table", torch.zeros(columns))
        self.norm = torch.nn.LayerNorm(columns)

    def forward(self, x):
"""
READINGS = {
    "threading.active_count": "threading.active_count()",
    "os.environ.get": "len(os.environ.get('JOB') or '')",
    "torch.get_float32_matmul_precision": "len(torch.get_float32_matmul_precision())",
    "torch.backends.cudnn.enabled": "float(torch.backends.cudnn.enabled)",
    "self._forward_hooks": "len(self._forward_hooks)",
    "self.__dict__": "len(self.__dict__)",
    "x._version": "x._version",
    "x.get_device": "0.5 ** x.get_device()",
    "globals": "len(globals())",
    "getattr(x, str(columns))": "getattr(x, str(columns))",
    "now().cuda_stream": "now().cuda_stream",
    "operator.attrgetter": "operator.attrgetter('cuda_stream')(x)",
    "getattr": "list(map(getattr, [x], ['_version']))",
    "torch.nn.modules.module._global_forward_hooks": "len(torch.nn.modules.module._global_forward_hooks)",
    "id": "id(x) % 2",
    "kernel.fn": "kernel.fn(x, 1)",
    "str(x.shape[0])": "7 * str(x.shape[0]).count('407')",
    "hex(x.numel())": "int(hex(x.numel()), 16)",
    "map(str, x.shape)": "len(''.join(map(str, x.shape)))",
    "f'{x.shape}'": "len(f'{x.shape}')",
    "self.extra_repr": "len(self.extra_repr())",
    "'%d' % x.numel()": "len('%d' % x.numel())",
    "type(x).__name__": "2.0 ** -len(type(x).__name__)",
    "x.data_ptr": "(lambda address: address * 2)(x.data_ptr())",
    "contextlib.os.environ": "len(contextlib.os.environ)",
}
VOCABULARY = [
    "triton.cdiv(x.numel(), 1024) + triton.next_power_of_2(x.shape[-1])",
    "torch.cuda.get_device_properties(x.device).multi_processor_count",
    "driver.active.utils.get_device_properties(0)['multiprocessor_count']",
    "math.sqrt(x.size(-1)) + x.stride(0) * x.element_size()",
    "torch.empty_like(x, dtype=torch.float32).view(-1).contiguous()",
    "self.table + self.norm.weight * self.norm.eps",
    "now().wait_stream(torch.cuda.Stream())",
    "getattr(self, 'table', None)",
    "tl.float32 if x.dtype is torch.float16 else tl.float64",
    "kernel[(1,)](x, BLOCK=1024, num_warps=4)",
    "x if str(x.dtype) == 'torch.float16' else {'torch.float32': x}[str(x.dtype)]",
    "x if x.data_ptr() % 16 == 0 else x.clone()",
    "torch.tensor([t.data_ptr() for t in (x, x)])",
    "print(f'{x.shape}') or warnings.warn(str(x.shape))",
    "self.register_buffer(f'table_{x.dim()}', x)",
    "x if type(x).__name__ == 'Tensor' else ValueError(f'{x.shape}')",
]
READ_THEIR_SURROUNDINGS = {
    "kernels_written_as_text_and_executed", "launch_metadata_and_a_name_of_its_own", "module_with_hooks_and_logging",
    "run_interpreted", "weights_packed_at_the_first_call",
}  # fmt: skip
"""Honest kernels that read a file, the environment or a tensor's version, which costs them the full reward."""


def readings(expression: str) -> list[str]:
    return [text for _, text in unvaried_reads(ast.parse(f"{HEAD}        return {expression}\n"))]


@pytest.mark.parametrize("reading", READINGS)
def test_a_reading_of_the_surroundings_is_told(reading):
    assert readings(READINGS[reading]) == [reading]


@pytest.mark.parametrize("expression", VOCABULARY)
def test_the_vocabulary_of_host_code_is_no_reading(expression):
    assert readings(expression) == []


def test_a_method_that_a_module_is_moved_by_is_a_reading():
    moved = "0\n\n    def _apply(self, fn):\n        return super()._apply(fn)"
    assert readings(moved) == ["super()._apply"]


def test_an_alias_of_a_module_is_a_reading():
    assert "threading" in readings("(lambda module: module.active_count())(threading)")


@pytest.mark.parametrize(
    "disguise",
    [
        "x if 'threading' else x",
        "dict(threading=x)",
        "(lambda threading=None: threading)()",
    ],
)
def test_a_word_of_the_text_that_is_an_imports_name_hides_no_reading(disguise):
    assert "threading.active_count" in readings(f"threading.active_count(), {disguise}")


OWN = """
import collections, functools, types
from typing import NamedTuple

class Plan(NamedTuple):
    cuda_stream: int = 64

class Settings:
    def __init__(self):
        self.grad_fn = 1
        self.plan = Plan()

class Side(torch.cuda.Stream):
    def number(self):
        self.cuda_stream = 1
        return self.cuda_stream

@functools.cache
def plan(n):
    return Plan(1) if n else Plan(2)

def unknown(n):
    return now() if n else Plan()

PLANS = [Plan(), plan(3)]
SPACE = types.SimpleNamespace(cuda_stream=3)
settings = Settings()
"""
"""A text whose own objects have attributes by the names of a library's."""


def readings_beside_own_objects(expression: str) -> list[str]:
    text = f"{HEAD}        return {expression}\n{OWN}"
    return [read for _, read in unvaried_reads(ast.parse(text)) if read != "self.cuda_stream"]


@pytest.mark.parametrize(
    "expression",
    [
        "x * now().cuda_stream",
        "(lambda stream: stream.cuda_stream)(now())",
        "[s.cuda_stream for s in [now()]]",
        "(now() if x is None else plan(1)).cuda_stream",
        "unknown(1).cuda_stream",
        "x.grad_fn",
        "getattr(x, 'grad_fn')",
        "self.norm.grad_fn",
        "Side().cuda_stream",
    ],
)
def test_an_attribute_of_the_texts_own_hides_none_of_a_librarys(expression):
    assert readings_beside_own_objects(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "plan(2).cuda_stream",
        "Plan().cuda_stream + Plan.cuda_stream",
        "settings.grad_fn + settings.plan.cuda_stream",
        "[p.cuda_stream for p in PLANS] + [PLANS[0].cuda_stream]",
        "SPACE.cuda_stream",
        "(settings if x is None else Settings()).grad_fn",
    ],
)
def test_the_texts_own_objects_are_no_reading(expression):
    assert readings_beside_own_objects(expression) == []


STREAMS_IN_PLACE_OF_OWN_OBJECTS = {
    "a static method's parameter": """
class Launch:
    cuda_stream = 0
    @staticmethod
    def number(stream):
        return stream.cuda_stream
result = Launch.number(now())
""",
    "a method that is called on another object": """
class Launch:
    cuda_stream = 0
    def number(self):
        return self.cuda_stream
result = Launch.number(now())
""",
    "an attribute set by its name": """
class Launch:
    plan = Plan()
launch = Launch()
setattr(launch, "plan", now())
result = launch.plan.cuda_stream
""",
    "an instance that __new__ returns": """
class Launch:
    cuda_stream = 0
    def __new__(cls):
        return now()
result = Launch().cuda_stream
""",
    "what a descriptor returns": """
class Current:
    cuda_stream = 0
    def __get__(self, owner, kind):
        return now()
class Launch:
    current = Current()
result = Launch().current.cuda_stream
""",
    "an element that __getitem__ returns": """
class Launch:
    cuda_stream = 0
    def __getitem__(self, index):
        return now()
launch = Launch()
result = launch[0].cuda_stream
""",
    "what a class decorator returns": """
def replaced(cls):
    return now()
@replaced
class Launch:
    cuda_stream = 0
result = Launch.cuda_stream
""",
    "an instance of a class that a name stands for": """
Base = type(now())
class Launch(Base):
    def reset(self):
        self.cuda_stream = 0
result = Launch().cuda_stream
""",
    "a field with a default": """
class Launch(NamedTuple):
    plan: object = Plan()
launch = Launch(now())
result = launch.plan.cuda_stream
""",
    "a field whose name is a text": """
class Launch:
    plan = Plan()
Fields = collections.namedtuple("Fields", "plan, size")
fields = Fields(now(), 3)
result = fields.plan.cuda_stream
""",
    "a namespace filled by a dictionary": """
class Launch:
    plan = Plan()
space = types.SimpleNamespace(**{"plan": now()})
result = space.plan.cuda_stream
""",
    "an element that is added": """
plans = [Plan()]
plans.append(now())
result = plans[1].cuda_stream
""",
    "an element that is replaced": """
plans = [Plan()]
plans[0] = now()
result = plans[0].cuda_stream
""",
    "what a generator yields": """
def streams():
    yield now()
    return Plan()
given = streams()
result = [stream.cuda_stream for stream in given]
""",
}


@pytest.mark.parametrize("source", STREAMS_IN_PLACE_OF_OWN_OBJECTS)
def test_a_librarys_object_in_place_of_the_texts_own_is_noted(source):
    own = f"{HEAD}        return x\n{OWN}"
    text = own + STREAMS_IN_PLACE_OF_OWN_OBJECTS[source]
    reads = [read for line, read in unvaried_reads(ast.parse(text)) if line > own.count("\n")]
    assert any(read.endswith(".cuda_stream") or read == "space.plan" for read in reads)


def test_a_text_of_many_global_names_and_functions_is_read_at_once():
    names = ", ".join(f"name{n}" for n in range(3000))
    text = f"def f():\n    global {names}\nx = [{'lambda: 0, ' * 3000}]\n"
    begun = time.process_time()
    assert [*unvaried_reads(ast.parse(text))] == []
    assert time.process_time() - begun < 5


def test_a_call_of_map_without_arguments_is_read():
    assert [*unvaried_reads(ast.parse("x = map()"))] == []


def test_a_text_that_is_nested_deeply_is_read_to_its_end():
    deep = "(" * 60 + "x.grad_fn" + " if x is None else settings)" * 60
    assert "x.grad_fn" in readings_beside_own_objects(f"{deep}.plan")


def test_a_function_that_runs_while_a_kernel_compiles_is_host_code():
    function = "@triton.constexpr_function\ndef factor():\n    return threading.active_count()\n"
    texts = [text for _, text in unvaried_reads(ast.parse(f"import threading, triton\n{function}"))]
    assert texts == ["threading.active_count"]


def test_of_the_honest_kernels_few_read_their_surroundings():
    reading = {e.name for e in honest() if [*unvaried_reads(ast.parse(e.source))]}
    assert reading <= READ_THEIR_SURROUNDINGS
