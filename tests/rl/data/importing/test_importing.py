"""Corpora of others: the forms that are read, what is left out, and that bad files leave nothing behind."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernelwright.errors import InputError
from kernelwright.rl.data.importing.collecting import collect_kernels
from kernelwright.rl.data.importing.formats import CorpusFormat, ImportOptions
from kernelwright.rl.data.importing.inductor import kernels_of
from kernelwright.rl.data.importing.kernelbook import rename_classes
from kernelwright.rl.data.importing.reading import import_corpus
from kernelwright.rl.data.rows import Kind, read_rows
from kernelwright.tools.problem import Problem

MIT = "Permission is hereby granted, free of charge, to any person obtaining a copy"
OUTPUT = """\
import torch
from torch._inductor.async_compile import AsyncCompile
async_compile = AsyncCompile()


# kernel path: /tmp/x.py
# Topologically Sorted Source Nodes: [exp], Original ATen: [aten.exp]
# Graph fragment:
#   %exp : Tensor "f32[8]" = call_function[target=torch.ops.aten.exp.default](args = (%arg0,), kwargs = {})
triton_poi_fused_exp_0 = async_compile.triton('triton_poi_fused_exp_0', '''
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math

@triton_heuristics.pointwise(size_hints={'x': 8}, filename=__file__, triton_meta={'device': 0})
@triton.jit
def triton_poi_fused_exp_0(in_ptr0, out_ptr0, xnumel, XBLOCK : tl.constexpr):
    xindex = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + (xindex), xmask)
    tmp1 = libdevice.exp(tmp0)
    tl.store(out_ptr0 + (xindex), tmp1, xmask)
''', device_str='cuda')
"""


def imported(form: CorpusFormat, path, tmp_path, **asked):
    result = import_corpus(form, path, tmp_path / "out", ImportOptions(**asked))
    return result, list(read_rows(tmp_path / "out"))


def refused(form: CorpusFormat, path, tmp_path, match: str) -> None:
    with pytest.raises(InputError, match=match):
        import_corpus(form, path, tmp_path / "out", ImportOptions())
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_the_two_csv_layout_gives_its_two_kinds_with_indentation_kept(tmp_path):
    place = tmp_path / "in"
    place.mkdir()
    (place / "fim_sft.csv").write_text(
        'prompt,completion\n"def f(x):\n    if x:\n        return","1\n    return 2"\n'
    )
    (place / "cu2triton_sft.csv").write_text(
        'prompt,completion\n__global__ void k(),@triton.jit\n"  ",nothing\n'
    )
    result, rows = imported(CorpusFormat.CSV, place, tmp_path, licence="MIT")
    assert [(row.kind, row.source, row.licence) for row in rows] == [
        (Kind.TRANSLATE, "two_csv", "MIT"),
        (Kind.FIM, "two_csv", "MIT"),
    ]
    assert rows[1].prompt == "def f(x):\n    if x:\n        return"
    assert result.skipped == {"empty": 1}


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (b"title,body\na,b\n", "begins with 'title,body'; accepted are"),
        (b"prompt,body\na,b\n", "of no known form"),
        (b"", "is empty"),
        (b"prompt,completion\nc\n", "another number of fields"),
        (b'prompt,completion\na,"b\n', "not well-formed CSV"),
        (b"prompt,completion\n\xff\xfe,b\n", "not UTF-8"),
        (b"prompt,completion\n", "gave no rows"),
    ],
)
def test_a_malformed_csv_is_refused_and_nothing_is_written(tmp_path, text, match):
    (tmp_path / "fim_sft.csv").write_bytes(text)
    refused(CorpusFormat.CSV, tmp_path / "fim_sft.csv", tmp_path, match)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"one field\n", "the record of line 4 has another number of fields"),
        (b"a,b,c\n", "the record of line 4 has another number of fields"),
        (b"\xff\xfe,b\n", "the record of line 4 is not UTF-8"),
        (b'"quoted" and more,b\n', "the record of line 4 is not well-formed CSV"),
        (b'"never closed,b\nfoo(a, b)\n', "the record of line 4 is not well-formed CSV"),
    ],
)
def test_one_bad_record_costs_a_csv_file_no_other_record_and_is_reported_with_its_line(
    tmp_path, bad, reason
):
    good = [b'"first\nof two lines","1"\n', b'"second","2"\n', b'"third","3"\n']
    text = b"prompt,completion\n" + good[0] + bad + b"".join(good[1:])
    (tmp_path / "fim_sft.csv").write_bytes(text)
    result, rows = imported(CorpusFormat.CSV, tmp_path / "fim_sft.csv", tmp_path)
    assert [row.completion for row in rows] == ["1", "2", "3"]
    assert len(result.skipped) == 1
    assert reason in next(iter(result.skipped))


def test_inductors_kernels_stand_alone_with_the_graph_they_came_from(tmp_path):
    place = tmp_path / "torch_compile_debug" / "run_1" / "torchinductor" / "model__0_inference_0.0"
    place.mkdir(parents=True)
    (place / "output_code.py").write_text(OUTPUT)
    _, (row,) = imported(CorpusFormat.INDUCTOR, tmp_path / "torch_compile_debug", tmp_path)
    assert "aten.exp" in row.prompt
    assert "triton_heuristics" not in row.completion
    assert "import libdevice" in row.completion
    assert "tl_math" not in row.completion
    assert row.completion.count("@triton.jit") == 1
    compile(row.completion, "kernel", "exec")


SCAN = OUTPUT.replace("triton_poi_fused_exp_0", "triton_per_fused_cumsum_0").replace(
    "@triton_heuristics",
    """@triton.jit
