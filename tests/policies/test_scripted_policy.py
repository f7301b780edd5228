"""Scripts: read from files, deterministic for each thread, and never silent when they run out."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from kernelwright.policies.base import (
    Completion,
    FinishReason,
    Message,
    PolicyRefused,
    Request,
    Role,
    Trouble,
    Usage,
)
from kernelwright.policies.scripted import Script, ScriptedPolicy, ScriptPart, open_scripted


def ask(text: str = "add", **more: object) -> Request:
    return Request(messages=(Message(role=Role.USER, content=text),), **more)


def texts(policy: ScriptedPolicy, *requests: Request) -> list[str]:
    return [completion.text for completion in policy.sample(requests)]


@pytest.mark.parametrize(
    ("name", "content", "first"),
    [
        ("a.json", '["one", "two"]', "one"),
        ("a.json", '{"answers": [{"text": "one"}], "seconds": 0}', "one"),
        ("a.jsonl", '"one"\n{"text": "two"}\n', "one"),
        ("a.py", "import triton\n", "```python\nimport triton\n```"),
        ("a.md", "one\n", "one\n"),
    ],
)
def test_every_form_of_file_is_read(tmp_path: Path, name, content, first):
    (tmp_path / name).write_text(content)
    policy = open_scripted(tmp_path / name)
    assert texts(policy, ask()) == [first]
    assert policy.name == f"scripted:{tmp_path / name}"


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "7", '{"answers": 3}', '{"answers": [3]}', '{"wrong": []}', '["a"']
)
def test_what_is_no_script_is_refused_in_one_line(tmp_path: Path, content):
    path = tmp_path / "a.json"
    path.write_text(content)
    with pytest.raises(PolicyRefused, match="not a script") as caught:
        open_scripted(path)
    assert caught.value.trouble is Trouble.SCRIPT
    assert "\n" not in str(caught.value)


def test_a_script_that_is_not_there_or_not_text_is_refused(tmp_path: Path):
    with pytest.raises(PolicyRefused, match="cannot read"):
        open_scripted(tmp_path / "none.json")
    (tmp_path / "b.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PolicyRefused, match="not a script"):
        open_scripted(tmp_path / "b.json")


def test_each_thread_starts_the_script_anew_and_a_turn_is_found_again():
    policy = ScriptedPolicy(["one", "two"])
    assert texts(policy, ask(thread="a"), ask(thread="b"), ask(thread="a")) == ["one", "one", "two"]
    assert texts(ScriptedPolicy(["one", "two"]), ask(thread="a", turn=1)) == ["two"]


def test_a_script_that_is_at_its_end_says_so():
    policy = ScriptedPolicy(["one"])
    with pytest.raises(PolicyRefused, match="has 1 answer, and turn 2") as caught:
        policy.sample([ask(), ask()])
    assert caught.value.finished[0].text == "one"
    assert texts(
        ScriptedPolicy(Script(parts=(ScriptPart(answers=("one",)),), again=True)), ask(), ask()
    ) == [
        "one",
        "one",
    ]


def test_parts_answer_the_prompts_they_name(tmp_path: Path):
    path = tmp_path / "a.json"
    path.write_text(
        json.dumps({"parts": [{"when": "softmax", "answers": ["s"]}], "answers": ["other"]})
    )
    assert texts(open_scripted(path), ask("fused softmax"), ask("add")) == ["s", "other"]
    only = ScriptedPolicy(Script(parts=(ScriptPart(when="softmax", answers=("s",)),)))
    with pytest.raises(PolicyRefused, match="no part for this prompt"):
        only.sample([ask("add")])


def test_a_recorded_completion_comes_back_whole(tmp_path: Path):
    recorded = Completion(
        text="x",
        finish=FinishReason.STOP,
        usage=Usage(prompt_tokens=2, completion_tokens=1, dollars=0.5),
        policy="openai:m@u",
        prompt_token_ids=(1, 2),
        token_ids=(3,),
        logprobs=(-0.25,),
        exact=True,
        seed=4,
    )
    path = tmp_path / "a.jsonl"
    path.write_text(recorded.model_dump_json())
    policy = open_scripted(path)
    assert policy.sample([ask()])[0].with_(latency=0.0) == recorded
    assert policy.capabilities.token_ids


def test_a_slow_script_takes_its_time():
    started = time.monotonic()
    ScriptedPolicy(Script(parts=(ScriptPart(answers=("one",)),), seconds=0.2)).sample([ask()])
    assert time.monotonic() - started >= 0.2
