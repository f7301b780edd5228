"""What can be read off the text."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernelwright.tools.markdown.fenced_code import extract_code
from kernelwright.tools.report import Fault
from kernelwright.tools.source import advice, candidate_hash, kernels, read_source

ROOT = Path(__file__).parents[2]
GOOD = """import torch
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({"BLOCK": 64})], key=["n"])
@triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})
@triton.jit
def scale_kernel(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    o = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + o, tl.load(x + o, mask=o < n) * 2, mask=o < n)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        scale_kernel[lambda m: (triton.cdiv(x.numel(), m["BLOCK"]),)](x, y, x.numel())
        return y
"""


def test_a_good_candidate_has_no_failure() -> None:
    assert read_source(GOOD) is None


def test_a_python_file_is_its_own_code() -> None:
    assert extract_code(GOOD).strip() == GOOD.strip()


@pytest.mark.parametrize(
    "fence", ["```python", "```py", "```Python title=kernel.py", "```", "~~~python"]
)
def test_the_code_is_taken_out_of_a_reply(fence: str) -> None:
    reply = f"Here is the kernel.\n\n{fence}\n{GOOD}{fence[:3]}\n\nIt doubles x."
    assert extract_code(reply).strip() == GOOD.strip()


def test_of_two_blocks_the_last_that_defines_the_entry_point_counts() -> None:
    reply = (
        f"```python\nimport triton\nclass ModelNew: pass\n```\nBetter:\n```python\n{GOOD}```\nRun "
        "it:\n```python\nprint(1)\n```"
    )
    assert extract_code(reply).strip() == GOOD.strip()


def test_a_block_that_was_cut_off_is_still_read() -> None:
    code = extract_code("Sure:\n```python\n" + GOOD[:-20])
    assert code.startswith("import torch")
    assert "scale_kernel" in code


def test_what_was_thought_before_the_answer_does_not_count() -> None:
    reply = f"<think>\n```python\nclass ModelNew: 'draft'\n```\n</think>\n```python\n{GOOD}```"
    assert extract_code(reply).strip() == GOOD.strip()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "I cannot write this kernel.",
        "```text\nnothing\n```",
        "import is a word, and so is class.",
    ],
)
def test_prose_holds_no_code(text: str) -> None:
    code = extract_code(text)
    assert code == ""
    failure = read_source(code)
    assert failure is not None
    assert failure.fault is Fault.NO_CODE


def test_a_syntax_error_has_its_line_column_and_caret() -> None:
    failure = read_source(GOOD.replace("tl.arange(0, BLOCK)", "tl.arange(0, BLOCK"))
    assert failure is not None
    assert failure.fault is Fault.SYNTAX
    assert failure.where is not None
    assert failure.where.line == 10
    assert failure.where.text.strip().startswith("o = tl.program_id(0)")
    line, caret = failure.where.caret().splitlines()
    assert line[caret.index("^")] == "("


def test_a_null_byte_is_no_python() -> None:
    failure = read_source("import triton\x00")
    assert failure is not None
    assert failure.fault is Fault.SYNTAX


def test_deep_nesting_is_a_failure_and_no_crash() -> None:
    failure = read_source("x = " + "(" * 5000 + ")" * 5000)
    assert failure is not None
    assert failure.fault is Fault.SYNTAX


def test_without_the_entry_point_there_is_no_candidate() -> None:
    failure = read_source(GOOD.replace("ModelNew", "Model"))
    assert failure is not None
    assert failure.fault is Fault.ENTRY_POINT


def test_an_entry_point_inside_a_function_is_none() -> None:
    inner = GOOD.split("class ModelNew")[0] + "def make():\n    class ModelNew:\n        pass\n"
    failure = read_source(inner)
    assert failure is not None
    assert failure.fault is Fault.ENTRY_POINT


def test_an_entry_point_under_an_if_counts() -> None:
    head, body = GOOD.split("class ModelNew")
    indented = "\n".join("    " + line for line in ("class ModelNew" + body).splitlines())
    assert read_source(head + "if True:\n" + indented) is None


def test_torch_alone_has_no_kernel() -> None:
    failure = read_source(
        "import torch\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return x\n"
    )
    assert failure is not None
    assert failure.fault is Fault.NO_KERNEL


@pytest.mark.parametrize(
    "decorated",
    [
        "from triton import jit as kernel\n@kernel\ndef k(x): ...\n",
        "import triton\n@triton.jit(noinline=True)\ndef k(x): ...\n",
        "import triton as t\n@t.jit\ndef k(x): ...\n",
        "from triton import jit\n@jit\ndef k(x): ...\n",
        "import triton\ndef k(x): ...\nfast = triton.jit(k)\n",
        "from triton.experimental import gluon\n@gluon.jit\ndef k(x): ...\n",
    ],
)
def test_kernels_are_found_however_the_decorator_is_called(decorated: str) -> None:
    assert kernels(decorated) == ("k",)


def test_a_kernel_under_autotune_and_heuristics_is_named_once() -> None:
    assert kernels(GOOD) == ("scale_kernel",)


def test_torch_jit_is_no_kernel() -> None:
    assert (
        kernels("import torch\n@torch.jit.script\ndef f(x): ...\n@numba.jit\ndef g(x): ...\n") == ()
    )


def test_layout_comments_and_docstrings_do_not_change_the_hash() -> None:
    other = '"""A docstring."""\n# a comment\n' + GOOD.replace("    o = ", "\n    o   =  ")
    assert candidate_hash(other) == candidate_hash(GOOD)
    assert candidate_hash(GOOD.replace("* 2", "* 3")) != candidate_hash(GOOD)


def test_advice_is_about_code_and_not_about_words_in_prose() -> None:
    quiet = GOOD.replace(
        "import torch\n",
        'import torch\n"""No subprocess, no threading, no ctypes; a cache[x] of nothing."""\n# sys._getframe\n',
        1,
    )
    assert advice(quiet) == advice(GOOD) == ()


@pytest.mark.parametrize(
    ("code", "word"),
    [
        ("import ctypes\n", "interpreter"),
        ("import subprocess\nsubprocess.run(['ls'])\n", "processes"),
        ("import threading\n", "threads"),
        ("import torch\ntorch.allclose = print\n", "assigns"),
        ("seen_cache = {}\ndef f(x):\n    return seen_cache[x]\n", "cache"),
        ("import time\nt = time.perf_counter()\n", "clocks"),
    ],
)
def test_advice_points_at_what_is_suspicious(code: str, word: str) -> None:
    assert any(word in line for line in advice(code + GOOD))


def test_advice_names_a_fallback_and_an_unused_kernel_and_tf32() -> None:
    text = GOOD.replace(
        "        return y",
        "        try:\n            pass\n        except Exception:\n            return torch.relu(x)\n        return y",
    )
    text += "\n@triton.jit\ndef unused(a, b):\n    tl.dot(a, b)\n"
    found = " ".join(advice(text))
    assert "except" in found
    assert "unused" in found
    assert "tf32" in found


def test_advice_on_text_that_does_not_parse_is_no_crash() -> None:
    assert isinstance(advice("def broken(:\n    import ctypes"), tuple)


def test_many_threads_parse_at_once():
    """CPython 3.11 raises SystemError now and then where it is asked by many."""
    from concurrent.futures import ThreadPoolExecutor

    from kernelwright.tools.parsing import parse_module

    text = (
        "x = "
        + "(" * 40
        + "1"
        + ")" * 40
        + "\n"
        + "def f(a):\n    return [a + i for i in range(10) if (i % 2) == 0]\n" * 40
    )
    with ThreadPoolExecutor(8) as pool:
        trees = list(pool.map(lambda _: len(parse_module(text).body), range(400)))
    assert trees == [41] * 400


def test_a_text_that_failed_once_by_the_interpreters_own_fault_is_parsed_again(monkeypatch):
    import ast

    from kernelwright.tools import parsing

    failures, original = [SystemError("AST constructor recursion depth mismatch")], ast.parse

    def parse(text):
        if failures:
            raise failures.pop()
        return original(text)

    monkeypatch.setattr(parsing.ast, "parse", parse)
    assert len(parsing.parse_module("x = 1\ny = 2\n").body) == 2


ODD = "x = 1if True else 2\ny = '\\\\d'\n"
MANY_READ = f"""
from concurrent.futures import ThreadPoolExecutor
from kernelwright.rl.data.dataflow import graph_hash
from kernelwright.tools.source import candidate_hash, kernels, read_source
with ThreadPoolExecutor(8) as pool:
    for read in (candidate_hash, kernels, read_source, graph_hash):
        list(pool.map(lambda n: read({ODD!r} + f"z = {{n}}\\\\n"), range(200)))
"""


def test_what_python_warns_of_in_a_candidate_is_not_said_on_our_terminal():
    done = subprocess.run(
        [sys.executable, "-c", MANY_READ], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_text_of_more_than_a_million_characters_is_not_parsed():
    text = "a = 1\n" * 1_000_000
    begun = time.monotonic()
    failure = read_source(text)
    assert failure is not None
    assert failure.fault is Fault.NO_CODE
    assert candidate_hash(text) == candidate_hash(text + "")
    assert advice(text) == ()
    assert time.monotonic() - begun < 5
