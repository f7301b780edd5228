"""Rows of others: the container and the form of a file are recognised by its content, and what is no file of rows is
refused in one line that lists the accepted forms.
"""

import bz2
import csv
import gzip
import io
import json
import lzma

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kernelwright.errors import InputError
from kernelwright.policies.base import Message, Role
from kernelwright.rl.data.importing.examples import as_corpus, check_examples, read_examples
from kernelwright.rl.data.importing.formats import ImportOptions
from kernelwright.rl.data.rows import Kind, is_corpus, read_rows, row_of, write_rows

ASKED, ANSWER = "Write a softmax", "import triton\n"
USER, ASSISTANT = {"role": "user", "content": ASKED}, {"role": "assistant", "content": ANSWER}
SYSTEM = {"role": "system", "content": "You write kernels."}


def rows_of(path, skipped=None):
    return list(read_examples(path, ImportOptions(), {} if skipped is None else skipped))


def written(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


@pytest.mark.parametrize(
    "record",
    [
        {"prompt": ASKED, "completion": ANSWER},
        {"prompt": [USER], "completion": [ASSISTANT]},
        {"prompt": ASKED, "response": ANSWER},
        {"instruction": ASKED, "input": None, "output": ANSWER},
        {"instruction": ASKED, "response": ANSWER},
        {"question": ASKED, "answer": ANSWER},
        {"query": ASKED, "response": ANSWER},
        {"input": ASKED, "output": ANSWER},
        {"messages": [USER, ASSISTANT]},
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ASKED}]}, ASSISTANT]},
        {"conversations": [{"from": "human", "value": ASKED}, {"from": "gpt", "value": ANSWER}]},
        {"conversations": [USER, ASSISTANT, {"role": "user", "content": "Thanks."}]},
        {
            "prompt": [USER],
            "chosen": [ASSISTANT],
            "rejected": [{"role": "assistant", "content": "no"}],
        },
        {"chosen": [USER, ASSISTANT], "rejected": [USER, {"role": "assistant", "content": "no"}]},
        {"prompt": ASKED, "chosen": ANSWER, "rejected": "no"},
        {"prompt": [USER], "completions": [{"text": ANSWER}]},
    ],
    ids=lambda record: "+".join(record),
)
def test_every_common_form_gives_the_same_row(tmp_path, record):
    (row,) = rows_of(written(tmp_path / "rows", record))
    assert (row.kind, row.prompt, row.completion, row.messages) == (
        Kind.INSTRUCT,
        ASKED,
        ANSWER,
        (),
    )


@pytest.mark.parametrize(
    "record",
    [
        {"messages": [SYSTEM, USER, ASSISTANT]},
        {
            "system": SYSTEM["content"],
            "conversations": [{"from": "human", "value": ASKED}, ASSISTANT],
        },
        {"prompt": [SYSTEM, USER], "completion": ANSWER},
    ],
    ids=["messages", "sharegpt", "prompt"],
)
def test_a_system_message_stays_in_the_conversation_that_is_trained_on(tmp_path, record):
    (row,) = rows_of(written(tmp_path / "rows", record))
    assert row.completion == ANSWER
    assert [(message.role, message.content) for message in row.messages] == [
        (Role.SYSTEM, SYSTEM["content"]),
        (Role.USER, ASKED),
    ]
    write_rows(tmp_path / "corpus", [row])
    assert list(read_rows(tmp_path / "corpus")) == [row]


def test_of_a_longer_conversation_the_last_answer_is_learnt_and_the_rest_is_its_prompt(tmp_path):
    again = {"role": "user", "content": "It is wrong."}
    (row,) = rows_of(
        written(
            tmp_path / "a",
            {"messages": [USER, {"role": "assistant", "content": "x"}, again, ASSISTANT]},
        )
    )
    assert row.completion == ANSWER
    assert row.messages[1] == Message(role=Role.ASSISTANT, content="x")


def test_replies_that_say_they_are_wrong_are_marked_as_wrong(tmp_path):
    group = {
        "prompt": [USER],
        "completions": [{"text": ANSWER, "correct": True}, {"text": "no", "correct": False}],
    }
    assert [row.correct for row in rows_of(written(tmp_path / "a", group))] == [True, False]
    assert (
        rows_of(written(tmp_path / "b", {"prompt": ASKED, "completion": "no", "label": False}))[
            0
        ].correct
        is False
    )


def test_plain_text_is_a_row_without_a_prompt(tmp_path):
    (row,) = rows_of(written(tmp_path / "a", {"text": ANSWER}))
    assert (row.kind, row.prompt, row.completion) == (Kind.TEXT, "", ANSWER)


RECORDS = [{"instruction": f"{ASKED} {number}", "output": ANSWER} for number in range(3)]
LINES = "".join(json.dumps(record) + "\n" for record in RECORDS).encode()


def _table() -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(RECORDS), sink)
    return sink.getvalue()


