"""Kernels of a source tree are imported with what they need of their files, and under which licences."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernelwright.errors import InputError
from kernelwright.rl.data.importing.formats import CorpusFormat, ImportOptions
from kernelwright.rl.data.importing.licences import is_permissive, licence_of_tag, licence_of_text
from kernelwright.rl.data.importing.reading import import_corpus
from kernelwright.rl.data.rows import read_rows

MIT = "Permission is hereby granted, free of charge, to any person obtaining a copy"

GPL = "GNU GENERAL PUBLIC LICENSE Version 3"

KERNEL = """\
import torch
import triton
import triton.language as tl
from einops import rearrange

SCALE = 2.0
UNUSED = 3.0


@triton.jit
def halve(x):
    return x / SCALE


@triton.autotune(configs=[], key=["n"])
@triton.jit
def copy_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    \"\"\"Copies half of it.\"\"\"
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, halve(tl.load(x_ptr + offs, mask=offs < n)), mask=offs < n)


@triton.jit
def stray_kernel(x_ptr):
    tl.store(x_ptr, rearrange(1))


@triton.jit
def lost_kernel(x_ptr):
    tl.store(x_ptr, nobody_knows)
"""


def imported(form: CorpusFormat, path, tmp_path, **asked):
    result = import_corpus(form, path, tmp_path / "out", ImportOptions(**asked))
    return result, list(read_rows(tmp_path / "out"))


def refused(form: CorpusFormat, path, tmp_path, match: str) -> None:
    with pytest.raises(InputError, match=match):
        import_corpus(form, path, tmp_path / "out", ImportOptions())
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_kernels_of_a_tree_come_with_their_own_files_helpers_and_nothing_else(tmp_path):
    place = tmp_path / "in"
    place.mkdir()
    (place / "LICENSE").write_text(MIT)
    (place / "kernels.py").write_text(KERNEL)
    result, rows = imported(CorpusFormat.TREE, place, tmp_path)
    copy = next(row for row in rows if "copy_kernel(" in row.prompt)
    assert "SCALE = 2.0" in copy.completion
    assert "def halve(x)" in copy.completion
    assert "UNUSED" not in copy.completion
    assert "einops" not in copy.completion
    assert copy.licence == "MIT"
    assert "Copies half of it." in copy.prompt
    compile(copy.completion, "kernel", "exec")
    assert result.skipped == {
        "imports more than torch and triton": 1,
        "uses a name that its file does not define": 1,
    }


def of_tree(text: str, tmp_path):
    (tmp_path / "kernels.py").write_text(text)
    return imported(CorpusFormat.TREE, tmp_path / "kernels.py", tmp_path, licence="MIT")


def test_a_kernel_is_kept_where_triton_is_tried_for(tmp_path):
    text = """\
try:
    import triton
    import triton.language as tl
    HAS = True
except ImportError:
    triton = tl = None
    HAS = False

if HAS:
    SCALE = 2.0

    @triton.jit
    def scale_kernel(x_ptr):
        tl.store(x_ptr, SCALE)
else:
    SCALE = 1.0
"""
    result, (row,) = of_tree(text, tmp_path)
    assert row.completion == (
        "import triton\nimport triton.language as tl\n\n\nSCALE = 2.0\n\n\n"
        "@triton.jit\ndef scale_kernel(x_ptr):\n    tl.store(x_ptr, SCALE)\n"
    )
    assert result.skipped == {}


@pytest.mark.parametrize("line", ["A, SCALE = 1, 2", "A = SCALE = 2", "[SCALE, *A] = 1, 2"])
def test_constants_of_one_statement_come_along(tmp_path, line):
    text = KERNEL.replace("SCALE = 2.0", line)
    _, rows = of_tree(text, tmp_path)
    copy = next(row for row in rows if "copy_kernel(" in row.prompt)
    assert copy.completion.count(line) == 1


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("from triton import jit as J", "J"),
        ("from triton.runtime import jit", "jit"),
        ("import triton as tt", "tt.jit"),
    ],
)
def test_jit_is_known_by_what_it_was_imported_as(tmp_path, line, name):
    text = f"{line}\nimport triton.language as tl\n\n\n@{name}\ndef one_kernel(x_ptr):\n    tl.store(x_ptr, 1)\n"
    _, (row,) = of_tree(text, tmp_path)
    assert row.completion.startswith(line)


def test_a_file_without_a_kernel_is_counted(tmp_path):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.py").write_text(KERNEL)
    (tmp_path / "in" / "b.py").write_text("import triton  # jit\n")
    result, _ = imported(CorpusFormat.TREE, tmp_path / "in", tmp_path, licence="MIT")
    assert result.skipped["no kernel at the top of the file"] == 1


def test_sources_under_other_licences_are_left_out_unless_told_otherwise(tmp_path):
    place = tmp_path / "in"
    (place / "free").mkdir(parents=True)
    (place / "LICENSE").write_text(GPL)
    (place / "a.py").write_text(KERNEL)
    (place / "free" / "b.py").write_text("# SPDX-License-Identifier: BSD-3-Clause\n" + KERNEL)
    _, rows = imported(CorpusFormat.TREE, place, tmp_path)
    assert {row.licence for row in rows} == {"BSD-3-Clause"}
    all_of_it = import_corpus(
        CorpusFormat.TREE, place, tmp_path / "all", ImportOptions(any_licence=True)
    )
    assert all_of_it.rows == 2 * len(rows)


def test_licences_are_known_by_their_words():
    assert licence_of_text(MIT) == "MIT"
    assert licence_of_text(GPL) == "GPL-3.0"
    assert licence_of_text("All rights reserved") == ""
    assert is_permissive("GPL-3.0 OR MIT")
    assert not is_permissive("GPL-3.0")
    assert not is_permissive("")


@pytest.mark.parametrize(
    ("text", "permissive"),
    [
        ("GPL-3.0, MIT", False),
        ("MIT, Apache-2.0", True),
        ("GPL-3.0 AND MIT", False),
        ("MIT and BSD-3-Clause", True),
        ("MIT AND GPL-3.0 OR ISC", True),
        ("(MIT OR GPL-3.0) AND GPL-2.0", False),
        ("(MIT OR GPL-3.0) AND ISC", True),
        ("MIT OR ISC, GPL-3.0", False),
        ("Apache-2.0 WITH LLVM-exception", True),
        ("Apache License 2.0", True),
        (",", False),
    ],
)
def test_licences_that_hold_together_must_all_be_permissive(text, permissive):
    assert is_permissive(text) is permissive


def test_a_files_tag_is_read_whole():
    assert (
        licence_of_tag("# SPDX-License-Identifier: MIT AND GPL-3.0\nimport os") == "MIT AND GPL-3.0"
    )
    assert licence_of_tag("# SPDX-License-Identifier: MIT\nimport os") == "MIT"


def test_a_rows_list_of_licences_holds_together(tmp_path):
    row = {"python_code": ["a"], "triton_code": ["b"], "licenses": [["MIT", "GPL-3.0"]]}
    pq.write_table(pa.table(row), tmp_path / "kb.parquet")
    refused(CorpusFormat.KERNELBOOK, tmp_path / "kb.parquet", tmp_path, "1 licence MIT, GPL-3.0")
