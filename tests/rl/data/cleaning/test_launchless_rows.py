"""Rows with a kernel that nothing launches: labelled with a signature that is assumed, and only where that is
honest.
"""

import json
import os

import pytest

from kernelwright.rl.data.cleaning.labelling import MissingLabel, label_corpus
from kernelwright.rl.data.cleaning.launchless_rows import launchless_program
from kernelwright.rl.data.corpus_figures import gather_facts
from kernelwright.rl.data.corpus_report import sections
from kernelwright.rl.data.rows import Kind, read_rows, row_of, schema, write_rows
from kernelwright.tools.launchless.candidate_signatures import assume_signatures
from kernelwright.tools.launchless.launchless_compile import compile_launchless
from kernelwright.tools.launchless.module_functions import read_module
from kernelwright.tools.launchless.undefined_names import first_undefined_name
from kernelwright.tools.sandbox import ProcessKind, Zygote

IMPORTS = "import triton\nimport triton.language as tl\n\n\n"
GATHER = """\
@triton.jit
def gather(rows_ptr, X, out_ptr, N, stride, scale, BLOCK_N: tl.constexpr, HAS_SCALE: tl.constexpr):
    X += tl.load(rows_ptr + tl.program_id(0)) * stride
    for start in range(0, N, BLOCK_N):
        offs = start + tl.arange(0, BLOCK_N)
        x = tl.load(X + offs, mask=offs < N)
        if HAS_SCALE:
            x *= scale
        tl.store(out_ptr + tl.program_id(0) * N + offs, x, mask=offs < N)
"""
TUNED = """\
@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2)], key=["n"])
@triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
@triton.jit
def copy(src, dst, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inner(src + at, dst + at, at < n)


@triton.jit
def inner(p, q, mask):
    tl.store(q, tl.load(p, mask=mask), mask=mask)
"""
SILU = "@triton.jit\ndef silu(x):\n    return x * tl.sigmoid(x)\n"
MISSPELT = GATHER.replace("tl.load(X", "tl.laod(X")
NOWHERE = GATHER.replace("mask=offs < N)\n        if", "mask=offs < M_TOTAL)\n        if")
GUARDED = (
    GATHER.replace("x *= scale", "x = tl.laod(x)")
    .replace("HAS_SCALE:\n", "MODE == 3 and N > 5:\n")
    .replace("HAS_SCALE", "MODE")
)
TOO_LARGE = GATHER.replace("tl.arange(0, BLOCK_N)", "tl.arange(0, BLOCK_N * 3)")
DESCRIPTOR = "@triton.jit\ndef k(desc, out_ptr):\n    tl.store(out_ptr, tl.sum(desc.load([0])))\n"
EVIL = "import os, pathlib\npathlib.Path({place!r}).write_text(str(os.getpid()))\n"


def bare(completion: str, kind: Kind = Kind.TRANSLATE, prompt: str = "p"):
    return row_of(kind, prompt, completion)


@pytest.fixture(scope="module")
def zygote():
    with Zygote(ProcessKind.COMPILE) as made:
        yield made


def test_what_a_kernel_does_with_its_parameters_tells_their_types():
    likeliest = assume_signatures(read_module(GATHER), "gather")[0]
    assert likeliest.describe("gather") == (
        "gather(rows_ptr: *i32, X: *fp32, out_ptr: *fp32, N: i32, stride: i32, scale: fp32, BLOCK_N=256, "
        "HAS_SCALE=True)"
    )


def test_a_pointer_is_known_through_the_function_that_loads_from_it():
    (first, *_) = assume_signatures(read_module(TUNED), "copy")
    assert first.types == {"src": "*fp32", "dst": "*fp32", "n": "i32"}


@pytest.mark.parametrize(("text", "name"), [(MISSPELT, "tl.laod"), (NOWHERE, "M_TOTAL"), (GATHER, ""), (GUARDED, "")])
def test_a_name_that_is_nowhere_is_found_where_every_call_needs_it(text, name):
    assert first_undefined_name(read_module(IMPORTS + text), "gather") == name


