"""The small policies' own tokenizer: exact, repeatable, numbers spelt, idioms whole."""

import subprocess
import sys
from pathlib import Path

import pytest

from kernelwright.errors import InputError
from kernelwright.rl.training.tokenizing import (
    PAD,
    START,
    make_tokenizer,
    train_tokenizer,
    training_texts,
)
from tests.rl.small_corpus import small_corpus

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return small_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="module")
def tokenizer(corpus):
    return train_tokenizer(training_texts(corpus), 1024)


def pieces(tokenizer, text):
    return [
        tokenizer.decode([token])
        for token in tokenizer(text, add_special_tokens=False)["input_ids"]
    ]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x\n\n\n\n  y\t\tz  \n",
        "a = -12.5e-07 + 0.7071067811865476",
        "é€😀 名前",
        "\r\n\0\x7f",
        "1234567890" * 9,
        "\n    if x:\n",
    ],
)
def test_any_text_comes_back_exactly(tokenizer, text):
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"]) == text


def test_a_size_is_spelt_digit_by_digit_wherever_it_stands(tokenizer):
    for text in ("rows = 16384\n", "BLOCK=16384)", "x * 16384.25"):
        found = pieces(tokenizer, text)
        assert "16384" in "".join(found)
        assert not [
            piece for piece in found if len(piece) > 1 and any(sign.isdigit() for sign in piece)
        ], found


def test_numbers_of_idioms_and_of_names_stay_in_their_line(tokenizer):
    assert len(pieces(tokenizer, "    pid = tl.program_id(0)\n")) < 8
    assert any("float32" in piece for piece in pieces(tokenizer, "x.to(tl.float32)"))


def test_a_frequent_line_is_nearly_one_token(tokenizer):
    assert len(pieces(tokenizer, "import triton.language as tl\n")) <= 2


def test_the_same_corpus_gives_the_same_tokenizer(corpus, tokenizer):
    again = train_tokenizer(training_texts(corpus), 1024)
    assert again.get_vocab() == tokenizer.get_vocab()


def test_the_command_writes_a_folder_that_opens_and_refuses_one_that_is_there(corpus, tmp_path):
    command = [
        sys.executable,
        "-m",
        "rl",
        "tokenizer",
        "--data",
        str(corpus),
        "--out",
        str(tmp_path / "t"),
        "--vocabulary",
        "600",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "round trip exact" in done.stdout
    assert (tmp_path / "t" / "chat_template.jinja").is_file()
    with pytest.raises(InputError, match="exists already"):
        make_tokenizer(corpus, tmp_path / "t", 600, 40)


def test_roles_are_single_tokens_after_their_mark(tokenizer):
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "x"}], add_generation_prompt=True, return_dict=False
    )
    assert [tokenizer.decode([token]) for token in ids][:2] == [START, "user\n"]
    assert tokenizer.pad_token == PAD