def _triton_helper_fn_add0(arg0_0, arg1_0):
    return libdevice.abs(_triton_helper_fn_inner(arg0_0)) + arg1_0

@triton.jit
def _triton_helper_fn_inner(x):
    return x

@triton.jit
def _triton_helper_fn_other(x):
    return x

@triton_heuristics""",
)


@pytest.mark.parametrize("name", ["triton_per_fused_cumsum_0", "triton_"])
def test_a_scans_kernel_comes_with_the_functions_that_it_uses(name):
    code = SCAN.replace("def triton_per_fused_cumsum_0(", f"def {name}(")
    scanned = code.replace(
        "libdevice.exp(tmp0)", "tl.associative_scan(tmp0, 0, _triton_helper_fn_add0)"
    )
    (kernel,) = kernels_of(scanned)
    defined = [line.split("(")[0] for line in kernel.source.splitlines() if line.startswith("def ")]
    assert defined == ["def _triton_helper_fn_add0", "def _triton_helper_fn_inner", f"def {name}"]
    assert "triton_heuristics" not in kernel.source
    assert "import libdevice" in kernel.source
    assert kernel.name == "triton_per_fused_cumsum_0"


def test_without_a_fragment_the_whole_graph_is_the_prompt(tmp_path):
    (tmp_path / "output_code.py").write_text(
        "\n".join(line for line in OUTPUT.splitlines() if not line.startswith("#"))
    )
    (tmp_path / "fx_graph_readable.py").write_text(
        "class GraphModule: exp = torch.ops.aten.exp.default(arg0)"
    )
    _, (row,) = imported(CorpusFormat.INDUCTOR, tmp_path / "output_code.py", tmp_path)
    assert "GraphModule" in row.prompt
    assert kernels_of(OUTPUT)[0].graph.startswith("%exp")


def test_kernelbook_style_parquet_is_read_and_other_columns_are_refused(tmp_path):
    table = {
        "python_code": ["class Model: ...", ""],
        "triton_code": ["import triton", "x"],
        "licenses": [["MIT"], ["MIT"]],
        "repo_name": ["a/b", "a/b"],
    }
    pq.write_table(pa.table(table), tmp_path / "kb.parquet")
    result, (row,) = imported(CorpusFormat.KERNELBOOK, tmp_path / "kb.parquet", tmp_path)
    assert (row.kind, row.reference, row.completion, row.licence) == (
        Kind.TRANSLATE,
        "class Model: ...",
        "import triton",
        "MIT",
    )
    assert result.skipped == {"empty": 1}


LAYER = """\
import torch.nn as nn


class Helper(nn.Module):
    pass


class LayerNorm(nn.Module):
    \"\"\"A LayerNorm.\"\"\"

    def __init__(self):
        super(LayerNorm, self).__init__()
        self.norm = nn.LayerNorm(4)  # a LayerNorm

    def forward(self, x):
        return self.norm(x)
