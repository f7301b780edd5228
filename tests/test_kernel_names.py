"""What an interpreted kernel may name."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest
import torch
import triton
import triton.language as tl

from tools.untrusted.kernel_names import foreign_arguments, foreign_names, lend, remember

WIDTH = tl.constexpr(4)


@triton.jit
def doubled(x):
    return x + x


def honest(x: Any, out: Any, total: Any, BLOCK: tl.constexpr) -> None:
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(min(WIDTH, 4)):
        values = doubled(tl.load(x + offsets, mask=offsets < total)) * math.pi
        tl.store(out + offsets, triton.language.exp(values).to(tl.float32), mask=offsets < total)


def work() -> None: ...


def calls_python(x: Any) -> None:
    work()


def calls_numpy(x: Any) -> None:
    tl.store(x, numpy.exp(1.0))


def calls_torch(x: Any) -> None:
    tl.store(x, torch.ones(1))


def looks_inside(x: Any) -> None:
    tl.load(x).handle.data[...] = 0


def evaluates(x: Any) -> None:
    eval("1")


def imports(x: Any) -> None:
    import os

    os.getpid()


def walks_globals(x: Any) -> None:
    tl.load.__globals__["os"]


def disguised(x: Any) -> None:
    tl.mine()  # type: ignore[attr-defined]


def test_an_honest_kernel_names_nothing_foreign() -> None:
    remember()
    assert foreign_names(honest) == []


def test_python_and_libraries_inside_a_kernel_are_named() -> None:
    assert foreign_names(calls_python) == ["work"]
    assert foreign_names(calls_numpy) == ["numpy"]
    assert foreign_names(calls_torch) == ["torch"]
    assert foreign_names(evaluates) == ["eval"]
    assert foreign_names(imports) == ["import os"]


def test_ways_to_the_interpreters_own_objects_are_named() -> None:
    assert foreign_names(looks_inside) == [".handle"]
    assert foreign_names(walks_globals) == [".__globals__"]


def test_functions_among_the_arguments_are_named() -> None:
    assert foreign_arguments((1, torch.empty(1), tl.float32, doubled, work)) == ["function"]


def test_a_function_put_into_tritons_namespace_is_still_foreign(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work, "__module__", "triton.language.core")
    monkeypatch.setattr(tl, "mine", work, raising=False)
    assert foreign_names(disguised) == ["tl.mine"]


def borrowed(x: Any) -> Any:
    return x


def calls_borrowed(x: Any) -> None:
    borrowed(x)


def test_a_kernel_may_name_what_was_lent_to_it_until_that_is_changed() -> None:
    assert foreign_names(calls_borrowed) == ["borrowed"]
    lend(borrowed)
    assert not foreign_names(calls_borrowed)
    borrowed.__code__ = work.__code__
    assert foreign_names(calls_borrowed) == ["borrowed"]