def _arrow() -> bytes:
    sink, table = io.BytesIO(), pa.Table.from_pylist(RECORDS)
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _csv(delimiter: str) -> bytes:
    sink = io.StringIO()
    writer = csv.DictWriter(sink, ["instruction", "output"], delimiter=delimiter)
    writer.writeheader()
    writer.writerows(RECORDS)
    return sink.getvalue().encode()


@pytest.mark.parametrize(
    "content",
    [
        LINES, b"\xef\xbb\xbf\n\n" + LINES, json.dumps(RECORDS).encode(), json.dumps(RECORDS, indent=2).encode(),
        json.dumps({"version": 1, "data": RECORDS}).encode(), json.dumps({"data": RECORDS}, indent=1).encode(),
        gzip.compress(LINES), bz2.compress(LINES), lzma.compress(LINES), gzip.compress(json.dumps(RECORDS).encode()),
        pa.compress(LINES, codec="zstd", asbytes=True), _table(), _arrow(), _csv(","), _csv("\t"), _csv(";"),
        gzip.compress(_csv(",")),
    ],
    ids=[
        "jsonl", "jsonl with a mark", "array", "indented array", "object", "indented object", "gzip", "bz2", "xz",
        "gzipped array", "zstd", "parquet", "arrow", "csv", "tabs", "semicolons", "gzipped csv",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["rows.parquet", "rows"])
def test_the_container_is_told_by_content_whatever_the_files_name(tmp_path, content, name):
    (tmp_path / name).write_bytes(content)
    assert [row.prompt for row in rows_of(tmp_path / name)] == [
        f"{ASKED} {number}" for number in range(3)
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is empty"),
        (b"\n \n", "is empty"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b"# A page\n\nof prose.\n", "accepted are Parquet"),
        (b'{"code": "x"}\n', "its fields: code"),
        (b'["a", "b"]', "no object with fields"),
        (b'{"prompt": "a", "completion": "b"}\n{"prompt": \n', "rows:2 is not JSON"),
        (b'{"prompt": "a", "completion": "b"}\n17\n', "rows:2 is no object"),
        (b'{"prompt": "\xff", "completion": "b"}\n', "is not UTF-8"),
        (b"PK\x03\x04 and more", "a zip archive: unpack it first"),
        (b"SQLite format 3\0 and more", "agent export --format sft"),
        (b"\x7fELF\0\0\0", "it is binary"),
        (_table()[:200], "not a readable parquet file"),
        (_arrow()[:60], "not a readable Arrow file"),
        (gzip.compress(LINES, mtime=0)[:40], "cannot be read"),
        (lzma.compress(LINES)[:40], "cannot be read"),
        (b'{"messages": [{"role": "user", "content": "a"}]}\n', "without an answer of the assistant"),
        (b'{"messages": [{"role": "tool", "content": "a"}]}\n', "a message of tool"),
        (b'{"prompt": "", "completion": "b"}\n', "1 empty"),
        (b'{"messages": "a"}\n', "of no known form"),
        (b'{"prompt": 1, "completion": 2}\n', "of no known form"),
    ],
)  # fmt: skip
def test_what_is_no_file_of_rows_is_refused_in_one_line(tmp_path, content, said):
    (tmp_path / "rows").write_bytes(content)
    with pytest.raises(InputError) as refused:
        check_examples(tmp_path / "rows")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_folder_is_read_by_its_files_of_rows_and_one_without_any_is_refused(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(LINES)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(LINES))
    (tmp_path / "README.md").write_text("of prose")
    assert len(rows_of(tmp_path)) == 6
    (tmp_path / "other" / "data").mkdir(parents=True)
    with pytest.raises(InputError, match=r"holds no file of rows .*it has the folders data"):
        rows_of(tmp_path / "other")
    with pytest.raises(InputError, match="there is nothing at"):
        rows_of(tmp_path / "nowhere")


def test_records_that_make_no_row_are_counted_and_the_others_are_read(tmp_path):
    skipped: dict[str, int] = {}
    records = [
        {"messages": [USER]},
        {"messages": [USER, ASSISTANT]},
        {"messages": [USER, {"content": "x"}]},
    ]
    assert len(rows_of(written(tmp_path / "a", *records), skipped)) == 1
    assert sum(skipped.values()) == 2


def test_rows_of_others_become_a_corpus_once_and_a_corpus_is_used_where_it_lies(tmp_path):
    source, said = written(tmp_path / "a", *RECORDS, {"messages": [USER]}), []
    corpus = as_corpus(source, tmp_path / "work" / "rows", said.append)
    assert (len(list(read_rows(corpus))), is_corpus(corpus), is_corpus(source)) == (3, True, False)
    assert said == [
        f"read 3 rows of {source} (left out: 1 conversations without an answer of the assistant)"
    ]
    source.unlink()
    assert as_corpus(source, tmp_path / "work" / "rows", said.append) == corpus
    write_rows(tmp_path / "own", [row_of(Kind.DRAFT, "a", "b")])
    assert as_corpus(tmp_path / "own", tmp_path / "other", said.append) == tmp_path / "own"
    assert len(said) == 1