"""


def test_a_pair_of_classes_gets_the_names_that_the_tools_ask_for(tmp_path):
    triton = LAYER.replace("LayerNorm(nn", "LayerNormNew(nn").replace(
        "super(LayerNorm,", "super(LayerNormNew,"
    )
    table = {
        "python_code": [LAYER],
        "triton_code": [triton],
        "licenses": [["MIT"]],
        "entry_point": ["LayerNorm"],
    }
    pq.write_table(pa.table(table), tmp_path / "kb.parquet")
    _, (row,) = imported(CorpusFormat.KERNELBOOK, tmp_path / "kb.parquet", tmp_path)
    assert "class Model(nn.Module)" in row.reference
    assert "class ModelNew(nn.Module)" in row.completion
    assert "super(ModelNew, self)" in row.completion
    assert "self.norm = nn.LayerNorm(4)  # a LayerNorm" in row.completion
    assert row.prompt == row.reference
    assert row.provenance == "kb.parquet LayerNorm class LayerNorm"


@pytest.mark.parametrize(
    ("reference", "candidate"),
    [
        ("class Foo: pass\nclass Model: pass", "class FooNew: pass"),
        ("class Model: pass", "class ModelNew: pass"),
        ("class Foo: pass", "def kernel(): pass"),
        ("class Foo: pass", "class FooNew: pass)"),
    ],
    ids=["another Model", "named already", "bare", "not Python"],
)
def test_texts_without_such_a_pair_stay_as_they_are(reference, candidate):
    assert rename_classes(reference, candidate) == (reference, candidate, "")


def test_parquet_that_is_broken_or_of_another_form_is_refused(tmp_path):
    pq.write_table(pa.table({"code": ["a"]}), tmp_path / "other.parquet")
    refused(
        CorpusFormat.KERNELBOOK,
        tmp_path / "other.parquet",
        tmp_path,
        "no column python_code, triton_code",
    )
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "other.parquet").read_bytes()[:60])
    refused(CorpusFormat.KERNELBOOK, tmp_path / "cut.parquet", tmp_path, "not a readable parquet")


def test_jsonl_of_instructions_is_read_and_a_bad_line_is_named(tmp_path):
    lines = [
        {"instruction": "Write", "input": "softmax", "output": "code"},
        {"instruction": "Write", "output": "more", "license": "MIT"},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    _, rows = imported(CorpusFormat.JSONL, tmp_path / "a.jsonl", tmp_path)
    assert [(row.prompt, row.completion, row.licence) for row in rows] == [
        ("Write\nsoftmax", "code", ""),
        ("Write", "more", "MIT"),
    ]
    (tmp_path / "b.jsonl").write_text('{"instruction": "a", "output": "b"}\n{"instruction": 1}\n')
    with pytest.raises(InputError, match=r"b\.jsonl:2"):
        import_corpus(CorpusFormat.JSONL, tmp_path / "b.jsonl", tmp_path / "out2", ImportOptions())
    assert not (tmp_path / "out2").exists()


def test_a_folder_that_is_there_is_not_written_over(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"instruction": "a", "output": "b"}\n')
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("")
    with pytest.raises(InputError, match="exists already"):
        import_corpus(CorpusFormat.JSONL, tmp_path / "a.jsonl", tmp_path / "out", ImportOptions())
    with pytest.raises(InputError, match="nothing at"):
        import_corpus(
            CorpusFormat.JSONL, tmp_path / "none.jsonl", tmp_path / "new", ImportOptions()
        )


@pytest.mark.slow
@pytest.mark.nightly
def test_inductor_writes_triton_for_a_reference_without_a_gpu(tmp_path):
    from kernelwright.rl.data.rows import Split
    from kernelwright.rl.data.synth.engine.tasks import tasks

    problem = next(t.problem for t in tasks(Split.TRAIN, 60) if t.family == "softmax")
    broken = Problem(
        name="broken",
        source=problem.source.replace("def forward(self, ", "def forward(self, missing, "),
    )
    result = collect_kernels([broken, problem], tmp_path / "out", "cpu", lambda _: None)
    rows = list(read_rows(tmp_path / "out"))
    assert result.rows == len(rows) >= 1
    assert sum(result.skipped.values()) == 1
    assert all("@triton.jit" in row.completion and row.problem == problem.name for row in rows)


def test_an_array_of_instructions_is_read_as_its_lines_are(tmp_path):
    told = [
        {"instruction": "write it", "input": "x", "output": "a = 1"},
        {"instruction": "again", "output": "b = 2"},
    ]
    (tmp_path / "a.json").write_text("\n" + json.dumps(told, indent=2))
    _, rows = imported(CorpusFormat.JSONL, tmp_path / "a.json", tmp_path)
    assert [(row.prompt, row.provenance) for row in rows] == [
        ("write it\nx", "a.json:1"),
        ("again", "a.json:2"),
    ]
    (tmp_path / "b.json").write_text(json.dumps([told[0], {"instruction": 1}]))
    with pytest.raises(
        InputError, match=r"b\.json:2 is of no known form \(its fields: instruction\)"
    ):
        import_corpus(CorpusFormat.JSONL, tmp_path / "b.json", tmp_path / "out2", ImportOptions())
    (tmp_path / "c.json").write_text("[{")
    with pytest.raises(InputError, match=r"c\.json is not JSON"):
        import_corpus(CorpusFormat.JSONL, tmp_path / "c.json", tmp_path / "out2", ImportOptions())