@pytest.mark.parametrize("text", [GATHER, IMPORTS + TUNED, SILU], ids=["without imports", "autotuned", "gives back"])
def test_a_good_kernel_compiles_with_a_signature_that_is_told(zygote, text):
    found = compile_launchless(zygote, text, ("sm_80", "sm_90"))
    assert found.compiled == {"sm_80": True, "sm_90": True}, found.errors
    assert "fp32" in found.assumed


@pytest.mark.parametrize("text", [TOO_LARGE, DESCRIPTOR, GUARDED.replace("MODE == 3 and N > 5", "True")])
def test_a_failure_that_may_be_the_signatures_is_no_label(zygote, text):
    found = compile_launchless(zygote, IMPORTS + text, ("sm_90",))
    assert found.compiled == {}
    assert found.errors


def test_a_source_that_does_harm_runs_in_the_sandbox_only(zygote, tmp_path):
    place = tmp_path / "was_here"
    found = compile_launchless(zygote, IMPORTS + EVIL.format(place=str(place)) + GATHER, ("sm_90",))
    assert not place.exists()
    assert found.compiled == {}
    assert "not imported" in found.errors[0]
    told = f"import os\nraise ValueError('pid %d' % os.getppid())\n{GATHER}"
    assert f"pid {os.getpid()}" not in str(compile_launchless(zygote, IMPORTS + told, ("sm_90",)).errors)
    assert compile_launchless(zygote, IMPORTS + "import os\nos.abort()\n" + GATHER, ("sm_90",)).compiled == {}
    assert compile_launchless(zygote, IMPORTS + "import os\nos.write(3, b'lies')\n" + GATHER, ("sm_90",)).compiled == {}


def test_a_hole_is_filled_and_prose_is_no_kernel():
    hole = f"<|fim_prefix|>{GATHER[:200]}<|fim_suffix|>{GATHER[260:]}<|fim_middle|>"
    assert launchless_program(bare(GATHER[200:260], Kind.FIM, hole)) == GATHER
    assert launchless_program(bare("    return 1", Kind.FIM, "@triton.jit\ndef f(x):\n    if")) == ""
    assert launchless_program(bare(f"Here it is:\n```python\n{GATHER}```\nIt gathers.")) == GATHER
    assert launchless_program(bare(f"Here it is:\n{GATHER}")) == ""
    assert launchless_program(bare(f"{GATHER}\nThis kernel gathers rows.")) == ""
    assert launchless_program(bare(GATHER.replace("offs < N)", "offs < N"))) != ""


def test_bare_rows_are_labelled_and_counted_apart(tmp_path):
    torn = GATHER.replace("tl.arange(0, BLOCK_N)", "tl.arange(0, BLOCK_N")
    texts = [GATHER, MISSPELT, TOO_LARGE, torn, "only words"]
    write_rows(tmp_path, [*map(bare, texts), bare(MISSPELT, Kind.FIM, "# a kernel\n")])
    told = label_corpus(tmp_path, ("sm_90",), correct=False, workers=1, say=lambda _: None)
    rows = list(read_rows(tmp_path))
    assert [row.compile.get("sm_90") for row in rows] == [True, False, None, False, None, None]
    assert rows[0].assumed.startswith("gather(rows_ptr: *i32")
    assert rows[1].assumed == "any signature: tl.laod is not defined"
    assert (told.judged, told.assumed) == (3, 3)
    assert told.unlabelled == {MissingLabel.NO_SIGNATURE: 2, MissingLabel.NO_REFERENCE: 1}
    facts = gather_facts(tmp_path, [])
    assert (facts.compiled, facts.assumed) == ({}, {"sm_90": (1, 3)})
    assert "with an assumed signature" in "\n".join(sections(facts, None, None))
    json.dumps(facts.model_dump(mode="json"))


def test_a_corpus_of_before_has_no_assumed_signatures(tmp_path):
    import pyarrow.parquet as pq

    write_rows(tmp_path, [bare(GATHER)])
    (path,) = tmp_path.glob("*.parquet")
    pq.write_table(pq.read_table(path).drop_columns(["assumed"]), path)
    assert [row.assumed for row in read_rows(tmp_path)] == [""]
    assert "assumed" in schema().names
