"""Rows on a disk, and what two texts have in common."""

import pytest

from kernelwright.errors import InputError
from kernelwright.rl.data.rows import (
    Kind,
    Split,
    count_rows,
    normalise_text,
    read_rows,
    row_of,
    write_rows,
)


def row(number: int = 0):
    return row_of(
        Kind.DRAFT,
        f"prompt {number}",
        "x = 1\n",
        compile={"sm_90": True},
        correct=True,
        depth=3,
        split=Split.HELD_OUT_DEPTH,
    )


def test_rows_come_back_as_they_were_written_shard_after_shard(tmp_path):
    rows = [row(n) for n in range(10)]
    assert write_rows(tmp_path, rows[:7], shard_rows=3) == 7
    assert write_rows(tmp_path, rows[7:]) == 3
    assert list(read_rows(tmp_path)) == rows
    assert len(list(tmp_path.glob("*.parquet"))) == 4
    assert count_rows(tmp_path) == 10


def test_some_columns_can_be_read_alone(tmp_path):
    write_rows(tmp_path, [row(1)])
    (found,) = read_rows(tmp_path, ["prompt", "kind"])
    assert (found.prompt, found.kind, found.completion) == ("prompt 1", Kind.DRAFT, "")


def test_what_is_not_a_corpus_is_refused_with_what_to_do(tmp_path):
    with pytest.raises(InputError, match="no corpus"):
        list(read_rows(tmp_path / "nothing"))
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 no more")
    with pytest.raises(InputError, match="not a readable parquet"):
        list(read_rows(tmp_path))


def test_a_parquet_file_of_another_make_is_refused_by_its_columns(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": ["a"]}), tmp_path / "other.parquet")
    with pytest.raises(InputError, match="has no column"):
        list(read_rows(tmp_path))


def test_normalising_keeps_the_indentation_of_python():
    text = "def f(x):\r\n    if x:   \r\n        return 1\t\n\n\n\n\n    return 2"
    assert normalise_text(text) == "def f(x):\n    if x:\n        return 1\n\n\n    return 2\n"
    assert (
        row_of(Kind.DRAFT, "a  \r\nb", "c").prompt_hash
        == row_of(Kind.DRAFT, "a\nb\n", "c").prompt_hash
    )


def test_a_shard_that_cannot_be_written_leaves_nothing(tmp_path):
    def rows():
        yield row(1)
        raise ValueError("the source broke")

    with pytest.raises(ValueError, match="broke"):
        write_rows(tmp_path, rows())
    assert list(tmp_path.iterdir()) == []


def test_a_column_of_an_earlier_version_is_passed_over(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    write_rows(tmp_path, [row()])
    [path] = tmp_path.glob("*.parquet")
    table = pq.read_table(path)
    pq.write_table(table.append_column("assumed", pa.array(["add(x: *fp32)"])), path)
    assert list(read_rows(tmp_path)) == [row()]
